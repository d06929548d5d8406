"""Which rows of a corpus a caller may see, asked for once each and remembered by row."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt

from toolbelay.ranking.corpus import Corpus, Rows

_UNKNOWN, _NO, _YES = 0, 1, 2


class EligibleRows:
    """The eligibility of a query's caller by row of `corpus`.

    `eligible`: by tool id. `memory`: what holds for as long as `eligible` answers the same (`RankQuery.memory`); a
    byte for each row is left in it, so that the next query with this memory asks nothing twice.
    """

    __slots__ = ("_by_row", "_documents", "_eligible", "_known")

    def __init__(
        self, corpus: Corpus, eligible: Callable[[str], bool], memory: MutableMapping[str, Any] | None = None
    ) -> None:
        self._documents = corpus.documents
        self._eligible = eligible
        held = None if memory is None else memory.get("rows")
        if held is None or held[0] is not corpus:
            by_row = bytearray(len(corpus))
            held = (corpus, by_row, np.frombuffer(by_row, np.uint8))
            if memory is not None:
                memory["rows"] = held
        # One memory, seen twice: a byte out of an array takes four times as long.
        self._by_row: bytearray = held[1]
        self._known: npt.NDArray[np.uint8] = held[2]

    def __call__(self, row: int) -> bool:
        """Whether one row is eligible."""
        known = self._by_row[row]
        return known == _YES if known else self._ask(row)

    def of(self, rows: Rows) -> Rows:
        """The eligible ones among `rows`, in their order."""
        known = self._known[rows]
        unknown = rows[known == _UNKNOWN]
        if len(unknown):
            for row in unknown.tolist():
                self._ask(row)
            known = self._known[rows]
        found: Rows = rows[known == _YES]
        return found

    def _ask(self, row: int) -> bool:
        eligible = self._eligible(self._documents[row].tool_id)
        self._by_row[row] = _YES if eligible else _NO
        return eligible
