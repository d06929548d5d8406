"""What a session that stays as it is gets scored by: the words and vectors of the tools it holds.

Sessions are asked about the same few tools turn after turn, and many sessions hold the same ones. Their words are kept
as dicts and their vectors side by side: for a handful of rows that is a tenth of the work of looking through the catalog.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolbelay.memo import Tally
from toolbelay.ranking.lexical import LexicalIndex, ToolWords
from toolbelay.ranking.word_vectors import Vectors

MAX_ROWS = 2_048  # of one catalog: about 3 KB each

STORED_ROWS = Tally()  # for metrics


class StoredRows:
    """A memory of one catalog's rows, for the event loop's thread. What it answers does not depend on what it holds."""

    __slots__ = ("__weakref__", "_capacity", "_lexical", "_side_by_side", "_slots", "_vectors", "_words")

    def __init__(self, lexical: LexicalIndex, vectors: Vectors | None, capacity: int | None = None) -> None:
        self._lexical = lexical
        self._vectors = vectors
        self._capacity = min(MAX_ROWS if capacity is None else capacity, lexical.size)
        self._words: dict[int, ToolWords] = {}
        self._slots: dict[int, int] = {}  # row → its place in `_side_by_side`
        self._side_by_side: Vectors | None = None
        STORED_ROWS.count(self)

    def __len__(self) -> int:
        return max(len(self._words), len(self._slots))

    def words(self, rows: Sequence[int]) -> list[ToolWords]:
        """Of each of some rows."""
        found = list(map(self._words.get, rows))
        if None not in found:
            STORED_ROWS.hits += len(rows)
            return found  # type: ignore[return-value]  # none is None
        fresh = {row: self._lexical.words_of(row) for row, words in zip(rows, found, strict=True) if words is None}
        STORED_ROWS.misses += len(fresh)
        STORED_ROWS.hits += len(rows) - len(fresh)
        answer = [fresh[row] if words is None else words for row, words in zip(rows, found, strict=True)]
        if len(self._words) + len(fresh) > self._capacity:
            self._words.clear()
        if len(fresh) <= self._capacity:
            self._words.update(fresh)
        return answer

    def vectors(self, rows: Sequence[int]) -> Vectors:
        """One row for each of some rows. Only where the catalog has vectors."""
        slots = list(map(self._slots.get, rows))
        table = self._side_by_side
        if table is not None and None not in slots:
            return table.take(slots, axis=0)  # type: ignore[arg-type]  # none is None
        return self._vectors_with_fresh(rows)

    def _vectors_with_fresh(self, rows: Sequence[int]) -> Vectors:
        if self._vectors is None:
            raise LookupError("the catalog has no vectors")
        if self._side_by_side is None:
            # Memory is taken as rows are written.
            self._side_by_side = np.empty((self._capacity, self._vectors.shape[1]), np.float32)
        found = np.ascontiguousarray(self._vectors[list(rows)])
        fresh = {row: place for place, row in enumerate(rows) if row not in self._slots}
        if len(self._slots) + len(fresh) > self._capacity:
            self._slots.clear()
        if len(fresh) <= self._capacity:
            first = len(self._slots)
            self._side_by_side[first : first + len(fresh)] = found[list(fresh.values())]
            self._slots.update(zip(fresh, range(first, first + len(fresh)), strict=True))
        return found
