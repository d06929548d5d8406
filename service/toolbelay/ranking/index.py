"""The ranking index of one tenant: takes the catalog by difference, ranks, falls back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

import numpy as np

from toolbelay.catalog.model import Tool
from toolbelay.planner.model import Scored
from toolbelay.ranking.documents import Document, document
from toolbelay.ranking.lexical import LexicalIndex, Scores, lexical_index
from toolbelay.ranking.port import Ranking, RankQuery
from toolbelay.ranking.stop_words import STOP_WORDS
from toolbelay.ranking.text import bounded, words


class CatalogIndex:
    """A `TenantIndex`. One per tenant; holds ids, words and vectors, no definitions."""

    def __init__(self) -> None:
        self._documents: tuple[Document, ...] = ()
        self._lexical: LexicalIndex | None = None
        self._lock = asyncio.Lock()
        self._given = 0

    @property
    def ready(self) -> bool:
        return self._lexical is not None

    async def refresh(self, tools: Mapping[str, Tool]) -> None:
        self._given += 1
        mine = self._given
        async with self._lock:
            if mine != self._given:
                return  # a later catalog waits behind this one
            documents, lexical = await asyncio.to_thread(_build, self._documents, dict(tools))
            self._documents, self._lexical = documents, lexical

    async def rank(self, query: RankQuery) -> Ranking:
        lexical, documents = self._lexical, self._documents
        if lexical is None:
            return Ranking((), "", (query.strategy,))
        terms = Counter(word for word in words(bounded(query.query)) if word not in STOP_WORDS)
        scores = lexical.scores({word: 1.0 for word in terms})
        matches = _best(scores, documents, query)
        return Ranking(matches, "keyword", () if query.strategy == "keyword" else (query.strategy,))


def _build(held: tuple[Document, ...], tools: Mapping[str, Tool]) -> tuple[tuple[Document, ...], LexicalIndex]:
    known = {d.tool_id: d for d in held}
    documents = tuple(
        d
        if (d := known.get(tool_id)) is not None and d.fingerprint == tools[tool_id].fingerprint
        else document(tools[tool_id])
        for tool_id in sorted(tools, key=str.encode)
    )
    return documents, lexical_index(documents)


def _best(scores: Scores, documents: tuple[Document, ...], query: RankQuery) -> tuple[Scored, ...]:
    found: list[Scored] = []
    for row in np.argsort(-scores, kind="stable"):
        score = float(scores[row])
        if len(found) >= query.limit or not score > 0:
            break
        if score < query.threshold and len(found) >= query.preserve:
            break
        if query.eligible(documents[row].tool_id):
            found.append(Scored(documents[row].tool_id, score))
    return tuple(found)
