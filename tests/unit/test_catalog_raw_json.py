"""raw_json: strict values, exact bytes, and bounds that hold on hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from toolbelay.catalog.raw_json import JsonTextError, Number, items, list_members, members, parse


def refused(text: bytes, read: Callable[..., object] = parse, **bounds: int) -> JsonTextError:
    with pytest.raises(JsonTextError) as caught:
        read(text, **bounds)
    return caught.value


def test_values_keep_number_literals() -> None:
    assert parse(b' {"a": [1.0, 1, 9007199254740993, 1e400, true, null, "x"]} ') == {
        "a": [Number("1.0"), Number("1"), Number("9007199254740993"), Number("1e400"), True, None, "x"]
    }


def test_spans_are_exact_bytes_also_behind_characters_of_several_bytes() -> None:
    text = '{ "é" : "ü\\u00fc" , "tools" : [1 ,2]\n}'.encode()
    found = members(text)
    assert found["é"].of(text) == '"ü\\u00fc"'.encode()
    assert found["tools"].of(text) == b"[1 ,2]"
    assert found["é"].value == "üü"
    assert [text[m.key_start :][:1] for m in list_members(text)] == [b'"', b'"']


def test_items_are_exact_bytes() -> None:
    text = '[ {"a":"é"} , 2 ,"x" ]'.encode()
    assert [span.of(text) for span in items(text)] == ['{"a":"é"}'.encode(), b"2", b'"x"']
    assert items(b" [ ] ") == []
    assert members(b" { } ") == {}


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (b'{"a": {"b": 1, "b": 2}}', "a.b", "the key occurs twice"),
        (b'{"a": {"b": 1, "\\u0062": 2}}', "a.b", "the key occurs twice"),
        (b'{"a": [1, NaN]}', "a[1]", "NaN and infinities are not JSON"),
        (b'{"a": -Infinity}', "a", "NaN and infinities are not JSON"),
        (b'{"a": ["\\ud800"]}', "a[0]", "holds a lone surrogate"),
        (b'{"a": {"b": "x\\u0000"}}', "a.b", "holds NUL"),
        (b'{"a": [1' + b"0" * 1000 + b"]}", "a[0]", "a number of more than 1000 digits"),
        (b'{"a": [0.' + b"0" * 1000 + b"]}", "a[0]", "a number of more than 1000 digits"),
    ],
)
def test_faults_name_the_value(text: bytes, path: str, message: str) -> None:
    for read in (parse, members):
        error = refused(text, read)
        assert (error.path, error.message) == (path, message)


@pytest.mark.parametrize(
    "text",
    [b"", b" ", b"{", b'{"a"', b'{"a" 1}', b'{"a":1,}', b"{,}", b"[1,]", b"01", b"1 2", b"'a'", b'["\x00"]', b'["\n"]',
     b"\xff", b'["\xed\xa0\x80"]', b"\xef\xbb\xbf1", b'{"a":1}x', b"tru", b"-", b"+1", b".5", b"nan", b'{"a":NaN,,}'],
)  # fmt: skip
def test_what_is_not_json_is_refused(text: bytes) -> None:
    for read in (parse, members, items):
        refused(text, read)


def test_surrogate_pairs_are_text() -> None:
    assert parse(b'"\\ud83d\\ude00"') == "\U0001f600"


def test_a_thousand_digits_pass() -> None:
    assert parse(b"-" + b"9" * 1000) == Number("-" + "9" * 1000)


def test_depth_is_bounded_before_the_scanner_recurses() -> None:
    assert parse(b"[" * 64 + b"]" * 64)
    assert "deeper than 64" in str(refused(b"[" * 65 + b"]" * 65))
    for hostile in (b"[" * 60_000, b'{"a":' * 12_000, b"[{" * 30_000, b"]" * 30_000 + b"[" * 30_000):
        for read in (parse, members, items):
            refused(hostile, read)
    assert parse(b'["' + b"[{" * 1000 + b'\\""]') == ["[{" * 1000 + '"']


def test_size_is_bounded() -> None:
    assert "limit of 10" in str(refused(b'"12345678901"', max_bytes=10))


def test_equal_keys_further_down_pass_where_asked() -> None:
    text = b'{"a": {"b": 1, "b": 2}}'
    assert members(text, unique_keys=False)["a"].value == {"b": Number("2")}
    assert refused(b'{"a": 1, "a": 2}', members, unique_keys=False).path == "a"
    assert [m.key for m in list_members(b'{"a": 1, "a": 2}')] == ["a", "a"]


def test_the_wrong_kind_is_named() -> None:
    assert refused(b"[1]", members).message == "must be an object"
    assert refused(b'{"a":1}', items).message == "must be an array"


def test_messages_hold_no_line_breaks_whatever_the_keys() -> None:
    key = json.dumps("x\n\u202e" + "y" * 500)
    error = refused(f'{{"a": {{{key}: NaN}}}}'.encode())
    assert "\n" not in str(error)
    assert len(str(error)) < 200
