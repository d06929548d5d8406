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
    """At most `most` eligible rows with a score, best first, ties by row (tool id).

    Rows that do not match are among them, as evidence of their toolset, unless none matches.
    """
    scores = np.where(np.isfinite(relevance.scores), relevance.scores, np.float32(0))
    found: list[int] = []
    seen = 0
    for look in (FIRST_LOOK * most, len(scores)):
        rows = _best(scores, look)
        for row in rows[seen:].tolist():
            if eligible(row):
                found.append(row)
                if len(found) >= most:
                    break
        seen = len(rows)
        if len(found) == most:
            break
    hits = np.array(found, np.intp)
    if not relevance.matches[hits].any():
        hits = hits[:0]
    return Hits(hits, scores, relevance.matches)


def _best(scores: Scores, most: int) -> Rows:
    """The rows of the greatest positive scores, at least `most` where there are, all that tie with the last."""
    if most < len(scores):
        least = np.partition(scores, len(scores) - most)[len(scores) - most]
        rows = np.flatnonzero((scores >= least) & (scores > 0))
    else:
        rows = np.flatnonzero(scores > 0)
    return rows[np.lexsort((rows, -scores[rows]))]
