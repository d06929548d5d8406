"""The ranking index of one tenant: takes the catalog by difference, ranks, falls back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite

import numpy as np
from msgspec.structs import replace

from toolbelay.catalog.model import Tool
from toolbelay.clock import loop_time
from toolbelay.planner.model import Scored
from toolbelay.ranking.admission import admitted
from toolbelay.ranking.corpus import Corpus, Rows, build_corpus
from toolbelay.ranking.documents import Document
from toolbelay.ranking.eligible import EligibleRows
from toolbelay.ranking.endpoints.chat import Rewriter
from toolbelay.ranking.hits import best_hits
from toolbelay.ranking.lexical import Scores
from toolbelay.ranking.novelty import news
from toolbelay.ranking.port import Ranking, RankQuery
from toolbelay.ranking.priors import Values, evidence, leading, scored
from toolbelay.ranking.query import QueryWords, read_query, vocabulary
from toolbelay.ranking.strategies.base import Searchable, Strategy
from toolbelay.ranking.strategies.embedding import EmbeddingStrategy
from toolbelay.ranking.strategies.hybrid import HybridStrategy
from toolbelay.ranking.strategies.keyword import KeywordStrategy
from toolbelay.ranking.vector_table import VectorTable
from toolbelay.ranking.vectors import Embedder, StaticEmbedder

# What each strategy falls to when it fails, the cheaper next.
FALLBACKS: Mapping[str, tuple[str, ...]] = {
    "rewrite": ("rewrite", "hybrid", "keyword"),
    "hybrid": ("hybrid", "keyword"),
    "embedding": ("embedding", "keyword"),
    "keyword": ("keyword",),
}
MOST_HITS = 160  # that priors look at
RETRY_SECONDS = (1.0, 5.0, 30.0, 60.0)  # between tries to embed a catalog; the last repeats
FALLBACK_SECONDS = 0.1  # of the deadline that a slow strategy leaves to the next
REWRITE_CANDIDATES = 48
CANDIDATE_SECONDS = 1.0  # to choose what the model chooses from
MOST_MEMBERS = 64  # of a toolset without hits of their own
LEAST_SCORE = 1e-6  # of a tool that comes with its toolset

log = logging.getLogger(__name__)


class CatalogIndex:
    """A `TenantIndex`. One per tenant; holds ids, words and vectors of that tenant's tools only.

    `embedder` gives the vectors of `embedding` and `hybrid` (default: the static ones in the package);
    `rewriter` serves `rewrite`, which fails over to `hybrid` without one. Both may be shared by tenants.
    """

    def __init__(self, embedder: Embedder | None = None, rewriter: Rewriter | None = None) -> None:
        self._embedder = embedder or StaticEmbedder()
        self._rewriter = rewriter
        strategies = (KeywordStrategy(), EmbeddingStrategy(self._embedder), HybridStrategy(self._embedder))
        self._strategies: Mapping[str, Strategy] = {s.name: s for s in strategies}
        self._table = VectorTable(self._embedder)
        self._searchable: Searchable | None = None
        self._lock = asyncio.Lock()
        self._given = 0
        self._fetching: asyncio.Task[None] | None = None
        self._failing: set[str] = set()  # strategies whose last try failed

    @property
    def ready(self) -> bool:
        """Whether a first catalog has been taken; does not wait for an endpoint's vectors."""
        return self._searchable is not None

    async def refresh(self, tools: Mapping[str, Tool]) -> None:
        """See `TenantIndex.refresh`. Vectors of an endpoint follow in the background."""
        self._given += 1
        mine = self._given
        async with self._lock:
            if mine != self._given:
                return  # a later catalog waits behind this one
            held = self._searchable.corpus if self._searchable is not None else None
            self._searchable = await asyncio.to_thread(self._build, dict(tools), held)
        if not self._embedder.local:
            await self._stop_fetching()
            self._fetching = asyncio.create_task(self._fetch(self._searchable.corpus))

    async def aclose(self) -> None:
        """Stop work in the background. Idempotent."""
        await self._stop_fetching()

    async def rank(self, query: RankQuery) -> Ranking:
        """See `TenantIndex.rank`."""
        failed: list[str] = []
        searchable = self._searchable
        if searchable is None:
            return Ranking((), "", (query.strategy,))
        for name in FALLBACKS.get(query.strategy, ("keyword",)):
            try:
                matches = await self._ranked(name, searchable, query)
            except Exception as error:  # noqa: BLE001 (any failure of a strategy falls to the next)
                self._note_failure(name, error)
                failed.append(name)
            else:
                self._failing.discard(name)
                return Ranking(matches, name, tuple(failed))
        return Ranking((), "", tuple(failed))

    def _note_failure(self, strategy: str, error: Exception) -> None:
        """Once per outage: an endpoint that is down would fill the log. Each receipt says what ranked."""
        if strategy not in self._failing:
            self._failing.add(strategy)
            # Neither text nor definitions: the class says enough, and messages may quote.
            log.warning("ranking strategy %s failed: %s", strategy, type(error).__name__)

    def _build(self, tools: Mapping[str, Tool], held: Corpus | None) -> Searchable:
        corpus = build_corpus(tools, held)
        local = self._table.local_rows(corpus)
        return Searchable(corpus, local or self._table.held_rows(corpus))

    async def _fetch(self, corpus: Corpus) -> None:
        tries = 0
        while True:
            try:
                rows = await self._table.fetch(corpus)
            except Exception as error:  # noqa: BLE001 (any failure of a strategy falls to the next)
                log.warning("embedding the catalog failed: %s", type(error).__name__)
            else:
                self._searchable = Searchable(corpus, rows)
                return
            await asyncio.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            tries += 1

    async def _stop_fetching(self) -> None:
        task, self._fetching = self._fetching, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})

    async def _ranked(self, name: str, searchable: Searchable, query: RankQuery) -> tuple[Scored, ...]:
        if name == "rewrite":
            return await self._rewritten(searchable, query)
        if self._embedder.local or name == "keyword":
            return await self._scored(self._strategies[name], searchable, query)
        async with asyncio.timeout_at(query.deadline - FALLBACK_SECONDS if isfinite(query.deadline) else None):
            return await self._scored(self._strategies[name], searchable, query)

    async def _scored(self, strategy: Strategy, searchable: Searchable, query: RankQuery) -> tuple[Scored, ...]:
        corpus, words = searchable.corpus, vocabulary(query.options)
        text = read_query(query.query, words)
        if not text or query.limit < 1:
            return ()
        if not query.chooses:
            return await self._scored_stored(strategy, searchable, text, query)
        whole = query.options.admission == "toolsets" and query.sticky
        relevance = await strategy.relevance(searchable, text, query.options)
        eligible = EligibleRows(corpus, query.eligible, query.memory)
        if not query.sticky:
            return _matches(corpus, *best_hits(relevance, eligible, query.limit).matching(), query)
        hits = best_hits(relevance, eligible, max(MOST_HITS, query.limit))
        if not len(hits.rows):
            return ()
        gathered = evidence(corpus, hits, text.said)
        share = leading(gathered, hits.best)
        stored = _rows(corpus, query.stored)
        rows, values = scored(
            corpus,
            hits,
            share,
            _eligible_members(corpus, share, eligible),
            {int(corpus.toolset_of[row]) for row in _rows(corpus, query.called)},
            _new_words(corpus, text, stored) if stored and not whole else None,
            query.options,
        )
        if whole:
            brought = admitted(
                corpus, hits, text, gathered=gathered, stored=stored, eligible=eligible, options=query.options
            )
            rows, values = _at_hand(corpus, rows, values, stored, brought)
        return _matches(corpus, rows, values, query)

    async def _scored_stored(
        self, strategy: Strategy, searchable: Searchable, text: QueryWords, query: RankQuery
    ) -> tuple[Scored, ...]:
        corpus = searchable.corpus
        eligible = EligibleRows(corpus, query.eligible, query.memory)
        rows = [row for row in _rows(corpus, query.stored) if eligible(row)]
        scores = await strategy.relevance_of(searchable, text, query.options, rows)
        best_first = sorted([(-score, row) for score, row in zip(scores, rows, strict=True) if score > 0])
        return _reaching(corpus, [(row, -score) for score, row in best_first[: query.limit]], query)

    async def _rewritten(self, searchable: Searchable, query: RankQuery) -> tuple[Scored, ...]:
        if self._rewriter is None:
            raise LookupError("no chat endpoint is configured")
        candidates = await self._candidates(searchable, query)
        names = {d.exposed_name: d.tool_id for d in candidates}
        picked = await self._rewriter.pick(
            query.query, [(d.exposed_name, d.summary) for d in candidates], query.deadline - FALLBACK_SECONDS
        )
        chosen = [names[name] for name in dict.fromkeys(picked) if name in names]
        if picked and not chosen:
            raise LookupError("the model named no tool that it was given")
        # The model gives an order, no scores: all reach a threshold of one half.
        scored = [Scored(tool_id, 1 - place / (2 * len(chosen))) for place, tool_id in enumerate(chosen)]
        return tuple(s for s in scored if s.score >= query.threshold)[: query.limit]

    async def _candidates(self, searchable: Searchable, query: RankQuery) -> list[Document]:
        """What the model chooses from: the best by hybrid, or by keyword; else the first eligible tools."""
        corpus = searchable.corpus
        until = min(loop_time() + CANDIDATE_SECONDS, query.deadline - FALLBACK_SECONDS)
        wide = replace(query, threshold=0.0, limit=REWRITE_CANDIDATES, sticky=False, chooses=True, deadline=until)
        found: tuple[Scored, ...] = ()
        for name in ("hybrid", "keyword"):
            try:
                found = await self._ranked(name, searchable, wide)
                break
            except Exception as error:  # noqa: BLE001 (any failure of a strategy falls to the next)
                self._note_failure(name, error)
        rows = [corpus.row_of[match.tool_id] for match in found]
        for row, document in enumerate(corpus.documents):
            if len(rows) >= REWRITE_CANDIDATES:
                break
            if row not in rows and query.eligible(document.tool_id):
                rows.append(row)
        return [corpus.documents[row] for row in rows]


def _rows(corpus: Corpus, tool_ids: Iterable[str]) -> list[int]:
    row_of = corpus.row_of
    return [row_of[tool_id] for tool_id in dict.fromkeys(tool_ids) if tool_id in row_of]


def _at_hand(
    corpus: Corpus, rows: Rows, values: Values, stored: Sequence[int], brought: Mapping[int, float]
) -> tuple[Rows, Values]:
    """The rows that the session has or gets, with their scores: those of `rows`, or 0."""
    by_row = np.zeros(len(corpus))
    by_row[rows] = values
    rows = np.array([*stored, *brought], np.intp)
    values = by_row[rows]
    fresh = values[len(stored) :]
    np.maximum(fresh, np.fromiter(brought.values(), np.float64, len(brought)), out=fresh)
    np.maximum(fresh, LEAST_SCORE, out=fresh)
    return rows, values


def _new_words(corpus: Corpus, text: QueryWords, stored: Sequence[int]) -> Scores:
    at_hand = np.zeros(len(corpus), np.bool_)
    at_hand[stored] = True
    return news(corpus.lexical, text, at_hand).words


def _eligible_members(corpus: Corpus, toolsets: Iterable[int], eligible: EligibleRows) -> dict[int, Rows]:
    """The eligible tools of toolsets that are small enough to come whole."""
    return {
        toolset: eligible.of(corpus.members[toolset])
        for toolset in toolsets
        if len(corpus.members[toolset]) <= MOST_MEMBERS
    }


def _matches(corpus: Corpus, rows: Rows, values: Values, query: RankQuery) -> tuple[Scored, ...]:
    if len(values) > 2 * query.limit:
        least = np.partition(values, len(values) - query.limit)[len(values) - query.limit]
        enough = values >= least
        rows, values = rows[enough], values[enough]
    order = np.lexsort((rows, -values))[: query.limit]
    return _reaching(corpus, zip(rows[order].tolist(), values[order].tolist(), strict=True), query)


def _reaching(corpus: Corpus, best: Iterable[tuple[int, float]], query: RankQuery) -> tuple[Scored, ...]:
    """Of the best rows, best first, with their scores."""
    return tuple(
        [
            Scored(corpus.documents[row].tool_id, score)
            for place, (row, score) in enumerate(best)
            if 0 < score < inf and (score >= query.threshold or place < query.preserve)
        ]
    )
