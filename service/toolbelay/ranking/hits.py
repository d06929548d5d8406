"""The best eligible rows of a strategy's scores. Pure."""

from __future__ import annotations

import numpy as np

from toolbelay.ranking.corpus import Rows
from toolbelay.ranking.eligible import EligibleRows
from toolbelay.ranking.lexical import Scores
from toolbelay.ranking.priors import Hits
from toolbelay.ranking.strategies.base import Relevance

FIRST_LOOK = 2  # times what is wanted: most callers may see most tools


def best_hits(relevance: Relevance, eligible: EligibleRows, most: int) -> Hits:
    """At most `most` eligible rows with a score, best first, ties by row (tool id).

    Rows that do not match are among them, as evidence of their toolset, unless none matches.
    """
    scores = relevance.scores
    if not np.isfinite(scores).all():
        scores = np.where(np.isfinite(scores), scores, np.float32(0))
    hits = _eligible(_best(scores, FIRST_LOOK * most), eligible, most)
    if len(hits) < most and FIRST_LOOK * most < len(scores):
        hits = _eligible(_best(scores, len(scores)), eligible, most)
    if not relevance.matches[hits].any():
        hits = hits[:0]
    return Hits(hits, scores, relevance.matches)


def _eligible(rows: Rows, eligible: EligibleRows, most: int) -> Rows:
    """The first `most` eligible rows. Asks about few more than it takes to find them."""
    found: list[Rows] = []
    at, missing, size = 0, most, most
    while missing > 0 and at < len(rows):
        some = eligible.of(rows[at : at + size])[:missing]
        found.append(some)
        missing -= len(some)
        at, size = at + size, size * 2
    return np.concatenate(found) if found else rows[:0]


def _best(scores: Scores, most: int) -> Rows:
    """The rows of the greatest positive scores, at least `most` where there are, all that tie with the last."""
    least = np.float32(0)
    if most < len(scores):
        least = np.partition(scores, len(scores) - most)[len(scores) - most]
    rows = (scores >= least if least > 0 else scores > 0).nonzero()[0]
    # Positive floats are in the order of their bits. Above a row's number they make keys that need no stable sort,
    # which is slow.
    keys = -scores[rows].view(np.int32).astype(np.int64)
    keys <<= 32
    keys |= rows
    keys.sort()
    return keys & np.int64(0xFFFFFFFF)
