"""The best eligible rows of a strategy's scores. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from toolbelay.ranking.corpus import Rows
from toolbelay.ranking.lexical import Scores
from toolbelay.ranking.priors import Hits
from toolbelay.ranking.strategies.base import Relevance

FIRST_LOOK = 2  # times what is wanted: most callers may see most tools


def best_hits(relevance: Relevance, eligible: Callable[[int], bool], most: int) -> Hits:
    """At most `most` rows that match and are eligible, best first, ties by row (tool id)."""
    finite = np.where(np.isfinite(relevance.scores), relevance.scores, np.float32(0))
    scores = np.where(relevance.matches, finite, np.float32(0))
    found: list[int] = []
    seen = 0
    for ordered in (_best(scores, FIRST_LOOK * most), None):
        rows = _best(scores, len(scores)) if ordered is None else ordered
        for row in rows[seen:].tolist():
            if eligible(row):
                found.append(row)
                if len(found) == most:
                    return Hits(np.array(found, np.intp), finite)
        seen = len(rows)
    return Hits(np.array(found, np.intp), finite)


def _best(scores: Scores, most: int) -> Rows:
    """The rows of the greatest positive scores, at least `most` where there are, all that tie with the last."""
    if most < len(scores):
        least = np.partition(scores, len(scores) - most)[len(scores) - most]
        rows = np.flatnonzero((scores >= least) & (scores > 0))
    else:
        rows = np.flatnonzero(scores > 0)
    return rows[np.lexsort((rows, -scores[rows]))]
