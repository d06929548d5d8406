"""A query's text, read once for every strategy. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from msgspec import Struct

from toolbelay.ranking.default_synonyms import DEFAULT_SYNONYMS
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.stop_words import STOP_WORDS
from toolbelay.ranking.synonyms import Synonyms, synonyms
from toolbelay.ranking.text import bounded, pieces, tokens, words

# What a user quotes is content ("tweet 'archived the files'"): it names tools by accident.
QUOTED_WEIGHT = 0.25
# A synonym stands for its word, at a discount, and never adds to a tool that has the word itself.
SYNONYM_WEIGHT = 0.5

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


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a route's options make of words."""

    stop_words: frozenset[str]
    synonyms: Synonyms


def vocabulary(options: RankingOptions) -> Vocabulary:
    """The vocabulary of a route, remembered by its options."""
    return _vocabulary(options.stop_words, options.synonyms, defaults=options.default_synonyms)


@lru_cache(maxsize=256)
def _vocabulary(stop_words: tuple[str, ...], own: tuple[str, ...], *, defaults: bool) -> Vocabulary:
    rules = (*(DEFAULT_SYNONYMS if defaults else ()), *own)
    added = frozenset(word for text in stop_words for word in words(text))
    return Vocabulary(STOP_WORDS | added, synonyms(rules))


def read_query(query: str, vocabulary: Vocabulary) -> QueryWords:
    """Read a text of any length (its first and last 8 KiB)."""
    text = bounded(query)
    outside = _QUOTED.sub(" ", text)
    said = tokens(outside)
    sequence = list(chain.from_iterable(map(pieces, said)))
    weights = dict.fromkeys((w for w in sequence if w not in vocabulary.stop_words), 1.0)
    if len(outside) != len(text):
        quoted = QUOTED_WEIGHT if weights else 1.0
        for word in words(" ".join(_QUOTED.findall(text))):
            if word not in vocabulary.stop_words:
                weights.setdefault(word, quoted)
        said = tokens(text)
    plain = " ".join([token for token in said if not vocabulary.stop_words.issuperset(pieces(token))])
    return QueryWords(weights, _alternatives(sequence, weights, vocabulary), plain)


def _alternatives(
    sequence: Sequence[str], weights: Mapping[str, float], vocabulary: Vocabulary
) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for phrase, meant in vocabulary.synonyms.matches(sequence):
        head = next((word for word in phrase if word in weights), phrase[0])
        for word in meant:
            if word not in weights and word not in vocabulary.stop_words:
                weight = SYNONYM_WEIGHT / len(meant)
                alternatives = found.setdefault(head, {})
                alternatives[word] = max(alternatives.get(word, 0.0), weight)
    return found
