"""The port of a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolbelay.ranking.corpus import Corpus, Rows
from toolbelay.ranking.lexical import Scores
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import QueryWords
from toolbelay.ranking.vectors import Vectors


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Vectors of a corpus's rows; all zero where a row has none yet."""

    model: str
    vectors: Vectors
    complete: bool


@dataclass(frozen=True, slots=True)
class Searchable:
    """What a strategy searches. `vectors` is `None` until the first have been computed."""

    corpus: Corpus
    vectors: VectorRows | None


class Relevance(Struct, frozen=True, gc=False):
    """Of each row, 0 to 1. `matches`: rows that have to do with the text at all; the others never rank."""

    scores: Scores
    matches: npt.NDArray[np.bool_]


class Strategy(Protocol):
    """Scores texts. Raises any exception where it cannot; the caller falls to the next strategy."""

    @property
    def name(self) -> str: ...

    async def relevance(
        self,
        searchable: Searchable,
        texts: Sequence[QueryWords],
        options: RankingOptions,
        within: Rows | None = None,
    ) -> list[Relevance]:
        """One result per text, each over all rows of the corpus, or over the rows `within` (ascending)."""
