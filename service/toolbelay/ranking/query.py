"""A query's text, read once for every strategy. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

from msgspec import Struct

from toolbelay.memo import LruTally
from toolbelay.ranking.default_synonyms import DEFAULT_SYNONYMS
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.stop_words import STOP_WORDS
from toolbelay.ranking.synonyms import Phrase, synonyms
from toolbelay.ranking.text import bounded, pieces, tokens, words

# What a user quotes is content ("tweet 'archived the files'"): it names tools by accident.
QUOTED_WEIGHT = 0.25
# A synonym stands for its word, at a discount, and never adds to a tool that has the word itself.
SYNONYM_WEIGHT = 0.5

MAX_TOKENS = 4_096  # remembered, of all vocabularies together
MAX_TEXTS = 512  # remembered: an agent sends the user's words again with each of its steps
MAX_TEXT = 512  # characters of a text that is remembered

_MARKS = "\"'“«「"  # what _QUOTED begins with
_QUOTED = re.compile(r"\"[^\"\n]{3,}\"|“[^”\n]{3,}”|«[^»\n]{3,}»|「[^」\n]{2,}」|(?<!\w)'[^'\n]{3,}'(?!\w)")


class QueryWords(Struct, frozen=True, gc=False):
    """A text as the rankers see it.

    `weights`: its folded words without stop words → 1.0, or less where they were only quoted.
    `alternatives`: word of the text → synonyms with their weights.
    `plain`: the words as written, without stop words, for embedding; "" where none is left.
    """

    weights: Mapping[str, float]
    alternatives: Mapping[str, Mapping[str, float]]
    plain: str

    @property
    def said(self) -> frozenset[str]:
        """The words that the user says and does not only quote."""
        return frozenset(word for word, weight in self.weights.items() if weight == 1.0)

    def __bool__(self) -> bool:
        return bool(self.weights)


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """What a route's options make of words.

    `stand_ins`: phrase of a query → the words that stand for it, with their weights. `longest`: first word of such
    phrases → words of the longest.
    """

    stop_words: frozenset[str]
    stand_ins: Mapping[Phrase, Mapping[str, float]]
    longest: Mapping[str, int]


def vocabulary(options: RankingOptions) -> Vocabulary:
    """The vocabulary of a route, remembered by its options."""
    return _vocabulary(options.stop_words, options.synonyms, defaults=options.default_synonyms)


@lru_cache(maxsize=256)
def _vocabulary(stop_words: tuple[str, ...], own: tuple[str, ...], *, defaults: bool) -> Vocabulary:
    rules = (*(DEFAULT_SYNONYMS if defaults else ()), *own)
    stop = STOP_WORDS.union(word for text in stop_words for word in words(text))
    stand_ins: dict[Phrase, Mapping[str, float]] = {}
    longest: dict[str, int] = {}
    for phrase, meant in synonyms(rules).items():
        found = _stand_ins(meant, stop)
        if found:
            stand_ins[phrase] = found
            longest[phrase[0]] = max(longest.get(phrase[0], 0), len(phrase))
    return Vocabulary(stop, stand_ins, longest)


def _stand_ins(meant: Iterable[Phrase], stop_words: frozenset[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for phrase in meant:
        for word in phrase:
            if word not in stop_words:
                found[word] = max(found.get(word, 0.0), SYNONYM_WEIGHT / len(phrase))
    return found


def read_query(query: str, vocabulary: Vocabulary) -> QueryWords:
    """Read a text of any length (its first and last 8 KiB). What is read is shared: nobody may change it."""
    return _read_short(query, vocabulary) if len(query) <= MAX_TEXT else _read(query, vocabulary)


@lru_cache(maxsize=MAX_TEXTS)
def _read_short(query: str, vocabulary: Vocabulary) -> QueryWords:
    return _read(query, vocabulary)


def _read(query: str, vocabulary: Vocabulary) -> QueryWords:
    text = bounded(query)
    outside = _QUOTED.sub(" ", text) if any(mark in text for mark in _MARKS) else text
    said = tokens(outside)
    weights: dict[str, float] = {}
    plain: list[str] = []
    sequence: list[str] = []
    begins: list[int] = []  # places in the sequence where a phrase may
    for token, (all_pieces, kept, heads) in zip(said, map(_reading, said, repeat(vocabulary)), strict=True):
        if heads:
            begins.extend([len(sequence) + place for place in heads])
        sequence.extend(all_pieces)
        if kept:
            plain.append(token)
            for word in kept:
                weights[word] = 1.0
    if len(outside) != len(text):
        quoted = QUOTED_WEIGHT if weights else 1.0
        for word in words(" ".join(_QUOTED.findall(text))):
            if word not in vocabulary.stop_words:
                weights.setdefault(word, quoted)
        plain = [token for token in tokens(text) if _reading(token, vocabulary)[1]]
    return QueryWords(weights, _alternatives(sequence, begins, weights, vocabulary), " ".join(plain))


@lru_cache(maxsize=MAX_TOKENS)
def _reading(token: str, vocabulary: Vocabulary) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    """The words of a token, those that are no stop words, and the places of those that begin a phrase with synonyms."""
    found = pieces(token)
    kept = tuple(word for word in found if word not in vocabulary.stop_words)
    heads = tuple(place for place, word in enumerate(found) if word in vocabulary.longest)
    return found, kept if len(kept) < len(found) else found, heads


def _alternatives(
    sequence: Sequence[str], begins: Iterable[int], weights: Mapping[str, float], vocabulary: Vocabulary
) -> dict[str, Mapping[str, float]]:
    found: dict[str, Mapping[str, float]] = {}
    for start in begins:
        longest = min(vocabulary.longest[sequence[start]], len(sequence) - start)
        for end in range(start + 1, start + longest + 1):
            phrase = tuple(sequence[start:end])
            meant = vocabulary.stand_ins.get(phrase)
            if meant is None:
                continue
            head = phrase[0] if phrase[0] in weights else next((w for w in phrase if w in weights), phrase[0])
            held = found.get(head)
            if held is None and weights.keys().isdisjoint(meant):
                found[head] = meant
            elif held is not meant:
                _add(found, head, {word: weight for word, weight in meant.items() if word not in weights})
    return found


def _add(found: dict[str, Mapping[str, float]], head: str, meant: Mapping[str, float]) -> None:
    if meant:
        held = found.get(head, {})
        found[head] = {**held, **{word: max(held.get(word, 0.0), weight) for word, weight in meant.items()}}


TOKENS = LruTally(_reading)  # for metrics
TEXTS = LruTally(_read_short)
