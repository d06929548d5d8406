"""Judges a history of changes and answers by F1: no call answers from before what was acknowledged before it began.

Pure: it knows no service. All times are seconds of one clock. The history is about two tools:

* the *danger* tool, which each change either grants or revokes;
* the *never* tool, which no generation shows: one half of them forbids it, the other half lacks it. An answer that
  shows it was made of the rows of two generations.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """An apply that was acknowledged: sent at `began`, back at `ended`."""

    generation: int
    grants: bool
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call said: `shows` the danger tool, `torn`: the never tool."""

    source: str
    began: float
    ended: float
    generation: int
    shows: bool
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`violations`: one line each. `judged`: answers that fell wholly between two changes, after a revocation."""

    violations: tuple[str, ...]
    judged: int


def judge(changes: Sequence[Change], answers: Sequence[Answer]) -> Verdict:
    """Check every answer. `changes` follow one another: each began after the one before had ended."""
    acknowledged = [change.ended for change in changes]
    begun = [change.began for change in changes]
    violations: list[str] = []
    judged = 0
    for answer in answers:
        last = bisect_right(acknowledged, answer.began) - 1  # the last change acknowledged before the call began
        if answer.torn:
            violations.append(f"{_told(answer)} is made of two generations")
        if last < 0:
            continue
        change = changes[last]
        if answer.generation < change.generation:
            violations.append(f"{_told(answer)} is older than {change.generation}, acknowledged before")
        if bisect_left(begun, answer.ended) - 1 != last:
            continue  # the next change began while the call ran: it may have seen either
        judged += not change.grants
        if answer.shows != change.grants:
            word = "granted" if change.grants else "revoked"
            violations.append(
                f"{_told(answer)} {'shows' if answer.shows else 'lacks'} what {change.generation} had {word}"
                f" {answer.began - change.ended:.6f} s before"
            )
    return Verdict(tuple(violations), judged)


def _told(answer: Answer) -> str:
    return f"{answer.source}'s answer from generation {answer.generation}"
