"""raw_json against the standard library, and on random bytes."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolbelay.catalog.raw_json import JsonTextError, JsonValue, Number, items, list_members, parse

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
HOSTILE = st.lists(
    st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b":", b",", b"1", b"e", b"-", b" ", b"\\u00", b"\\ud800",
                     b"true", b"NaN", b"\xc3", b"\xa9", b"\x00", b'"a":', b'\\"']),
    max_size=400,
).map(b"".join)  # fmt: skip


def plain(value: JsonValue) -> object:
    if isinstance(value, Number):
        return int(value.literal)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
@settings(max_examples=200, deadline=None)
def test_reads_what_json_writes(value: object, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert plain(parse(text)) == value


@given(st.dictionaries(TEXT, VALUES, max_size=6), st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=150, deadline=None)
def test_spans_cut_the_text_at_the_values(value: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    listed = list_members(text)
    assert [m.key for m in listed] == list(value)
    for member in listed:
        assert json.loads(member.span.of(text)) == value[member.key]
        assert text[member.key_start :].startswith(json.dumps(member.key, ensure_ascii=ascii_only).encode())
    array = json.dumps(list(value.values()), ensure_ascii=ascii_only, indent=indent).encode()
    assert [json.loads(span.of(array)) for span in items(array)] == list(value.values())


@given(HOSTILE | st.binary(max_size=200))
@example(b'"' + b'\\"' * 30_000)
@example(b"[" * 65_000)
@example(b'["' * 32_000)
@example(b"1" * 65_000)
@example(b"\\" * 65_000)
@example(b'{"":' * 16_000)
@settings(max_examples=400, deadline=None)
def test_hostile_text_ends_in_a_value_or_in_the_one_error(text: bytes) -> None:
    for read in (parse, list_members, items):
        try:
            read(text)
        except JsonTextError:
            continue
        json.loads(text)
