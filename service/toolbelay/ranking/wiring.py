"""How a process makes its tenants' indexes from settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from toolbelay.ranking.endpoints.chat import ChatEndpoint
from toolbelay.ranking.endpoints.embedding import EmbeddingEndpoint
from toolbelay.ranking.index import CatalogIndex
from toolbelay.ranking.vectors import Embedder, StaticEmbedder


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint: base URL (with `/v1`), model and key ("" = none)."""

    url: str
    model: str
    api_key: str = ""

    def __repr__(self) -> str:
        return f"Endpoint(url={self.url!r}, model={self.model!r})"


class IndexMaker:
    """Makes indexes that share one embedder and one rewriter: `TenantIndexes(IndexMaker(...))`."""

    def __init__(self, embedding: Endpoint | None = None, rewrite: Endpoint | None = None) -> None:
        self._embedding = EmbeddingEndpoint(embedding.url, embedding.model, embedding.api_key) if embedding else None
        self._embedder: Embedder = self._embedding or StaticEmbedder()
        self._rewriter = ChatEndpoint(rewrite.url, rewrite.model, rewrite.api_key) if rewrite else None

    def __call__(self) -> CatalogIndex:
        return CatalogIndex(self._embedder, self._rewriter)

    async def aclose(self) -> None:
        """Close the endpoints' connections."""
        for endpoint in (self._embedding, self._rewriter):
            if endpoint is not None:
                await endpoint.aclose()

    @classmethod
    def of(
        cls,
        *,
        embeddings_url: str = "",
        embeddings_model: str = "",
        embeddings_api_key: str = "",
        rewrite_url: str = "",
        rewrite_model: str = "",
        rewrite_api_key: str = "",
    ) -> Self:
        """From settings, where an empty URL means the default: static vectors, no rewriting."""
        return cls(
            Endpoint(embeddings_url, embeddings_model, embeddings_api_key) if embeddings_url else None,
            Endpoint(rewrite_url, rewrite_model, rewrite_api_key) if rewrite_url else None,
        )
