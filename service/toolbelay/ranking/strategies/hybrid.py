"""Strategy `hybrid`: words and meaning together.

relevance = (keyword share + w x cosine) / (1 + w). Scores are added, not ranks: both parts are on a scale that does
not depend on the catalog, and a sum keeps how much better the best one is. (Rank fusion lost 5 points of
recall at 5.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import QueryWords
from toolbelay.ranking.strategies.base import Relevance, Searchable
from toolbelay.ranking.strategies.embedding import cosines_of, cosines_with
from toolbelay.ranking.vectors import Embedder


class HybridStrategy:
    """The default."""

    name = "hybrid"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def relevance(self, searchable: Searchable, text: QueryWords, options: RankingOptions) -> Relevance:
        near = await cosines_of(self._embedder, searchable, text)
        weight = options.vector_weight
        shared = searchable.corpus.lexical.scores(text)
        matches = (shared > 0) | ((near > 0) & (near >= np.float32(self._embedder.floor)))
        near *= np.float32(weight)
        near += shared
        near /= np.float32(1 + weight)
        return Relevance(near, matches)

    async def relevance_of(
        self, searchable: Searchable, text: QueryWords, options: RankingOptions, rows: Sequence[int]
    ) -> list[float]:
        cosines = await cosines_with(self._embedder, searchable, text, rows)
        shares = searchable.corpus.lexical.shares(text, searchable.stored.words(rows))
        weight, floor = options.vector_weight, self._embedder.floor
        return [
            (shared + weight * near) / (1 + weight) if shared > 0 or near >= floor else 0.0
            for shared, near in zip(shares, cosines, strict=True)
        ]
