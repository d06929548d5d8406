"""The port of a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolbelay.ranking.corpus import Corpus
from toolbelay.ranking.lexical import Scores
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import QueryWords
from toolbelay.ranking.stored_rows import StoredRows
from toolbelay.ranking.vectors import Vectors


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Vectors of a corpus's rows; all zero where a row has none yet."""

    model: str
    vectors: Vectors
    complete: bool


@dataclass(frozen=True, slots=True)
class Searchable:
    """What a strategy searches. `vectors` is `None` until the first have been computed.

    `stored` is a memory of both; the rest never changes.
    """

    corpus: Corpus
    vectors: VectorRows | None
    stored: StoredRows = field(init=False)

    def __post_init__(self) -> None:
        vectors = None if self.vectors is None else self.vectors.vectors
        object.__setattr__(self, "stored", StoredRows(self.corpus.lexical, vectors))


class Relevance(Struct, frozen=True, gc=False):
    """Of each row, 0 to 1. `matches`: rows that have to do with the text at all; the others never rank."""

    scores: Scores
    matches: npt.NDArray[np.bool_]


class Strategy(Protocol):
    """Scores texts. Raises any exception where it cannot; the caller falls to the next strategy."""

    @property
    def name(self) -> str: ...

    async def relevance(self, searchable: Searchable, text: QueryWords, options: RankingOptions) -> Relevance:
        """Over all rows of the corpus."""

    async def relevance_of(
        self, searchable: Searchable, text: QueryWords, options: RankingOptions, rows: Sequence[int]
    ) -> list[float]:
        """Of a few rows, the same but for rounding; 0 where one does not match."""
