"""Cutting JSON text without judging it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolbelay.catalog.raw_json import JsonTextError
from toolbelay.imports.split import compact, member, split_array, split_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
INDENT = st.sampled_from([None, 1, "\t"])


@settings(max_examples=150, deadline=None)
@given(st.lists(JSON, max_size=4), INDENT, st.booleans())
def test_items_are_found(value: list[Any], indent: int | str | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert [json.loads(text[part.start : part.end]) for part in split_array(text)] == value
    assert json.loads(compact(text)) == value


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), INDENT)
def test_members_are_found(value: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    assert {part.key: json.loads(text[part.start : part.end]) for part in split_object(text)} == value


def test_a_bad_part_hides_no_other() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    text = b'[{"a":1}, {"s":"\\ud800 ] }"}, ' + deep + b', nonsense, {"a":1,"a":2}]'
    parts = [text[part.start : part.end] for part in split_array(text)]
    assert parts == [b'{"a":1}', b'{"s":"\\ud800 ] }"}', deep, b"nonsense", b'{"a":1,"a":2}']


@pytest.mark.parametrize("text", [b"", b"{}", b"[1", b'["]', b"[1] 2", b"7"])
def test_what_is_no_array(text: bytes) -> None:
    with pytest.raises(JsonTextError):
        split_array(text)


def test_a_string_that_is_never_closed_costs_no_square() -> None:
    with pytest.raises(JsonTextError):
        split_array(b'["' + b'\\"' * 2_000_000)


def test_compact_leaves_literals_and_escapes() -> None:
    assert compact(b'{ "a b" : "\\u00e9 \\" x" ,\n "n" : 1.0e+5 }') == b'{"a b":"\\u00e9 \\" x","n":1.0e+5}'


def test_member_takes_the_last() -> None:
    assert member(b'{"a": 1, "b": {"a": 3}, "a": 2}', "a") == b"2"
    assert member(b'{"b": 1}', "a") is None
