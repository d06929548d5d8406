"""Strategy `embedding`: the cosine of a query's vector and a tool's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import QueryWords
from toolbelay.ranking.strategies.base import Relevance, Searchable
from toolbelay.ranking.vectors import Embedder, EmbeddingError, Vectors


class EmbeddingStrategy:
    """Cosines below the embedder's floor match nothing."""

    name = "embedding"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def relevance(
        self,
        searchable: Searchable,
        text: QueryWords,
        options: RankingOptions,  # noqa: ARG002
    ) -> Relevance:
        _require_all(searchable)
        cosines = await cosines_of(self._embedder, searchable, text)
        return Relevance(cosines, (cosines > 0) & (cosines >= np.float32(self._embedder.floor)))

    async def relevance_of(
        self,
        searchable: Searchable,
        text: QueryWords,
        options: RankingOptions,  # noqa: ARG002
        rows: Sequence[int],
    ) -> list[float]:
        _require_all(searchable)
        floor = self._embedder.floor
        cosines = await cosines_with(self._embedder, searchable, text, rows)
        return [near if near >= floor else 0.0 for near in cosines]


def _require_all(searchable: Searchable) -> None:
    if searchable.vectors is None or not searchable.vectors.complete:
        raise EmbeddingError("the catalog's vectors are not there yet")


async def cosines_of(embedder: Embedder, searchable: Searchable, text: QueryWords) -> Vectors:
    """The cosine of each tool's vector, negative ones as 0."""
    vectors, query = await _compared(embedder, searchable, text)
    cosines: Vectors = np.matmul(vectors, query)
    return np.maximum(cosines, np.float32(0), out=cosines)


async def cosines_with(
    embedder: Embedder, searchable: Searchable, text: QueryWords, rows: Sequence[int]
) -> list[float]:
    """The same of a few rows."""
    _, query = await _compared(embedder, searchable, text)
    if not rows:
        return []
    cosines: list[float] = np.matmul(searchable.stored.vectors(rows), query).tolist()
    return [near if near > 0 else 0.0 for near in cosines]


async def _compared(embedder: Embedder, searchable: Searchable, text: QueryWords) -> tuple[Vectors, Vectors]:
    """The vectors of all tools, and of the text. Raises `EmbeddingError` where they do not fit each other."""
    rows = searchable.vectors
    if rows is None or rows.model != embedder.model:
        raise EmbeddingError("the catalog's vectors are not there yet")
    if not len(rows.vectors):
        return rows.vectors, np.zeros(rows.vectors.shape[1], np.float32)
    queries = await embedder.embed([text.plain])
    if queries.shape != (1, rows.vectors.shape[1]):
        raise EmbeddingError("the embedder changed the length of its vectors")
    if not embedder.local and text.plain and not queries.any():
        raise EmbeddingError("the query has no finite vector")
    return rows.vectors, queries[0]
