"""Splicing changes two members and no other byte; gathering finds an object's end whatever the chunks."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolbelay.catalog.raw_json import JsonTextError
from toolbelay.ext_proc.body import KEEP, REMOVE, Body, Change, read_body, splice
from toolbelay.ext_proc.gathering import Gathered, Gathering

SPACE = st.text(" \n\t", max_size=2)
KEYS = ["model", "messages", "tools", "tool_choice", "é", "x\\u0041", "stream"]
VALUES = ['"m"', "[]", "[ {} , 1.0 ]", "null", '{"tools":[1],"a":"}{\\"é"}', '"\\ud83d"', '"\\u0000"', "1e400"]


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    """A body's text with odd white space, and its members as (key text, value text)."""
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=6))
    members = [(key, draw(st.sampled_from(VALUES))) for key in keys]
    parts = [f'{draw(SPACE)}"{key}"{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}' for key, value in members]
    return f"{draw(SPACE)}{{{','.join(parts) or draw(SPACE)}}}{draw(SPACE)}", members


CHANGES = st.sampled_from([KEEP, REMOVE, b'[{"n":1}]', b'"auto"'])


@given(bodies(), CHANGES, CHANGES, st.sampled_from([b"", b"\xef\xbb\xbf"]))
@settings(max_examples=400, deadline=None)
def test_only_two_members_change(
    drawn: tuple[str, list[tuple[str, str]]], tools: Change, choice: Change, bom: bytes
) -> None:
    text, members = drawn
    before = bom + text.encode()
    after = splice(read_body(before), tools=tools, tool_choice=choice)
    changes: dict[str, Change] = {"tools": tools, "tool_choice": choice}
    expected = [
        (key, change.decode() if isinstance(change := changes.get(key, KEEP), bytes) else value)
        for key, value in members
        if changes.get(key) is not REMOVE
    ]
    present = {key for key, _ in members}
    expected += [(key, new.decode()) for key, new in changes.items() if isinstance(new, bytes) and key not in present]
    found = [(m.key, m.span.of(after).decode()) for m in read_body(after).members]
    assert found == [(json.loads(f'"{key}"'), value) for key, value in expected]
    assert untouched(before, changes) == untouched(after, changes)
    if all(change is KEEP for change in changes.values()):
        assert after == before


def untouched(text: bytes, changes: dict[str, Any]) -> list[bytes]:
    """Each other member with the bytes from its key to its value's end, and what stands around the object."""
    body = read_body(text)
    kept = [m for m in body.members if changes.get(m.key, KEEP) is KEEP]
    around = [text[: text.index(b"{")], text[text.rindex(b"}") :]]
    return around + [text[m.key_start : m.span.end] for m in kept]


@given(bodies())
@settings(max_examples=100, deadline=None)
def test_a_replaced_value_leaves_head_and_tail(drawn: tuple[str, list[tuple[str, str]]]) -> None:
    body = read_body(drawn[0].encode())
    member = body.member("tools")
    if member is not None:
        after = splice(body, tools=b"NEW")
        assert after == body.text[: member.span.start] + b"NEW" + body.text[member.span.end :]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"tools":[],"tools":[1]}', "tools"),
        (b'{"tools":[],"\\u0074ools":[1]}', "tools"),
        (b'{"tool_choice":1,"tool_choice":2}', "tool_choice"),
        (b'{"model":1,"model":2}', "model"),
        (b'{"Tools":[]}', "tools"),
        (b'{"tool_Choice":1}', "tool_choice"),
        (b'{"x":NaN}', "x"),
    ],
)
def test_what_two_parsers_read_in_two_ways_is_refused(text: bytes, path: str) -> None:
    with pytest.raises(JsonTextError) as caught:
        read_body(text)
    assert caught.value.path == path


def test_equal_keys_elsewhere_are_not_ours_to_judge() -> None:
    body = read_body(b'{"a":1,"a":2,"metadata":{"b":1,"b":2}}')
    assert splice(body, tools=b"[]") == b'{"a":1,"a":2,"metadata":{"b":1,"b":2},"tools":[]}'


def test_raw_items_name_their_place() -> None:
    body = read_body(b'{"tools":[ {"a":1} ,{"b":{"c":1,"c":2}}]}')
    with pytest.raises(JsonTextError) as caught:
        body.raw_items("tools")
    assert caught.value.path == "tools[1].b.c"
    assert Body(b"", ()).raw_items("tools") is None


def chunked(text: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


@given(bodies(), st.lists(st.integers(0, 1000), max_size=6), st.sampled_from([b"", b"  \n"]))
@example(('{"tools":"\\\\\\"}"}', []), [11, 12, 13, 14], b"")
@settings(max_examples=300, deadline=None)
def test_an_object_is_whole_when_its_brace_closes(
    drawn: tuple[str, list[tuple[str, str]]], cuts: list[int], tail: bytes
) -> None:
    text = drawn[0].encode()
    gathering = Gathering(10_000, at_end_only=False)
    seen = b""
    for chunk in chunked(text + tail, cuts):
        seen += chunk
        gathered = gathering.feed(chunk, end=False)
        closed = seen.rstrip().endswith(b"}") and is_json(seen)
        if closed:
            assert gathered in (Gathered.WHOLE, Gathered.PASSING)
            break
        assert gathered is Gathered.HELD
    else:
        raise AssertionError("never whole")
    assert gathering.text == seen
    assert gathering.feed(b"more", end=True) is Gathered.PASSING


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_gathering_lets_go_of_what_is_no_object_or_too_large() -> None:
    assert Gathering(10, at_end_only=False).feed(b" [1]", end=False) is Gathered.NO_OBJECT
    assert Gathering(10, at_end_only=True).feed(b"[1]", end=False) is Gathered.HELD
    gathering = Gathering(10, at_end_only=True)
    assert gathering.feed(b"{123456789", end=False) is Gathered.HELD
    assert gathering.feed(b"x", end=False) is Gathered.TOO_LARGE
    assert (gathering.text, gathering.holds, gathering.has_withheld) == (b"{123456789x", False, True)
    ended = Gathering(10, at_end_only=False)
    assert ended.feed(b'{"a', end=False) is Gathered.HELD
    assert ended.feed(b"", end=True) is Gathered.WHOLE
    assert ended.text == b'{"a'
