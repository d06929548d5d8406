"""Strategy `hybrid`: words and meaning together.

relevance = (keyword share + w x cosine) / (1 + w). Scores are added, not ranks: both parts are on a scale that does
not depend on the catalog, and a sum keeps how much better the best one is. (Rank fusion lost 5 points of
recall at 5.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolbelay.ranking.corpus import Rows
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import QueryWords
from toolbelay.ranking.strategies.base import Relevance, Searchable
from toolbelay.ranking.strategies.embedding import cosines_of
from toolbelay.ranking.vectors import Embedder


class HybridStrategy:
    """The default."""

    name = "hybrid"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def relevance(
        self,
        searchable: Searchable,
        texts: Sequence[QueryWords],
        options: RankingOptions,
        within: Rows | None = None,
    ) -> list[Relevance]:
        cosines = await cosines_of(self._embedder, searchable, texts, within)
        weight = np.float32(options.vector_weight)
        floor = np.float32(self._embedder.floor)
        found = []
        for text, near in zip(texts, cosines, strict=True):
            shared = searchable.corpus.lexical.scores(text, within)
            scores = (shared + weight * near) / (1 + weight)
            found.append(Relevance(scores, (shared > 0) | ((near > 0) & (near >= floor))))
        return found
