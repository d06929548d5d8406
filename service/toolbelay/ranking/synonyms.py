"""Synonyms: rules as text, applied to a query's words, pure."""

from __future__ import annotations

from collections.abc import Iterable

from toolbelay.ranking.text import words

Phrase = tuple[str, ...]
MAX_PHRASE_WORDS = 8


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


def synonyms(rules: Iterable[str]) -> dict[Phrase, tuple[Phrase, ...]]:
    """Rules as one table: each phrase of a query → the phrases that it also stands for.

    Phrases are folded words; they match whole words only. Raises ValueError as `parse_rule` does.
    """
    table: dict[Phrase, dict[Phrase, None]] = {}
    for rule in rules:
        for said, meant in parse_rule(rule):
            table.setdefault(said, {})[meant] = None
    return {said: tuple(meant) for said, meant in table.items()}


def _phrases(text: str) -> list[Phrase]:
    phrases = [tuple(words(part)) for part in text.split(",")]
    for phrase in phrases:
        if len(phrase) > MAX_PHRASE_WORDS:
            raise ValueError(f"a synonym phrase has at most {MAX_PHRASE_WORDS} words: {' '.join(phrase)!r}")
    return [phrase for phrase in phrases if phrase]
