"""Strategy `keyword`: the share of the query's words that a tool has, by information."""

from __future__ import annotations

from collections.abc import Sequence

from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import QueryWords
from toolbelay.ranking.strategies.base import Relevance, Searchable


class KeywordStrategy:
    """BM25 with synonyms; see `lexical.py`."""

    name = "keyword"

    async def relevance(
        self,
        searchable: Searchable,
        text: QueryWords,
        options: RankingOptions,  # noqa: ARG002
    ) -> Relevance:
        scores = searchable.corpus.lexical.scores(text)
        return Relevance(scores, scores > 0)

    async def relevance_of(
        self,
        searchable: Searchable,
        text: QueryWords,
        options: RankingOptions,  # noqa: ARG002
        rows: Sequence[int],
    ) -> list[float]:
        return searchable.corpus.lexical.shares(text, searchable.stored.words(rows))
