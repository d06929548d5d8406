"""`cache_control` marks on tools: where the caller's breakpoints go once the list has changed.

A mark says "cache the prompt up to here". The caller's last mark goes to the last cacheable tool of the
answer; earlier ones stay on their tools, or go to the nearest kept tool before. Marks keep their order,
for the provider wants the longer-lived first; none is doubled, and none stands on a deferred tool, which
the provider refuses. They are Anthropic's; in OpenAI's nested shape a mark may also stand inside `function`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from toolbelay.catalog.raw_json import JsonTextError, Member
from toolbelay.ext_proc.body import REMOVE, Body, read_item, splice

KEY = "cache_control"
DEFAULT_MARK = b'{"type":"ephemeral"}'
MAX_MARKS = 4  # of a whole request, by the provider's rule


@dataclass(slots=True)
class _Item:
    body: Body
    mark: bytes | None
    deferred: bool
    nested: Body | None = None  # the value of `function`, where the mark stands in it
    new_mark: bytes | None = field(default=None)

    def written(self) -> bytes:
        if self.new_mark == self.mark:
            return self.body.text
        change = {KEY: REMOVE if self.new_mark is None else self.new_mark}
        if self.nested is not None:
            return splice(self.body, function=splice(self.nested, **change))
        return splice(self.body, **change)


def place_breakpoints(
    offered: Sequence[bytes], answer: Sequence[bytes], *, stable_prefix: int = 0, elsewhere: int = 0
) -> list[bytes]:
    """The answer's definitions with the caller's marks in their new places.

    `stable_prefix`: where above 0, one more breakpoint is put on the last of so many leading items,
    unless it has one, while the request's marks stay at most four (`elsewhere`: those in its system
    prompt and messages). Items without a change keep their exact bytes.
    """
    marks = [(text, mark) for text in dict.fromkeys(offered) if (mark := _read(text).mark) is not None]
    if not marks and not stable_prefix:
        return list(answer)
    found = [_read(text) for text in answer]
    cacheable = [index for index, item in enumerate(found) if not item.deferred]
    places = _places(marks, offered, answer, cacheable)
    for place, (_, mark) in zip(places, marks[len(marks) - len(places) :], strict=True):
        found[place].new_mark = mark
    _add_stable(found, cacheable, stable_prefix, MAX_MARKS - elsewhere)
    return [item.written() for item in found]


def _places(
    marks: list[tuple[bytes, bytes]], offered: Sequence[bytes], answer: Sequence[bytes], cacheable: list[int]
) -> list[int]:
    """Where marks go, ascending, each place once; fewer than there are marks when they would meet."""
    if not marks or not cacheable:
        return []
    where = {text: index for index, text in enumerate(answer)}
    usable = set(cacheable)
    places = {cacheable[-1]}
    for text, _ in marks[:-1]:
        before = offered[: offered.index(text) + 1]
        kept = (where[item] for item in reversed(before) if where.get(item) in usable)
        place = next(kept, None)
        if place is not None:
            places.add(place)
    return sorted(places)


def _add_stable(found: list[_Item], cacheable: list[int], stable_prefix: int, room: int) -> None:
    place = max((index for index in cacheable if index < stable_prefix), default=None)
    if place is None or found[place].new_mark is not None:
        return
    if sum(item.new_mark is not None for item in found) < room:
        found[place].new_mark = DEFAULT_MARK


def _read(text: bytes) -> _Item:
    try:
        body = read_item(text)
    except JsonTextError:
        return _Item(Body(text, ()), None, deferred=True)
    deferred = body.value("defer_loading") is True
    mark = _mark_of(body.member(KEY), text)
    inner = body.raw("function")
    if mark is None and inner is not None and isinstance(body.value("function"), dict):
        nested = read_item(inner)
        mark = _mark_of(nested.member(KEY), inner)
        if mark is not None:
            return _Item(body, mark, deferred, nested)
    return _Item(body, mark, deferred)


def _mark_of(member: Member | None, text: bytes) -> bytes | None:
    return None if member is None or member.span.value is None else member.span.of(text)
