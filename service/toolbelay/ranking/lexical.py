"""BM25 over folded words, with weights that bm25s's formulas give and numpy adds up.

Every (word, tool) pair has its finished weight (`postings.py`), so that a query is a handful of array
additions. bm25s's own query side is not used: it takes no weights for words (synonyms need them), returns
score-0 documents for unknown words and fails on an empty corpus.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from toolbelay.ranking.found_rows import NO_ROWS, FoundMemo, FoundRows, greatest, summed
from toolbelay.ranking.postings import Postings
from toolbelay.ranking.query import QueryWords

Scores = npt.NDArray[np.float32]
ToolWords = Mapping[str, float]  # word → its weight in one tool

_Ways = Sequence[tuple[str, float]]  # words and what each counts


class LexicalIndex:
    """The words of a catalog.

    `idf` of a word is > 0 also where every tool has it; `distinctions` are IDFs among toolsets, 1 for a word of a
    single toolset.
    """

    __slots__ = ("_distinctions", "_idf", "_memo", "_starts", "_unknown", "_vocabulary", "postings", "size")

    def __init__(self, postings: Postings) -> None:
        self.postings = postings
        self.size = len(postings.counted)  # tools
        self._vocabulary = postings.vocabulary
        self._memo = FoundMemo()  # for the event loop's thread
        # A number out of an array takes three times as long as out of a view of its memory.
        self._idf = postings.idf.data
        self._distinctions = postings.distinctions.data
        self._starts = postings.starts.data
        self._unknown = math.log(1 + (max(self.size, 1) - 0.5) / 1.5)

    def scores(self, query: QueryWords) -> Scores:
        """The share of the query's information that each tool covers, 0 to 1.

        A score is the tool's BM25 sum over the greatest sum any tool could reach, each word weighing its
        IDF and an unknown word as much as a word of one tool. So it does not grow with the catalog, nor
        with the query. Of a word and its synonyms the best counts, once.
        """
        attainable, plain = self._asked(query)
        weights = self.postings.weights
        found = [self._rows(self._vocabulary[word], weights, weight) for word, weight in plain]
        found += [self._best_of(query, word) for word in query.alternatives]
        total = summed(found, self.size)
        if attainable > 0:
            total /= np.float32(attainable)
        return total

    def shares(self, query: QueryWords, tools: Sequence[ToolWords]) -> list[float]:
        """As `scores`, of a few tools by their words (`words_of`)."""
        attainable, plain = self._asked(query)
        groups = [self._ways(query, word) for word in query.alternatives]
        if attainable <= 0:
            return [0.0] * len(tools)
        asked = [word for word, _ in chain(plain, *groups)]
        return [0.0 if held.keys().isdisjoint(asked) else _sum_of(held, plain, groups) / attainable for held in tools]

    def words_of(self, row: int) -> ToolWords:
        """The words of one tool."""
        postings = self.postings
        first, numbers = int(postings.firsts[row]), postings.counted[row].words
        weights = postings.of_tools[first : first + len(numbers)]
        return dict(zip(map(postings.names.__getitem__, numbers.tolist()), weights.tolist(), strict=True))

    def information(self, word: str) -> float:
        """The word's IDF; an unknown word's is that of a word of one tool."""
        number = self._vocabulary.get(word)
        return self._unknown if number is None else self._idf[number]

    def distinction(self, word: str) -> float:
        """How well the word tells toolsets apart, 0 to 1; an unknown word as well as one of a single toolset."""
        number = self._vocabulary.get(word)
        return 1.0 if number is None else self._distinctions[number]

    def _asked(self, query: QueryWords) -> tuple[float, list[tuple[str, float]]]:
        """The greatest sum that a tool could reach; the words without synonyms that some tool has, with their weights."""
        attainable = 0.0
        plain: list[tuple[str, float]] = []
        for word, weight in query.weights.items():
            number = self._vocabulary.get(word)
            attainable += weight * (self._unknown if number is None else self._idf[number])
            if number is not None and word not in query.alternatives:
                plain.append((word, weight))
        return attainable, plain

    def _ways(self, query: QueryWords, word: str) -> list[tuple[str, float]]:
        """A word of the query and its synonyms, as far as some tool has them, with their weights.

        A synonym stands for the word, so it says no more than the word does.
        """
        weight = query.weights.get(word, 0.0)
        found = [(word, weight)] if weight > 0 and word in self._vocabulary else []
        most = self.information(word)
        for other, lesser in query.alternatives[word].items():
            number = self._vocabulary.get(other)
            if number is not None:
                found.append((other, lesser * min(1.0, most / self._idf[number])))
        return found

    def answers(self, query: QueryWords, word: str) -> FoundRows:
        """The rows that have a word of the query, or a synonym of it, and how much: at most its distinction."""
        ways, answers = query.alternatives.get(word), self.postings.answers
        if ways is None:
            number = self._vocabulary.get(word)
            return NO_ROWS if number is None else self._rows(number, answers, query.weights[word])
        key = ("answers", word, query.weights[word], *ways.items())
        found = self._memo.get(key)
        if found is None:
            # Of each finished weight, the part that is not the word's IDF.
            most = self.distinction(word)
            each = [
                self._rows(number, answers, weight * min(1.0, most / self._distinctions[number]))
                for way, weight in ((word, query.weights[word]), *ways.items())
                if (number := self._vocabulary.get(way)) is not None
            ]
            found = greatest(each, self.size)
            self._memo.put(key, found)
        return found

    def _best_of(self, query: QueryWords, word: str) -> FoundRows:
        """The rows that have a word of the query or a synonym of it, with the weight of the best of them."""
        key = (word, query.weights.get(word, 0.0), *query.alternatives[word].items())
        found = self._memo.get(key)
        if found is None:
            weights = self.postings.weights
            each = [self._rows(self._vocabulary[way], weights, weight) for way, weight in self._ways(query, word)]
            found = greatest(each, self.size)
            self._memo.put(key, found)
        return found

    def _rows(self, number: int, beside: Scores, factor: float) -> FoundRows:
        """The rows that have a word, ascending, and `factor` times what stands `beside` them."""
        span = slice(self._starts[number], self._starts[number + 1])
        found = beside[span]
        return self.postings.rows[span], found if factor == 1.0 else found * np.float32(factor)


def _sum_of(held: ToolWords, plain: _Ways, groups: Sequence[_Ways]) -> float:
    """What a tool has of some words, and of each group of words the most that it has."""
    total = 0.0
    for word, weight in plain:
        if word in held:
            total += weight * held[word]
    for ways in groups:
        best = 0.0
        for word, weight in ways:
            if word in held:
                best = max(best, weight * held[word])
        total += best
    return total
