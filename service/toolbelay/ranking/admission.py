"""Admission `toolsets`: bring whole toolsets early, then keep still. Pure.

An unchanged list is worth more than the last point of relevance: it is served from the provider's prompt cache. So
the first turn brings the toolset that the query is about, whole, because users' next requests stay in it; a
later turn adds only when the query is about something that the session's tools do not answer.

Which toolset a text is about is decided on evidence (`priors.py`), for the whole text and for each request inside
it: "check the tires and tweet it" is about two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from toolbelay.ranking.corpus import Corpus
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.priors import Hits

HEDGE_FIRST = 0.8  # on the first turn, further toolsets with this share of the leading evidence come too
HEDGE_LATER = 0.95
MAX_TOOLSETS = 3  # looked at per text
CALLED_TRUST = 1.2  # evidence of a toolset whose tools were called counts more: the session is about it
STORED_TRUST = 1.1
CLAUSE_TRUST = 2.0  # a single request has to be that much more about another toolset than about one at hand
CLAUSE_RELEVANCE = 0.45  # and its best tool this relevant
SMALL = 8  # a toolset with fewer tools comes only for its having the best tool
PRESENT = 6  # so many tools of a toolset in the session stand for the toolset
COMPLETES = 0.8  # unless a missing one is this relevant beside the best of those present
SEED_RELEVANCE = 0.1  # below, a first turn knows no toolset: its best tools come alone
LEAST_SEEDS = 8


@dataclass(slots=True)
class _Bringing:
    """The rows brought so far; the rows the session has do not come again."""

    corpus: Corpus
    eligible: Callable[[int], bool]
    stored: frozenset[int]
    present: Counter[int]  # toolset → tools in the session
    called: frozenset[int]  # toolsets
    rows: dict[int, float] = field(default_factory=dict)  # → relevance to what they were brought for
    toolsets: set[int] = field(default_factory=set)

    def missing(self, toolset: int) -> list[int]:
        rows = self.corpus.members[toolset].tolist()
        return [r for r in rows if r not in self.stored and r not in self.rows and self.eligible(r)]

    def bring(self, rows: Iterable[int], hits: Hits, most: int) -> None:
        best_first = sorted(rows, key=lambda row: (-float(hits.relevance[row]), row))
        for row in best_first[:most]:
            self.rows[row] = float(hits.relevance[row])

    def bring_toolset(self, toolset: int, hits: Hits, most: int) -> None:
        rows = self.missing(toolset)
        if len(self.corpus.members[toolset]) > most and len(rows) > most:
            hit = set(hits.rows.tolist())
            rows = [row for row in rows if row in hit]  # too large to come whole: what the text names
        self.bring(rows, hits, most)
        self.toolsets.add(toolset)


def admitted(
    corpus: Corpus,
    hits: Hits,
    clauses: Sequence[tuple[Hits, Mapping[int, float]]],
    *,
    gathered: Mapping[int, float],
    stored: Iterable[int],
    called: Iterable[int],
    eligible: Callable[[int], bool],
    options: RankingOptions,
) -> dict[int, float]:
    """Rows to bring this turn → their relevance (to the request they answer), in order of admission.

    `gathered`: the evidence of `hits`; `clauses`: hits and evidence of each request inside the text. `stored` and `called` are rows of the session. Nothing comes where the session's tools answer already.
    """
    held = frozenset(stored)
    state = _Bringing(
        corpus,
        eligible,
        held,
        Counter(int(corpus.toolset_of[row]) for row in held),
        frozenset(int(corpus.toolset_of[row]) for row in called),
    )
    _for_the_text(state, hits, gathered, options)
    for clause_hits, clause_gathered in clauses:
        _for_a_request(state, clause_hits, clause_gathered, options)
    if not held:
        short = LEAST_SEEDS - len(state.rows)
        state.bring([row for row in hits.rows.tolist() if row not in state.rows][: max(short, 0)], hits, LEAST_SEEDS)
        if len(hits.rows):
            state.rows.setdefault(int(hits.rows[0]), hits.best)
    return state.rows


def _for_the_text(state: _Bringing, hits: Hits, gathered: Mapping[int, float], options: RankingOptions) -> None:
    first = not state.stored
    if first and hits.best < SEED_RELEVANCE:
        return
    trusted = dict(gathered)
    for toolset in state.present:
        trusted[toolset] = gathered.get(toolset, 0.0) * (CALLED_TRUST if toolset in state.called else STORED_TRUST)
    ordered = sorted(trusted.items(), key=lambda item: (-item[1], item[0]))[:MAX_TOOLSETS]
    for place, (toolset, strength) in enumerate(ordered):
        if strength <= 0 or strength < (HEDGE_FIRST if first else HEDGE_LATER) * ordered[0][1]:
            break
        if _answers(state, toolset, hits) or _too_small(state.corpus, toolset, hits):
            continue
        state.bring_toolset(toolset, hits, options.whole_toolset if first or not place else options.part_toolset)


def _for_a_request(state: _Bringing, hits: Hits, gathered: Mapping[int, float], options: RankingOptions) -> None:
    at_hand = state.toolsets | set(state.present)
    trusted = {t: e * (CLAUSE_TRUST if t in at_hand else 1.0) for t, e in gathered.items()}
    if not trusted:
        return
    toolset = min(trusted, key=lambda t: (-trusted[t], t))
    if toolset in state.toolsets or state.present[toolset] >= min(len(state.corpus.members[toolset]), PRESENT):
        return
    if hits.best >= CLAUSE_RELEVANCE and int(state.corpus.toolset_of[hits.rows[0]]) == toolset:
        state.bring_toolset(toolset, hits, options.part_toolset)


def _answers(state: _Bringing, toolset: int, hits: Hits) -> bool:
    """Whether what the session has of the toolset answers already."""
    missing = state.missing(toolset)
    if not missing:
        return True
    if state.present[toolset] < PRESENT:
        return False
    there = [row for row in state.corpus.members[toolset].tolist() if row in state.stored]
    return float(hits.relevance[missing].max()) < COMPLETES * float(hits.relevance[there].max())


def _too_small(corpus: Corpus, toolset: int, hits: Hits) -> bool:
    return len(corpus.members[toolset]) < SMALL and int(corpus.toolset_of[hits.rows[0]]) != toolset
