"""The sum of a text's word pieces, word by word, with a memory of words.

Words come again, texts hardly ever. A text's sum is that of its words' sums, in their order, whether a word was
remembered or not: it depends on nothing but the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from toolbelay.memo import Tally
from toolbelay.ranking.static_table import encoded, is_number, split_words, static_table

Vectors = npt.NDArray[np.float32]

MAX_WORDS = 4_096  # remembered: 1 KB each
MAX_LENGTH = 64  # characters of a word that is remembered
_DIGITS = 11  # rows for a space and ten digits: numbers hardly come again, so they are summed digit by digit
_DIGIT_ROWS = bytes.maketrans(b"0123456789", bytes(range(1, _DIGITS)))

WORDS = Tally()  # for metrics


class WordVectors:
    """For one thread."""

    __slots__ = ("__weakref__", "_capacity", "_row_of", "_sums")

    def __init__(self, capacity: int = MAX_WORDS) -> None:
        digits = _digit_sums()
        self._capacity = capacity
        self._row_of: dict[str, int] = {}
        # Memory is taken as rows are written.
        self._sums: Vectors = np.empty((_DIGITS + capacity, digits.shape[1]), np.float32)
        self._sums[:_DIGITS] = digits

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
        rows, unknown = self._read(words)
        WORDS.hits += len(words) - len(unknown)
        if unknown:
            WORDS.misses += len(unknown)
            sums = self._learn(words, set(unknown))
        else:
            sums = self._sums.take(rows, axis=0)
        total: Vectors = np.add.reduce(sums, axis=0)
        return total

    def _read(self, words: Sequence[str]) -> tuple[list[int], list[str]]:
        """The rows of the words, in their order, and those without one."""
        numbers: list[int] = []
        unknown: list[str] = []
        for word, row in zip(words, map(self._row_of.get, words), strict=True):
            if row is not None:
                numbers.append(row)
            elif is_number(word):
                numbers.append(0)
                numbers.extend(word.encode().translate(_DIGIT_ROWS))
            else:
                unknown.append(word)
        return numbers, unknown

    def _learn(self, words: Sequence[str], unknown: set[str]) -> Vectors:
        """The sums of the words, of which some are `unknown`; they are remembered unless they are too many or too long."""
        if len(self._row_of) + len(unknown) > self._capacity:
            self._row_of.clear()
            unknown = {word for word in words if not is_number(word)}
        if len(unknown) > self._capacity or any(len(word) > MAX_LENGTH for word in unknown):
            return self._not_remembered(words)
        for word in unknown:
            row = _DIGITS + len(self._row_of)
            self._sums[row] = _sum(word)
            self._row_of[word] = row
        return self._sums.take(self._read(words)[0], axis=0)

    def _not_remembered(self, words: Sequence[str]) -> Vectors:
        return np.concatenate(
            [self._sums.take(self._read([word])[0], axis=0) if is_number(word) else _sum(word)[None] for word in words]
        )


def _sum(word: str) -> Vectors:
    found: Vectors = np.add.reduce(static_table().take(encoded(word), axis=0), axis=0, dtype=np.float32)
    return found


@lru_cache(maxsize=1)
def _digit_sums() -> Vectors:
    pieces = [encoded("0")[0], *(encoded(digit)[1] for digit in "0123456789")]
    return static_table()[pieces].astype(np.float32)
