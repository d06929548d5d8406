"""Synonyms: rules as text, applied to a query's words, pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolbelay.ranking.text import words

Phrase = tuple[str, ...]
MAX_PHRASE_WORDS = 8


@dataclass(frozen=True, slots=True)
class Synonyms:
    """What each phrase of a query also stands for. Phrases are folded words; they match whole words only."""

    by_phrase: Mapping[Phrase, tuple[Phrase, ...]]
    heads: frozenset[str]  # first words of the phrases
    longest: int

    def matches(self, query: Sequence[str]) -> Iterator[tuple[Phrase, Phrase]]:
        """Each phrase of the query that a rule names, beside each phrase that it stands for."""
        for start, word in enumerate(query):
            if word not in self.heads:
                continue
            for length in range(1, min(self.longest, len(query) - start) + 1):
                phrase = tuple(query[start : start + length])
                for meant in self.by_phrase.get(phrase, ()):
                    yield phrase, meant


def parse_rule(rule: str) -> list[tuple[Phrase, Phrase]]:
    """The pairs (said, meant) of one rule. Raises ValueError on a rule that says nothing."""
    said, arrow, meant = rule.partition("=>")
    left, right = _phrases(said), _phrases(meant)
    if arrow:
        if not left or not right:
            raise ValueError(f"synonym rule {rule!r}: both sides of => need a word")
        return [(a, b) for a in left for b in right if a != b]
    if len(left) < 2:
        raise ValueError(f"synonym rule {rule!r}: at least two phrases, separated by commas, or a => b")
    return [(a, b) for a in left for b in left if a != b]


def synonyms(rules: Iterable[str]) -> Synonyms:
    """Rules as one table. Raises ValueError as `parse_rule` does."""
    table: dict[Phrase, dict[Phrase, None]] = {}
    for rule in rules:
        for said, meant in parse_rule(rule):
            table.setdefault(said, {})[meant] = None
    return Synonyms(
        {said: tuple(meant) for said, meant in table.items()},
        frozenset(said[0] for said in table),
        max((len(said) for said in table), default=0),
    )


def _phrases(text: str) -> list[Phrase]:
    phrases = [tuple(words(part)) for part in text.split(",")]
    for phrase in phrases:
        if len(phrase) > MAX_PHRASE_WORDS:
            raise ValueError(f"a synonym phrase has at most {MAX_PHRASE_WORDS} words: {' '.join(phrase)!r}")
    return [phrase for phrase in phrases if phrase]
