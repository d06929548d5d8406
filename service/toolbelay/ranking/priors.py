"""What the session and its toolsets add to a tool's own relevance. Pure arithmetic on hits.

A session's next turns need the tools beside the one asked for: the log-in before the post, the list before
the delete. Three priors say which:

- *evidence*: toolsets that gather many hits. The k-th best hit of a toolset counts 0.8 to the power of k, so that
  breadth counts and size does not.
- *called*: toolsets whose tools the session called.
- *supply*: tools that supply a parameter of a hit (`supply.py`).

Only eligible tools are ever given to this module: a tool that the caller may not see moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolbelay.ranking.corpus import Corpus, Rows
from toolbelay.ranking.lexical import Scores
from toolbelay.ranking.options import RankingOptions

DECAY = 0.8
# A toolset gathers evidence when its hits together reach this many times the best single hit.
GATHERS = 1.5
# Beyond this size, a toolset has to show evidence in proportion to its tools.
ORDINARY_SIZE = 32
MAX_TOOLSETS = 3  # that may add tools without a hit of their own


@dataclass(frozen=True, slots=True)
class Hits:
    """The best eligible tools of a text, best first. `relevance` and `matches` are over all rows of the corpus."""

    def matching(self) -> dict[int, float]:
        """Row → relevance, of the hits that match, best first."""
        return {row: float(self.relevance[row]) for row in self.rows.tolist() if self.matches[row]}

    rows: Rows
    relevance: Scores
    matches: npt.NDArray[np.bool_]

    @property
    def best(self) -> float:
        return float(self.relevance[self.rows[0]]) if len(self.rows) else 0.0


def evidence(corpus: Corpus, hits: Hits) -> dict[int, float]:
    """Toolset number → its evidence, toolsets in order of their first hit."""
    gathered: dict[int, float] = {}
    weight: dict[int, float] = {}
    for toolset, score in zip(corpus.toolset_of[hits.rows].tolist(), hits.relevance[hits.rows].tolist(), strict=True):
        step = weight.get(toolset, 1.0)
        gathered[toolset] = gathered.get(toolset, 0.0) + score * step
        weight[toolset] = step * DECAY
    return {t: e / _oversize(len(corpus.members[t])) for t, e in gathered.items()}


def _oversize(size: int) -> float:
    return 1 + max(0.0, math.log2(size / ORDINARY_SIZE))


def scored(
    corpus: Corpus,
    hits: Hits,
    members: Mapping[int, Sequence[int]],
    called: Iterable[int],
    options: RankingOptions,
) -> dict[int, float]:
    """Row → score of each hit and of the `members` (eligible rows) of toolsets that gather evidence.

    The score is 1 - (1 - relevance) x exp(-priors x the best hit's relevance): within 0 to 1 on every catalog, and
    the relevance itself where no prior speaks. Until the session has called a tool, no prior outdoes the
    best hit.
    """
    best = hits.best
    share = leading(evidence(corpus, hits), best)
    called = frozenset(called)
    found = hits.matching()
    for toolset in share:
        for row in members.get(toolset, ()):
            if hits.relevance[row] > 0:
                found.setdefault(row, float(hits.relevance[row]))
    supplied: dict[int, float] = {}
    for toolset in share:
        supplied |= _supplied(corpus, toolset, found, options.supply_weight)
    scores = {}
    for row, relevance in found.items():
        toolset = int(corpus.toolset_of[row])
        prior = best * options.toolset_weight * share.get(toolset, 0.0) + supplied.get(row, 0.0)
        prior += best * options.called_weight if toolset in called else 0.0
        scores[row] = 1 - (1 - min(relevance, 1.0)) * math.exp(-prior)
    if found and not called:
        scores[next(iter(found))] = math.nextafter(max(scores.values()), math.inf)
    return scores


def leading(gathered: Mapping[int, float], best: float) -> dict[int, float]:
    """The at most three toolsets that gather evidence → their share of the greatest, 1 for the first."""
    enough = [(t, e) for t, e in gathered.items() if e >= GATHERS * best and e > 0]
    enough.sort(key=lambda item: (-item[1], item[0]))
    return {t: e / enough[0][1] for t, e in enough[:MAX_TOOLSETS]}


def _supplied(corpus: Corpus, toolset: int, found: Mapping[int, float], weight: float) -> dict[int, float]:
    table = corpus.supplies[toolset]
    if table is None or weight <= 0:
        return {}
    rows = corpus.members[toolset].tolist()
    takers = np.array([found.get(row, 0.0) for row in rows], np.float32)
    given = weight * (takers[:, None] * table).max(axis=0)
    return {row: float(amount) for row, amount in zip(rows, given, strict=True) if amount > 0 and row in found}
