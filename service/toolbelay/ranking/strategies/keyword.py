"""Strategy `keyword`: the share of the query's words that a tool has, by information."""

from __future__ import annotations

from collections.abc import Sequence

from toolbelay.ranking.corpus import Rows
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import QueryWords
from toolbelay.ranking.strategies.base import Relevance, Searchable


class KeywordStrategy:
    """BM25 with synonyms; see `lexical.py`."""

    name = "keyword"

    async def relevance(
        self,
        searchable: Searchable,
        texts: Sequence[QueryWords],
        options: RankingOptions,  # noqa: ARG002
        within: Rows | None = None,
    ) -> list[Relevance]:
        found = []
        for text in texts:
            scores = searchable.corpus.lexical.scores(text, within)
            found.append(Relevance(scores, scores > 0))
        return found
