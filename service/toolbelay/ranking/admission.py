"""Admission `toolsets`: bring whole toolsets early, then keep still. Pure.

An unchanged list is worth more than the last point of relevance: it is served from the provider's prompt cache. So
the first turn brings the toolset that the query is about, whole, because users' next requests stay in it; a
later turn adds only when the query asks for something that the session's tools do not answer.

Which toolset a text is about is decided on evidence (`priors.py`). What it asks for beside that ("check the tires
and tweet it") shows in words that no tool at hand has (`novelty.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import neg

import numpy as np

from toolbelay.ranking.corpus import Corpus
from toolbelay.ranking.eligible import EligibleRows
from toolbelay.ranking.lexical import Scores
from toolbelay.ranking.novelty import news
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.priors import Hits
from toolbelay.ranking.query import QueryWords

HEDGE_FIRST = 0.7  # on the first turn, further toolsets with this share of the leading evidence come too
MAX_TOOLSETS = 3  # that a first turn brings by evidence
LEADS = 0.8  # of the greatest evidence: what a toolset at hand needs for its missing tools to come
SMALL = 8  # a toolset with fewer tools comes by evidence only for its having the best tool
PRESENT = 6  # so many tools of a toolset in the session stand for the toolset
COMPLETES = 0.8  # unless a missing one is this relevant beside the best of those present
ASKED_FOR = 0.15  # how strongly a text has to ask for a toolset beside those at hand (`_asked_for`)
EVIDENCE_ALONE = 1.2  # times that of the toolsets at hand, where no tool has a word of the text
NEXT_COUNTS = 0.5  # the k-th tool's new words count this to the power of k
MOST_TOOLS_READ = 100  # for new words, of the hits
SEED_RELEVANCE = 0.1  # below, a first turn knows no toolset: its best tools come alone
BEST_SEEDS = 4  # that a first turn brings whatever their toolset
LEAST_SEEDS = 8


@dataclass(slots=True)
class _Bringing:
    """The rows brought so far; the rows the session has do not come again."""

    corpus: Corpus
    eligible: EligibleRows
    hit: frozenset[int]
    stored: frozenset[int]
    present: Counter[int]  # toolset → tools in the session
    rows: dict[int, float] = field(default_factory=dict)  # → relevance
    toolsets: set[int] = field(default_factory=set)

    @property
    def at_hand(self) -> set[int]:
        return self.toolsets | set(self.present)

    def missing(self, toolset: int) -> list[int]:
        """Its eligible rows that are not at hand, ascending."""
        rows: list[int] = self.eligible.of(self.corpus.members[toolset]).tolist()
        stored, brought = self.stored, self.rows
        return [row for row in rows if row not in stored and row not in brought]

    def bring(self, rows: list[int], hits: Hits, most: int) -> None:
        relevance = hits.relevance[rows].tolist()
        best_first = sorted(zip(map(neg, relevance), rows, strict=True))
        self.rows.update({row: -opposite for opposite, row in best_first[:most]})

    def bring_toolset(self, toolset: int, hits: Hits, most: int) -> None:
        rows = self.missing(toolset)
        if len(self.corpus.members[toolset]) > most and len(rows) > most:
            # Too large to come whole: what the text names.
            rows = [row for row in rows if row in self.hit]
        self.bring(rows, hits, most)
        self.toolsets.add(toolset)


def admitted(
    corpus: Corpus,
    hits: Hits,
    text: QueryWords,
    *,
    gathered: Mapping[int, float],
    stored: Iterable[int],
    eligible: EligibleRows,
    options: RankingOptions,
) -> dict[int, float]:
    """Rows to bring this turn → their relevance, in order of admission.

    `gathered`: the evidence of `hits`, which are those of `text`. `stored`: rows of the session. Nothing comes where
    the session's tools answer already.
    """
    held = frozenset(stored)
    present = Counter(corpus.toolset_of[list(held)].tolist()) if held else Counter()
    state = _Bringing(corpus, eligible, frozenset(hits.rows.tolist()), held, present)
    if held:
        _complete(state, hits, gathered, options)
    elif hits.best >= SEED_RELEVANCE:
        _seed(state, hits, gathered, options)
    if state.at_hand:
        toolset = _asked_for(state, hits, text, gathered)
        if toolset is not None:
            state.bring_toolset(toolset, hits, options.part_toolset)
    if not held:
        _add_the_best(state, hits)
    return state.rows


def _seed(state: _Bringing, hits: Hits, gathered: Mapping[int, float], options: RankingOptions) -> None:
    """The toolset with the most evidence, and those that come close."""
    ordered = sorted(gathered.items(), key=lambda item: (-item[1], item[0]))[:MAX_TOOLSETS]
    for toolset, strength in ordered:
        if strength >= HEDGE_FIRST * ordered[0][1] and not _too_small(state.corpus, toolset, hits):
            state.bring_toolset(toolset, hits, options.whole_toolset)


def _add_the_best(state: _Bringing, hits: Hits) -> None:
    """The best tools of all, whatever their toolset: the toolset may be mistaken, and a question may stay the only one."""
    best = hits.rows.tolist()
    state.bring([row for row in best[:BEST_SEEDS] if row not in state.rows], hits, BEST_SEEDS)
    short = LEAST_SEEDS - len(state.rows)
    if short > 0:
        state.bring([row for row in best if row not in state.rows][:short], hits, short)


def _complete(state: _Bringing, hits: Hits, gathered: Mapping[int, float], options: RankingOptions) -> None:
    """What the session lacks of a toolset that the text is about."""
    enough = LEADS * max(gathered.values(), default=0.0)
    for toolset in sorted(state.present, key=lambda t: (-gathered.get(t, 0.0), t)):
        strength = gathered.get(toolset, 0.0)
        if (
            0 < strength >= enough
            and not _answers(state, toolset, hits)
            and not _too_small(state.corpus, toolset, hits)
        ):
            state.bring_toolset(toolset, hits, options.whole_toolset)


def _answers(state: _Bringing, toolset: int, hits: Hits) -> bool:
    """Whether what the session has of the toolset answers already."""
    missing = state.missing(toolset)
    if not missing:
        return True
    if state.present[toolset] < PRESENT:
        return False
    there = [row for row in state.corpus.members[toolset].tolist() if row in state.stored]
    return float(hits.relevance[missing].max()) < COMPLETES * float(hits.relevance[there].max())


def _asked_for(state: _Bringing, hits: Hits, text: QueryWords, gathered: Mapping[int, float]) -> int | None:
    """The toolset that the text asks for beside those at hand, if any.

    Its strength: its evidence over that of the toolsets at hand, times the new words that it has, times their share
    of the text's words. New words in plenty, or in a short text, outweigh less evidence, and the reverse.
    """
    corpus, at_hand = state.corpus, state.at_hand
    mask = np.zeros(len(corpus), np.bool_)
    mask[[*state.stored, *state.rows]] = True
    new = news(corpus.lexical, text, mask)
    rival = max((gathered.get(toolset, 0.0) for toolset in at_hand), default=0.0)
    if not new.known:  # another language, understood by vectors only
        toolset = min(gathered, key=lambda t: (-gathered[t], t), default=None)
        return toolset if toolset is not None and gathered[toolset] > EVIDENCE_ALONE * rival else None
    words = _new_words(corpus, new.words[hits.rows], hits)
    rival += hits.best
    strengths = {
        toolset: gathered.get(toolset, 0.0) / rival * count * count / new.asked
        for toolset, count in words.items()
        if toolset not in at_hand
    }
    toolset = min(strengths, key=lambda t: (-strengths[t], t), default=None)
    return toolset if toolset is not None and strengths[toolset] >= ASKED_FOR else None


def _new_words(corpus: Corpus, words: Scores, hits: Hits) -> dict[int, float]:
    """Toolset → the new words of its hits, the best tool's in full, each next one's half as much."""
    some = words.nonzero()[0]
    order = some[(-words[some]).argsort(kind="stable")[:MOST_TOOLS_READ]]
    parts: dict[int, float] = {}
    found: dict[int, float] = {}
    for toolset, count in zip(corpus.toolset_of[hits.rows[order]].tolist(), words[order].tolist(), strict=True):
        part = parts.get(toolset, 1.0)
        found[toolset] = found.get(toolset, 0.0) + count * part
        parts[toolset] = part * NEXT_COUNTS
    return found


def _too_small(corpus: Corpus, toolset: int, hits: Hits) -> bool:
    return len(corpus.members[toolset]) < SMALL and int(corpus.toolset_of[hits.rows[0]]) != toolset
