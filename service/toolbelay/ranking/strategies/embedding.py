"""Strategy `embedding`: the cosine of a query's vector and a tool's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolbelay.ranking.corpus import Rows
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
        texts: Sequence[QueryWords],
        options: RankingOptions,  # noqa: ARG002
        within: Rows | None = None,
    ) -> list[Relevance]:
        if searchable.vectors is None or not searchable.vectors.complete:
            raise EmbeddingError("the catalog's vectors are not there yet")
        cosines = await cosines_of(self._embedder, searchable, texts, within)
        floor = np.float32(self._embedder.floor)
        return [Relevance(row, (row > 0) & (row >= floor)) for row in cosines]


async def cosines_of(
    embedder: Embedder, searchable: Searchable, texts: Sequence[QueryWords], within: Rows | None = None
) -> Vectors:
    """One row per text, one column per tool (or per row `within`), negative ones as 0, never NaN."""
    rows = searchable.vectors
    if rows is None or rows.model != embedder.model:
        raise EmbeddingError("the catalog's vectors are not there yet")
    if not len(rows.vectors):
        return np.zeros((len(texts), 0), np.float32)
    queries = await embedder.embed([text.plain for text in texts])
    if queries.shape != (len(texts), rows.vectors.shape[1]):
        raise EmbeddingError("the embedder changed the length of its vectors")
    if not embedder.local and not all(query.any() for query, text in zip(queries, texts, strict=True) if text.plain):
        raise EmbeddingError("the query has no finite vector")
    # One matrix-vector product per text: BLAS's matrix-matrix product sums in another order.
    vectors = rows.vectors if within is None else rows.vectors[within]
    cosines: Vectors = np.empty((len(texts), len(vectors)), np.float32)
    for query, out in zip(queries, cosines, strict=True):
        np.matmul(vectors, query, out=out)
    return np.maximum(cosines, np.float32(0), out=cosines)
