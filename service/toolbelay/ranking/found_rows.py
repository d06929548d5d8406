"""Rows that have a word or one of its synonyms, remembered: the words that have synonyms are those that come most."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from toolbelay.memo import Tally

MAX_ROWS = 262_144  # of all entries of one catalog: 8 bytes each

FoundRows = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]  # ascending, each once; what each has

FOUND_ROWS = Tally()  # for metrics
NO_ROWS: FoundRows = np.zeros(0, np.int32), np.zeros(0, np.float32)


class FoundMemo:
    """What was found in one catalog, by all that it was found by. Nobody changes what is remembered."""

    __slots__ = ("__weakref__", "_capacity", "_entries", "_rows")

    def __init__(self, capacity: int = MAX_ROWS) -> None:
        self._capacity = capacity
        self._entries: dict[Hashable, FoundRows] = {}
        self._rows = 0
        FOUND_ROWS.count(self)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> FoundRows | None:
        found = self._entries.get(key)
        if found is None:
            FOUND_ROWS.misses += 1
        else:
            FOUND_ROWS.hits += 1
        return found

    def put(self, key: Hashable, found: FoundRows) -> None:
        size = len(found[0]) + 64  # an entry is something of itself
        if size > self._capacity // 4:
            return
        if self._rows + size > self._capacity:
            self._entries.clear()
            self._rows = 0
        self._entries[key] = found
        self._rows += size


def greatest(found: Sequence[FoundRows], size: int) -> FoundRows:
    """Of each of `size` rows the greatest that was found for it, as far as it is above 0."""
    if len(found) == 1:
        return found[0]
    if not found:
        return NO_ROWS
    best = np.zeros(size, np.float32)
    (rows, weights), *others = found
    best[rows] = weights
    for rows, weights in others:
        best[rows] = np.maximum(best[rows], weights)
    rows = best.nonzero()[0].astype(np.int32)
    return rows, best[rows]


def summed(found: Sequence[FoundRows], size: int) -> npt.NDArray[np.float32]:
    """Of each of `size` rows the sum of what was found for it."""
    if not found:
        return np.zeros(size, np.float32)
    rows = np.concatenate([rows for rows, _ in found])
    return np.bincount(rows, np.concatenate([weights for _, weights in found]), size).astype(np.float32)
