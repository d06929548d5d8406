"""Which tool of a toolset supplies what another one takes, pure.

A tool that takes "the zipcode of the city" is often preceded by `get_zipcode`: a parameter's words in a
sibling's name. Users name the goal, seldom the step before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from toolbelay.ranking.documents import Document
from toolbelay.ranking.stop_words import STOP_WORDS

MAX_TOOLS = 64  # of one toolset: the table is its square

Supply = npt.NDArray[np.float32]


def supply(members: Sequence[Document], shared: frozenset[str], information: Callable[[str], float]) -> Supply | None:
    """Row a, column b: the share (0 to 1) of a's parameter words, by information, that b's name has.

    `None` where no tool supplies another, or the toolset is too large.
    """
    if not 1 < len(members) <= MAX_TOOLS:
        return None
    table = np.zeros((len(members), len(members)), np.float32)
    named: dict[str, list[int]] = {}
    for b, giver in enumerate(members):
        for word in set(giver.name):
            named.setdefault(word, []).append(b)
    for a, taker in enumerate(members):
        wanted = {w: information(w) for w in sorted(set(taker.parameters) - STOP_WORDS - shared)}
        total = sum(wanted.values())
        for word, weight in wanted.items() if total > 0 else ():
            table[a, named.get(word, [])] += weight / total
    np.fill_diagonal(table, 0)
    return table if table.any() else None
