"""BM25 over folded words, with weights that bm25s computes and numpy adds up.

bm25s gives every (word, tool) pair its finished weight once, so that a query is a handful of array
additions. Its own query side is not used: it takes no weights for words (synonyms need them), returns
score-0 documents for unknown words and fails on an empty corpus.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import bm25s
import numpy as np
import numpy.typing as npt

from toolbelay.ranking.documents import NAME_REPEATS, Document
from toolbelay.ranking.query import QueryWords

# Textbook values of short texts: they were hardly tuned, and moved no figure of the benchmark by more than a point.
K1 = 0.9
B = 0.75
SHARED_WEIGHT = np.float32(0.1)

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LexicalIndex:
    """The words of a catalog. Row i of every array is tool i of the catalog given."""

    vocabulary: Mapping[str, int]
    weights: Scores
    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    idf: Scores  # by word number; > 0 also for a word that is in every tool
    distinctions: Scores  # by word number: its IDF among toolsets, 1 for a word of a single toolset
    size: int

    def scores(self, query: QueryWords) -> Scores:
        """The share of the query's information that each tool covers, 0 to 1.

        A score is the tool's BM25 sum over the greatest sum any tool could reach, each word weighing its
        IDF and an unknown word as much as a word of one tool. So it does not grow with the catalog, nor
        with the query. Of a word and its synonyms the best counts, once.
        """
        attainable = 0.0
        found: list[npt.NDArray[np.int32]] = []
        added: list[Scores] = []
        for word, weight in query.weights.items():
            number = self.vocabulary.get(word)
            attainable += weight * self.information(word)
            if number is not None and word not in query.alternatives:
                rows, weights = self._postings(number)
                found.append(rows)
                added.append(weights if weight == 1.0 else np.float32(weight) * weights)
        total = np.zeros(self.size, np.float32)
        if found:
            total[:] = np.bincount(np.concatenate(found), np.concatenate(added), self.size)
        for word, alternatives in query.alternatives.items():
            # A synonym stands for the word, so it says no more than the word does.
            most = self.information(word)
            stand_ins = [(w, weight * min(1.0, most / self.information(w))) for w, weight in alternatives.items()]
            self._add_best(total, [(word, query.weights.get(word, 0.0)), *stand_ins])
        return total / np.float32(attainable) if attainable > 0 else total

    def information(self, word: str) -> float:
        """The word's IDF; an unknown word's is that of a word of one tool."""
        number = self.vocabulary.get(word)
        return math.log(1 + (max(self.size, 1) - 0.5) / 1.5) if number is None else float(self.idf[number])

    def distinction(self, word: str) -> float:
        """How well the word tells toolsets apart, 0 to 1; an unknown word as well as one of a single toolset."""
        number = self.vocabulary.get(word)
        return 1.0 if number is None else float(self.distinctions[number])

    def answers(self, query: QueryWords, word: str) -> tuple[npt.NDArray[np.int32], Scores]:
        """The rows that have a word of the query, or a synonym of it, and how much: at most its distinction."""
        alternatives = query.alternatives.get(word, {})
        found = []
        for way, weight in ((word, query.weights[word]), *alternatives.items()):
            number = self.vocabulary.get(way)
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

    def _add_best(self, total: Scores, words: list[tuple[str, float]]) -> None:
        known = [(self.vocabulary[word], weight) for word, weight in words if weight > 0 and word in self.vocabulary]
        if not known:
            return
        best = np.zeros(self.size, np.float32)
        for number, weight in known:
            rows, weights = self._postings(number)
            best[rows] = np.maximum(best[rows], np.float32(weight) * weights)
        total += best

    def _postings(self, number: int) -> tuple[npt.NDArray[np.int32], Scores]:
        span = slice(self.starts[number], self.starts[number + 1])
        return self.rows[span], self.weights[span]


def lexical_index(
    documents: Sequence[Document], shared: Mapping[str, frozenset[str]], toolset_of: npt.NDArray[np.int32]
) -> LexicalIndex:
    """Index documents; words that a toolset shares weigh little in its own tools (`toolset_words.py`).

    `toolset_of`: by row, toolset numbers from 0.

    Pure, and slow enough (0.1 ms a tool) to belong off the event loop.
    """
    vocabulary: dict[str, int] = {}
    faint: dict[int, list[int]] = defaultdict(list)
    texts = []
    for row, document in enumerate(documents):
        own, common = _indexed(document, shared.get(document.toolset, frozenset()))
        texts.append([vocabulary.setdefault(word, len(vocabulary)) for word in own + common])
        for word in common:
            faint[vocabulary[word]].append(row)
    if not vocabulary:
        nothing = np.zeros(0, np.float32)
        return LexicalIndex({}, nothing, np.zeros(0, np.int32), np.zeros(1, np.int64), nothing, nothing, len(documents))
    model = bm25s.BM25(k1=K1, b=B, method="lucene", idf_method="lucene", csc_backend="numpy")
    built = model.build_index_from_ids(list(range(len(vocabulary))), texts, show_progress=False)
    starts = np.asarray(built["indptr"], np.int64)
    rows = np.asarray(built["indices"], np.int32)
    weights = np.asarray(built["data"], np.float32)
    for number, holders in faint.items():
        span = slice(starts[number], starts[number + 1])
        weights[span] *= np.where(np.isin(rows[span], holders), SHARED_WEIGHT, np.float32(1))
    held_by = np.diff(starts)
    idf = np.log(1 + (len(texts) - held_by + 0.5) / (held_by + 0.5)).astype(np.float32)
    distinctions = _distinctions(rows, held_by, toolset_of)
    return LexicalIndex(vocabulary, weights, rows, starts, idf, distinctions, len(texts))


def _distinctions(
    rows: npt.NDArray[np.int32], held_by: npt.NDArray[np.int64], toolset_of: npt.NDArray[np.int32]
) -> Scores:
    toolsets = int(toolset_of.max()) + 1
    owners = np.repeat(np.arange(len(held_by), dtype=np.int64), held_by)
    pairs = np.unique(owners * toolsets + toolset_of[rows])
    spread = np.bincount(pairs // toolsets, minlength=len(held_by))
    idf = np.log(1 + (toolsets - spread + 0.5) / (spread + 0.5))
    distinctions: Scores = (idf / math.log(1 + (toolsets - 0.5) / 1.5)).astype(np.float32)
    return distinctions


def _indexed(document: Document, shared: frozenset[str]) -> tuple[list[str], list[str]]:
    """The document's own words, with repeats, and those that it only shares, once each."""
    described = [word for word in document.description if word not in shared]
    own = [*document.name * NAME_REPEATS, *document.toolset_words, *described, *document.parameters]
    held = set(own)
    return own, [word for word in dict.fromkeys(document.description) if word not in held]
