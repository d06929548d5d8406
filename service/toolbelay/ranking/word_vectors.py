"""The sum of a text's word pieces, word by word, with a memory of words.

Words come again, texts hardly ever. A text's sum is that of its words' sums, in their order, whether a word was
remembered or not: it depends on nothing but the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from toolbelay.memo import Tally
from toolbelay.ranking.static_table import encoded, is_number, split_words, static_table

Vectors = npt.NDArray[np.float32]

MAX_WORDS = 4_096  # remembered: 1 KB each
MAX_LENGTH = 64  # characters of a word that is remembered
_DIGITS = 11  # rows for a space and ten digits: numbers hardly come again, so they are summed digit by digit
_ZERO = ord("0") - 1  # the digit 0 is row 1

WORDS = Tally()  # for metrics


class WordVectors:
    """For one thread."""

    __slots__ = ("__weakref__", "_capacity", "_row_of", "_sums")

    def __init__(self, capacity: int = MAX_WORDS) -> None:
        table = static_table()
        self._capacity = capacity
        self._row_of: dict[str, int] = {}
        # Memory is taken as rows are written.
        self._sums: Vectors = np.empty((_DIGITS + capacity, table.shape[1]), np.float32)
        self._sums[:_DIGITS] = table[[encoded("0")[0], *(encoded(digit)[1] for digit in "0123456789")]]

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def length(self) -> int:
        """Numbers of a vector."""
        return int(self._sums.shape[1])

    def sum_of(self, text: str) -> Vectors:
        """Of a text without lone surrogates; zeros of an empty one."""
        words = split_words(text)
        if not words:
            return np.zeros(self.length, np.float32)
        rows = list(map(self._row_of.get, words))
        WORDS.hits += len(words)
        numbers = self._learnt(words, rows) if None in rows else rows
        sums = self._rows(words) if numbers is None else self._sums.take(numbers, axis=0)  # type: ignore[arg-type]
        total: Vectors = np.add.reduce(sums, axis=0)
        return total

    def _learnt(self, words: Sequence[str], rows: Sequence[int | None]) -> list[int] | None:
        """The rows of words, with those that were unknown; `None` where they are too many or too long to remember."""
        fresh = {word for word, row in zip(words, rows, strict=True) if row is None and not is_number(word)}
        WORDS.misses += len(fresh)
        WORDS.hits -= len(fresh)
        if len(self._row_of) + len(fresh) > self._capacity:
            self._row_of.clear()
            fresh = {word for word in words if not is_number(word)}
        if len(fresh) > self._capacity or any(len(word) > MAX_LENGTH for word in fresh):
            return None
        row_of = self._row_of
        for word in fresh:
            row = _DIGITS + len(row_of)
            self._sums[row] = _sum(word)
            row_of[word] = row
        found: list[int] = []
        for word in words:
            number = row_of.get(word)
            if number is None:
                found.append(0)
                found.extend([ord(digit) - _ZERO for digit in word])
            else:
                found.append(number)
        return found

    def _rows(self, words: Sequence[str]) -> Vectors:
        digits = self._sums
        parts = [
            digits[[0, *(ord(digit) - _ZERO for digit in word)]] if is_number(word) else _sum(word)[None]
            for word in words
        ]
        return np.concatenate(parts)


def _sum(word: str) -> Vectors:
    found: Vectors = np.add.reduce(static_table().take(encoded(word), axis=0), axis=0, dtype=np.float32)
    return found
