"""The caller's tools array."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.offered import Offered, parse_offered
from toolbelay.catalog.raw_json import parse
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.memo import BytesMemo
from toolbelay.planner.fingerprint import fingerprint

CHAT, RESPONSES = WireFormat.OPENAI_CHAT, WireFormat.OPENAI_RESPONSES
ANTHROPIC, MCP = WireFormat.ANTHROPIC_MESSAGES, WireFormat.MCP
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
EXPECTED = fingerprint("find", "Finds.", parse(json.dumps(SCHEMA).encode()))
PARTS: dict[str, Any] = {"name": "find", "description": "Finds."}
NESTED = {"type": "function", "function": {**PARTS, "parameters": SCHEMA}}
FLAT = {"type": "function", **PARTS, "parameters": SCHEMA}
CLAUDE = {**PARTS, "input_schema": SCHEMA}


def text(item: object) -> bytes:
    return json.dumps(item).encode()


def one(item: object, wire_format: WireFormat = CHAT) -> Offered:
    (found,) = parse_offered([text(item)], wire_format)
    return found


def fault(items: list[bytes], wire_format: WireFormat = CHAT) -> tuple[str | None, str]:
    with pytest.raises(ToolbelayError) as caught:
        parse_offered(items, wire_format)
    assert caught.value.reason is ErrorReason.INVALID_REQUEST
    return caught.value.field, caught.value.message


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES])
@pytest.mark.parametrize("item", [NESTED, FLAT])
def test_openai_functions_in_both_shapes_and_formats(item: dict[str, Any], wire_format: WireFormat) -> None:
    assert one(item, wire_format) == Offered(0, text(item), "find", True, EXPECTED)


def test_anthropic_and_mcp_functions() -> None:
    assert one(CLAUDE, ANTHROPIC).fingerprint == EXPECTED
    assert one({"type": "custom", **CLAUDE}, ANTHROPIC).fingerprint == EXPECTED
    assert one({**PARTS, "inputSchema": SCHEMA}, MCP).fingerprint == EXPECTED


@pytest.mark.parametrize(
    ("item", "wire_format", "name"),
    [
        ({"type": "web_search"}, RESPONSES, ""),
        ({"type": "mcp", "server_label": "x", "server_url": "https://example.invalid"}, RESPONSES, ""),
        ({"type": "custom", "name": "sh"}, RESPONSES, "sh"),
        ({"type": "custom", "custom": {"name": "sh"}}, CHAT, "sh"),
        ({"type": "web_search_20250305", "name": "web_search", "max_uses": 5}, ANTHROPIC, "web_search"),
        ({"type": "bash_20250124", "name": "bash", "input_schema": SCHEMA}, ANTHROPIC, "bash"),
        ({"type": "function", "function": {"name": 5}}, CHAT, ""),
        ({"type": "function"}, CHAT, ""),
        ({"name": "find", "input_schema": SCHEMA}, CHAT, "find"),
        ({"type": ["function"], "name": "find"}, CHAT, "find"),
        ({}, CHAT, ""),
        ({}, ANTHROPIC, ""),
    ],
)
def test_what_is_no_function_is_never_the_catalogs(item: dict[str, Any], wire_format: WireFormat, name: str) -> None:
    found = one(item, wire_format)
    assert (found.name, found.is_function, found.fingerprint) == (name, False, None)


@pytest.mark.parametrize("extra", [{"strict": True}, {"cache_control": {"type": "ephemeral"}}, {"defer_loading": True}])
def test_the_callers_marks_are_no_part_of_the_fingerprint(extra: dict[str, Any]) -> None:
    assert one({**FLAT, **extra}, RESPONSES).fingerprint == EXPECTED
    assert one({**CLAUDE, **extra}, ANTHROPIC).fingerprint == EXPECTED
    assert one({**NESTED, "function": {**NESTED["function"], **extra}, **extra}).fingerprint == EXPECTED  # type: ignore[dict-item]


def test_no_description_and_no_parameters() -> None:
    expected = fingerprint("find", "", parse(b'{"type":"object","properties":{}}'))
    for function in ({}, {"description": None}, {"description": "", "parameters": None}):
        item = {"type": "function", "function": {"name": "find", **function}}
        assert one(item).fingerprint == expected


@pytest.mark.parametrize("function", [{"description": 5}, {"parameters": "x"}, {"parameters": []}])
def test_odd_parts_have_no_fingerprint_but_keep_their_name(function: dict[str, Any]) -> None:
    found = one({"type": "function", "function": {"name": "find", **function}})
    assert (found.name, found.is_function, found.fingerprint) == ("find", True, None)


def test_an_item_of_two_shapes_is_never_the_catalogs() -> None:
    extras: list[dict[str, Any]] = [{"name": "find"}, {"parameters": {}}, {"description": "x"}]
    for extra in extras:
        found = one({**NESTED, **extra})
        assert (found.name, found.fingerprint) == ("find", None)
    assert fault([text({**NESTED, "name": "other"})]) == ("offered_tools[0].definition", "name: the item has two names")
    assert one({**FLAT, "function": {}}, RESPONSES).fingerprint is None
    assert one({**FLAT, "function": "x"}, RESPONSES).fingerprint is None


def test_row_5_exact_duplicates_collapse_and_others_are_refused() -> None:
    web = text({"type": "web_search"})
    other = text({"type": "web_search", "filters": {}})
    found = parse_offered([web, text(FLAT), web, text(FLAT), other], RESPONSES)
    assert [(item.index, item.name) for item in found] == [(0, ""), (1, "find"), (4, "")]
    changed = text({**FLAT, "description": "Other."})
    field, message = fault([web, text(FLAT), changed], RESPONSES)
    assert field == "offered_tools[2].definition"
    assert "offered_tools[1]" in message


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "must be an object"),
        (b'"x"', "must be an object"),
        (b"\xff{}", "not UTF-8"),
        (b'{"name":"a","name":"b"}', "name: the key occurs twice"),
        (b'{"type":"function","function":{"name":"a","parameters":{"x":1,"x":2}}}', "function.parameters.x: "),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "deeper"),
        (b"{" * 60_000, "deeper"),
        (b'{"a":"' + b"x" * 65_536 + b'"}', "limit of 65536"),
        (b'{"name":"\\u0000"}', "name: holds NUL"),
        (b'{"name":"\\udc00"}', "name: holds a lone surrogate"),
        (b'{"a":NaN}', "a: NaN"),
        (b'{"a":' + b"1" * 1001 + b"}", "more than 1000 digits"),
    ],
)
def test_faults_name_the_field(bad: bytes, message: str) -> None:
    for wire_format in WireFormat:
        field, found = fault([text({"type": "x"}), bad], wire_format)
        assert field == "offered_tools[1].definition"
        assert message in found


def test_the_count_is_bounded() -> None:
    items = [text({"type": "x", "n": n}) for n in range(513)]
    assert len(parse_offered(items[:512], CHAT)) == 512
    assert fault(items) == ("offered_tools", "513 items are more than the limit of 512")


def test_the_same_bytes_in_another_format_are_read_anew() -> None:
    assert one(CLAUDE, ANTHROPIC).fingerprint == EXPECTED
    assert one(CLAUDE, CHAT).fingerprint is None


def test_the_memory_is_bounded_by_entries_and_bytes() -> None:
    memo: BytesMemo[int] = BytesMemo(max_entries=3, max_bytes=100)
    for n in range(5):
        memo.put(b"%d" % n, n)
    assert [memo.get(b"%d" % n) for n in range(5)] == [None, None, 2, 3, 4]
    assert memo.get(b"2") == 2
    memo.put(b"5", 5)
    assert memo.get(b"3") is None
    assert memo.get(b"2") == 2
    memo.put(b"x" * 99, 9)
    assert (len(memo), memo.held_bytes) == (2, 100)
    memo.put(b"y" * 101, 9)
    assert (len(memo), memo.held_bytes) == (0, 0)
