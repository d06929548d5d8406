"""Wire formats. The golden bytes are fixed for ever: they are the prefix that providers cache."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolbelay.catalog.formats import Quirk, WireFormat, carries, default_cap, quirks_of, render, tokens
from toolbelay.catalog.model import Tool
from toolbelay.catalog.offered import parse_offered
from toolbelay.catalog.raw_json import parse
from toolbelay.planner.fingerprint import fingerprint

SCHEMA = '{"type":"object", "properties":{"q":{"type":"string","maximum":1.0,"title":"\\u00e9 é"}}}'.encode()


def tool(schema: bytes = SCHEMA, description: bytes = b'"Finds \\u00e9."', name: str = "find") -> Tool:
    text = parse(description)
    assert isinstance(text, str)
    return Tool(
        f"crm/{name}", "crm", name, name, description, schema, fingerprint(name, text, parse(schema, max_bytes=2**20))
    )


GOLDEN = {
    WireFormat.OPENAI_CHAT: b'{"type":"function","function":{"name":"find","description":"Finds \\u00e9.","parameters":%b}}',
    WireFormat.OPENAI_RESPONSES: b'{"type":"function","name":"find","description":"Finds \\u00e9.","parameters":%b}',
    WireFormat.ANTHROPIC_MESSAGES: b'{"name":"find","description":"Finds \\u00e9.","input_schema":%b}',
    WireFormat.MCP: b'{"name":"find","description":"Finds \\u00e9.","inputSchema":%b}',
}
WITHOUT_DESCRIPTION = {
    WireFormat.OPENAI_CHAT: b'{"type":"function","function":{"name":"find","parameters":%b}}',
    WireFormat.OPENAI_RESPONSES: b'{"type":"function","name":"find","parameters":%b}',
    WireFormat.ANTHROPIC_MESSAGES: b'{"name":"find","input_schema":%b}',
    WireFormat.MCP: b'{"name":"find","inputSchema":%b}',
}


@pytest.mark.parametrize("wire_format", list(WireFormat))
def test_golden_bytes(wire_format: WireFormat) -> None:
    assert render(tool(), wire_format) == GOLDEN[wire_format] % SCHEMA
    assert render(tool(description=b'""'), wire_format) == WITHOUT_DESCRIPTION[wire_format] % SCHEMA


@pytest.mark.parametrize("wire_format", list(WireFormat))
@pytest.mark.parametrize("description", [b'""', b'"\\u00e9 \\/"'])
def test_what_we_render_comes_back_with_our_fingerprint(wire_format: WireFormat, description: bytes) -> None:
    deep = b'{"type":"object","x":' + b"[" * 63 + b"]" * 63 + b"}"
    for schema in (SCHEMA, b'{"type":"object"}', b'{"type":"object","properties":{}}', deep):
        given = tool(schema, description)
        (offered,) = parse_offered([render(given, wire_format)], wire_format)
        assert (offered.name, offered.fingerprint) == (given.exposed_name, given.fingerprint)


def test_the_largest_definition_is_taken_back() -> None:
    from toolbelay.catalog.definitions import MAX_DEFINITION, Definition, parse_line

    def line(filler: int) -> bytes:
        schema = {"type": "object", "x": "y" * filler}
        return json.dumps({"toolset": "t", "name": "n" * 64, "description": "d", "input_schema": schema}).encode()

    filler = next(n for n in range(MAX_DEFINITION, 0, -1) if isinstance(parse_line(line(n), "x")[0], Definition))
    (definition,) = parse_line(line(filler), "x")
    assert isinstance(definition, Definition)
    given = tool(definition.input_schema, definition.description, definition.name)
    for wire_format in WireFormat:
        parse_offered([render(given, wire_format)], wire_format)


def test_caps() -> None:
    assert [default_cap(f) for f in WireFormat] == [128, 128, None, None]


def test_tokens_are_a_quarter_of_the_bytes_rounded_up() -> None:
    assert [tokens(b"x" * n) for n in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]


def carried(schema: dict[str, Any]) -> set[WireFormat]:
    given = tool(json.dumps(schema).encode())
    first = {f for f in WireFormat if carries(given, f)}
    assert first == {f for f in WireFormat if carries(given, f)}  # remembered
    return first


OPENAI = {WireFormat.OPENAI_CHAT, WireFormat.OPENAI_RESPONSES}
ALL = set(WireFormat)
BARE = {"type": "array"}


@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf"])
def test_unions_at_the_top_go_to_neither(key: str) -> None:
    assert carried({"type": "object", key: []}) == {WireFormat.MCP}
    assert carried({"type": "object", "properties": {"a": {key: [{"type": "string"}]}, key: {"type": "string"}}}) == ALL


@pytest.mark.parametrize("key", ["enum", "not"])
def test_enum_and_not_at_the_top_do_not_go_to_openai(key: str) -> None:
    assert carried({"type": "object", key: []}) == ALL - OPENAI
    assert carried({"type": "object", "properties": {"a": {"type": "string", key: ["x"]}}}) == ALL


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": BARE}},
        {"properties": {"a": {"type": ["array", "null"]}}},
        {"properties": {"a": {"type": "array", "items": BARE}}},
        {"properties": {"a": {"anyOf": [{"type": "string"}, BARE]}}},
        {"$defs": {"x": BARE}},
        {"definitions": {"x": {"properties": {"y": BARE}}}},
        {"additionalProperties": BARE},
        {"patternProperties": {"^x": BARE}},
        {"properties": {"a": {"type": "array", "items": [BARE]}}},
        {"properties": {"a": {"if": BARE}}},
    ],
)
def test_row_29_an_array_without_items_anywhere_does_not_go_to_openai(schema: dict[str, Any]) -> None:
    assert carried({"type": "object", **schema}) == ALL - OPENAI


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "array", "items": {}}}},
        {"properties": {"type": {"type": "string"}, "items": {"type": "string"}}},
        {"properties": {"a": {"type": "object", "default": BARE, "examples": [BARE], "const": BARE, "enum": [BARE]}}},
        {"properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "https://example.invalid/x"}}},
        {"properties": "not a map", "items": 5},
    ],
)
def test_what_is_no_array_schema_goes_everywhere(schema: dict[str, Any]) -> None:
    assert carried({"type": "object", **schema}) == ALL


def test_a_schema_that_cannot_be_read_goes_nowhere_but_to_mcp() -> None:
    assert quirks_of(b"{") == Quirk.UNREADABLE
    assert quirks_of(b"[]") == Quirk.UNREADABLE
