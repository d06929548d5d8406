"""BM25 over folded words, with weights that bm25s's formulas give and numpy adds up.

Every (word, tool) pair has its finished weight (`postings.py`), so that a query is a handful of array
additions. bm25s's own query side is not used: it takes no weights for words (synonyms need them), returns
score-0 documents for unknown words and fails on an empty corpus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolbelay.ranking.postings import Postings
from toolbelay.ranking.query import QueryWords

SMALL = 8_192  # tools; up to here scoring all costs less than picking some out of each word's rows

Scores = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class LexicalIndex:
    """The words of a catalog.

    `idf` of a word is > 0 also where every tool has it; `distinctions` are IDFs among toolsets, 1 for a word of a
    single toolset.
    """

    postings: Postings

    @property
    def size(self) -> int:
        """Tools."""
        return len(self.postings.counted)

    def scores(self, query: QueryWords, within: Rows | None = None) -> Scores:
        """The share of the query's information that each tool covers, 0 to 1; with `within`, of those rows (ascending).

        A score is the tool's BM25 sum over the greatest sum any tool could reach, each word weighing its
        IDF and an unknown word as much as a word of one tool. So it does not grow with the catalog, nor
        with the query. Of a word and its synonyms the best counts, once.
        """
        if within is not None and self.size <= SMALL:
            return self.scores(query)[within]
        size = self.size if within is None else len(within)
        attainable = 0.0
        found: list[npt.NDArray[np.int32]] = []
        added: list[Scores] = []
        for word, weight in query.weights.items():
            number = self.postings.vocabulary.get(word)
            attainable += weight * self.information(word)
            if number is not None and word not in query.alternatives:
                rows, weights = self._postings(number, within)
                found.append(rows)
                added.append(weights if weight == 1.0 else np.float32(weight) * weights)
        total = np.zeros(size, np.float32)
        if found:
            total[:] = np.bincount(np.concatenate(found), np.concatenate(added), size)
        for word, alternatives in query.alternatives.items():
            # A synonym stands for the word, so it says no more than the word does.
            most = self.information(word)
            stand_ins = [(w, weight * min(1.0, most / self.information(w))) for w, weight in alternatives.items()]
            self._add_best(total, [(word, query.weights.get(word, 0.0)), *stand_ins], within)
        return total / np.float32(attainable) if attainable > 0 else total

    def information(self, word: str) -> float:
        """The word's IDF; an unknown word's is that of a word of one tool."""
        number = self.postings.vocabulary.get(word)
        return math.log(1 + (max(self.size, 1) - 0.5) / 1.5) if number is None else float(self.postings.idf[number])

    def distinction(self, word: str) -> float:
        """How well the word tells toolsets apart, 0 to 1; an unknown word as well as one of a single toolset."""
        number = self.postings.vocabulary.get(word)
        return 1.0 if number is None else float(self.postings.distinctions[number])

    def answers(self, query: QueryWords, word: str) -> tuple[npt.NDArray[np.int32], Scores]:
        """The rows that have a word of the query, or a synonym of it, and how much: at most its distinction."""
        alternatives = query.alternatives.get(word, {})
        found = []
        for way, weight in ((word, query.weights[word]), *alternatives.items()):
            number = self.postings.vocabulary.get(way)
            if number is not None:
                rows, weights = self._postings(number)
                # Of the finished weight, the part that is not the word's IDF.
                share = weight * min(self.distinction(word), self.distinction(way)) / self.information(way)
                found.append((rows, weights * np.float32(share)))
        if not found:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        if len(found) == 1:
            return found[0]
        best = np.zeros(self.size, np.float32)
        for rows, weights in found:
            best[rows] = np.maximum(best[rows], weights)
        rows = np.flatnonzero(best).astype(np.int32)
        return rows, best[rows]

    def _add_best(self, total: Scores, words: list[tuple[str, float]], within: Rows | None) -> None:
        known = [
            (self.postings.vocabulary[word], weight)
            for word, weight in words
            if weight > 0 and word in self.postings.vocabulary
        ]
        if not known:
            return
        best = np.zeros(len(total), np.float32)
        for number, weight in known:
            rows, weights = self._postings(number, within)
            best[rows] = np.maximum(best[rows], np.float32(weight) * weights)
        total += best

    def _postings(self, number: int, within: Rows | None = None) -> tuple[npt.NDArray[np.int32], Scores]:
        """The rows that have a word, ascending, and their weights; with `within`, the places of those rows in it."""
        postings = self.postings
        span = slice(postings.starts[number], postings.starts[number + 1])
        rows, weights = postings.rows[span], postings.weights[span]
        if within is None or not len(rows):
            return rows, weights
        at = np.searchsorted(rows, within)
        at[at == len(rows)] = 0
        places = (rows[at] == within).nonzero()[0]
        return places.astype(np.int32), weights[at[places]]
