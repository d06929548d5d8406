"""BM25 over folded words, with weights that bm25s computes and numpy adds up.

bm25s gives every (word, tool) pair its finished weight once, so that a query is a handful of array
additions. Its own query side is not used: it takes no weights for words (synonyms need them), returns
score-0 documents for unknown words and fails on an empty corpus.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import bm25s
import numpy as np
import numpy.typing as npt

from toolbelay.ranking.documents import NAME_REPEATS, Document

# Textbook values: they were not tuned, and moved no figure of the benchmark by more than a point.
K1 = 1.2
B = 0.75

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LexicalIndex:
    """The words of a catalog. Row i of every array is tool i of the catalog given."""

    vocabulary: Mapping[str, int]
    weights: Scores
    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    idf: Scores  # by word number; > 0 also for a word that is in every tool
    size: int

    def scores(self, terms: Mapping[str, float]) -> Scores:
        """The share of the query's information that each tool covers, 0 to 1.

        `terms` gives each query word's weight. A score is the tool's BM25 sum over the greatest sum any
        tool could reach, each word weighing its IDF and an unknown word as much as a word of one tool. So
        it does not grow with the catalog, nor with the query.
        """
        total = np.zeros(self.size, np.float32)
        attainable = 0.0
        unknown = unknown_weight(self.size)
        for word, weight in terms.items():
            number = self.vocabulary.get(word)
            if number is None:
                attainable += weight * unknown
                continue
            start, end = self.starts[number], self.starts[number + 1]
            total[self.rows[start:end]] += np.float32(weight) * self.weights[start:end]
            attainable += weight * float(self.idf[number])
        return total / np.float32(attainable) if attainable > 0 else total


def unknown_weight(size: int) -> float:
    """The IDF of a word that one tool of `size` has."""
    return math.log(1 + (max(size, 1) - 0.5) / 1.5)


def lexical_index(documents: Sequence[Document]) -> LexicalIndex:
    """Index documents. Pure, and slow enough (0.1 ms a tool) to belong off the event loop."""
    vocabulary: dict[str, int] = {}
    rows = [[vocabulary.setdefault(word, len(vocabulary)) for word in _indexed(d)] for d in documents]
    if not vocabulary:
        nothing = np.zeros(0, np.float32)
        return LexicalIndex({}, nothing, np.zeros(0, np.int32), np.zeros(1, np.int64), nothing, len(documents))
    model = bm25s.BM25(k1=K1, b=B, method="lucene", idf_method="lucene", csc_backend="numpy")
    built = model.build_index_from_ids(list(range(len(vocabulary))), rows, show_progress=False)
    starts = np.asarray(built["indptr"], np.int64)
    holders = np.diff(starts)
    return LexicalIndex(
        vocabulary=vocabulary,
        weights=np.asarray(built["data"], np.float32),
        rows=np.asarray(built["indices"], np.int32),
        starts=starts,
        idf=np.log(1 + (len(rows) - holders + 0.5) / (holders + 0.5)).astype(np.float32),
        size=len(rows),
    )


def _indexed(document: Document) -> tuple[str, ...]:
    return document.name * NAME_REPEATS + document.toolset_words + document.description + document.parameters
