"""What the session and its toolsets add to a tool's own relevance. Pure arithmetic on hits.

A session's next turns need the tools beside the one asked for: the log-in before the post, the list before
the delete. Four priors say which:

- *evidence*: toolsets that gather many hits. The k-th best hit of a toolset counts 0.85 to the power of k, so that
  breadth counts and size does not.
- *called*: toolsets whose tools the session called.
- *supply*: tools that supply a parameter of a hit (`supply.py`).
- *news*: tools with words of the text that no tool of the session has (`novelty.py`).

Only eligible tools are ever given to this module: a tool that the caller may not see moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolbelay.ranking.corpus import Corpus, Rows
from toolbelay.ranking.lexical import Scores
from toolbelay.ranking.options import RankingOptions

DECAY = 0.85
# A toolset gathers evidence when its hits together reach this many times the best single hit.
GATHERS = 1.5
# Beyond this size, a toolset has to show evidence in proportion to its tools.
ORDINARY_SIZE = 64
OVERSIZE = 3.0
NAMED = 1.4  # "… on Slack": what users call by its name they mean
MAX_TOOLSETS = 3  # that may add tools without a hit of their own


Values = npt.NDArray[np.float64]


class Hits(Struct, frozen=True, gc=False):
    """The best eligible tools of a text, best first. `relevance` and `matches` are over all rows of the corpus."""

    rows: Rows
    relevance: Scores
    matches: npt.NDArray[np.bool_]

    def matching(self) -> tuple[Rows, Values]:
        """The hits that match, best first, and their relevance."""
        rows = self.rows[self.matches[self.rows]]
        return rows, self.relevance[rows].astype(np.float64)

    @property
    def best(self) -> float:
        return float(self.relevance[self.rows[0]]) if len(self.rows) else 0.0


def evidence(corpus: Corpus, hits: Hits, said: frozenset[str]) -> dict[int, float]:
    """Toolset number → its evidence. `said`: the words of the text; a toolset whose name is said gets more."""
    gathered: dict[int, float] = {}
    parts: dict[int, float] = {}
    toolsets = corpus.toolset_of[hits.rows].tolist()
    for toolset, relevance in zip(toolsets, hits.relevance[hits.rows].tolist(), strict=True):
        part = parts.get(toolset)
        if part is None:
            gathered[toolset], parts[toolset] = relevance, DECAY
        else:
            gathered[toolset] += relevance * part
            parts[toolset] = part * DECAY
    for toolset in gathered if corpus.largest > ORDINARY_SIZE else ():
        size = len(corpus.members[toolset])
        if size > ORDINARY_SIZE:
            gathered[toolset] /= 1 + OVERSIZE * math.log2(size / ORDINARY_SIZE)
    for word in said:
        for toolset, name in corpus.by_name.get(word, ()):
            if toolset in gathered and said.issuperset(name):
                gathered[toolset] *= NAMED
    return gathered


def scored(
    corpus: Corpus,
    hits: Hits,
    share: Mapping[int, float],
    members: Mapping[int, Rows],
    called: Iterable[int],
    new_words: Scores | None,
    options: RankingOptions,
) -> tuple[Rows, Values]:
    """The hits that match and the `members` (eligible rows) of the leading toolsets, and a score for each.

    `share`: the leading toolsets (`leading`). `called`: toolsets that the session called. `new_words`: by row, words
    of the text that no tool of the session has.

    The score is 1 - (1 - relevance) x exp(-priors x the best hit's relevance): within 0 to 1 on every catalog, and
    the relevance itself where no prior speaks. Until the session has called a tool, no prior outdoes the
    best hit.
    """
    called = frozenset(called)
    rows = _with_members(hits, [members[toolset] for toolset in share if toolset in members])
    relevance = hits.relevance[rows].astype(np.float64)
    toolsets = corpus.toolset_of[rows]
    prior = np.zeros(len(rows))
    best = hits.best
    for toolset, part in share.items():
        there = (toolsets == toolset).nonzero()[0]
        of_toolset = best * options.toolset_weight * part
        prior[there] = of_toolset + options.supply_weight * _supplied(corpus, toolset, rows[there], relevance[there])
    for toolset in called:
        prior[toolsets == toolset] += best * options.called_weight
    if new_words is not None:
        prior += best * options.news_weight * new_words[rows]
    values: Values = 1 - (1 - np.minimum(relevance, 1.0)) * np.exp(-prior)
    if len(rows) and not called:
        values[0] = math.nextafter(float(values.max()), math.inf)
    return rows, values


def _with_members(hits: Hits, members: Sequence[Rows]) -> Rows:
    """The hits that match, best first, then the members that have any relevance."""
    rows = hits.rows[hits.matches[hits.rows]]
    if not members:
        return rows
    fresh = hits.relevance > 0
    fresh[rows] = False
    others = np.concatenate(members)
    return np.concatenate([rows, others[fresh[others]]])


def _supplied(corpus: Corpus, toolset: int, rows: Rows, relevance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of each row (of one toolset): the greatest relevance of a tool that it supplies, by how much it does."""
    table = corpus.supply(toolset)
    if table is None:
        return np.zeros(len(rows))
    places = corpus.place_of[rows]
    among_all = np.zeros((len(table), 1), np.float32)
    among_all[places, 0] = relevance
    # All pairs: picking those of the rows out of the table takes longer.
    given: npt.NDArray[np.float64] = (among_all * table).max(axis=0)[places].astype(np.float64)
    return given


def leading(gathered: Mapping[int, float], best: float) -> dict[int, float]:
    """The at most three toolsets that gather evidence → their share of the greatest, 1 for the first."""
    least = GATHERS * best
    enough = [(t, e) for t, e in gathered.items() if e >= least and e > 0]
    enough.sort(key=lambda item: (-item[1], item[0]))
    return {t: e / enough[0][1] for t, e in enough[:MAX_TOOLSETS]}
