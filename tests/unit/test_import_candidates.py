"""Each listed tool by itself: bug reports 5, 6, 8 and 69."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolbelay.catalog.model import ToolHints
from toolbelay.catalog.raw_json import parse
from toolbelay.imports.candidates import Candidate, Listing, Quarantined, Shape, read_item, read_listing, shown
from toolbelay.imports.schema_shape import schema_faults
from toolbelay.imports.split import split_array

DUMPS = sorted((Path(__file__).parents[1] / "data" / "mcp").glob("*.json"))
OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


def mcp(**tool: Any) -> bytes:
    return json.dumps({"name": "t", "inputSchema": OBJECT} | tool).encode()


def take(item: bytes, shape: Shape = Shape.MCP) -> Candidate:
    read = read_item("s", item, shape)
    assert isinstance(read, Candidate), read
    return read


def refuse(item: bytes, shape: Shape = Shape.MCP) -> Quarantined:
    read = read_item("s", item, shape)
    assert isinstance(read, Quarantined), read
    return read


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_real_servers_come_whole(dump: Path) -> None:
    text = dump.read_bytes()
    listing = read_listing(dump.stem, [text[part.start : part.end] for part in split_array(text)], Shape.MCP)
    given = json.loads(text)
    assert listing.quarantined == ()
    assert [one.definition.name for one in listing.candidates] == [tool["name"].strip() for tool in given]
    for one, tool in zip(listing.candidates, given, strict=True):
        line = json.loads(one.line)
        assert (line["input_schema"], line.get("description")) == (tool["inputSchema"], tool.get("description"))
        hints = tool.get("annotations") or {}
        assert one.definition.hints.read_only is hints.get("readOnlyHint", False)
        assert one.definition.hints.destructive is hints.get("destructiveHint", True)
        assert b"\n" not in one.line


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ({"inputSchema": {"type": "string"}}, "object"),
        ({"inputSchema": {"anyOf": [OBJECT]}}, "object"),
        ({"inputSchema": None}, "input_schema is missing"),
        ({"inputSchema": []}, "must be an object"),
        ({"inputSchema": OBJECT | {"allOf": {"type": "object"}}}, "allOf"),
        ({"inputSchema": {"type": "object", "properties": {"a": 7}}}, "properties.a"),
        ({"inputSchema": {"type": "object", "required": "a"}}, "required"),
        ({"inputSchema": {"type": "object", "properties": {"a": {"type": "any"}}}}, "type"),
        ({"inputSchema": OBJECT | {"x": "y" * 2_000_000}}, "bytes are more than the limit"),
        ({"inputSchema": OBJECT | {"x": "y" * 100_000}}, "limit of 65536"),
        ({"inputSchema": OBJECT | {"default": json.loads("[" * 80 + "]" * 80)}}, "deeper"),
        ({"description": 7}, "description"),
        ({"description": "\ud800"}, "surrogate"),
        ({"annotations": {"readOnlyHint": "yes"}}, "readOnlyHint"),
        ({"annotations": []}, "object"),
    ],
)
def test_bad_definitions_are_named_with_the_reason(tool: dict[str, Any], reason: str) -> None:
    bad = refuse(mcp(name="broken") if tool is None else mcp(**{"name": "broken"} | tool))
    assert bad.name == "broken"
    assert any(reason in text for text in bad.reasons), bad.reasons


@pytest.mark.parametrize(
    ("item", "name"),
    [
        (b'{"name":"deep","inputSchema":{"type":"object","x":' + b"[" * 2000 + b"]" * 2000 + b"}}", "deep"),
        (b'{"name":"twice","inputSchema":{"type":"object","type":"object"}}', "twice"),
        (b'{"name":"\\u202egnp","inputSchema":{"type":"object"}}', "\\u202egnp"),
        (b'{"name":"","inputSchema":{"type":"object"}}', "number 1"),
        (b'{"name":"' + b"n" * 192 + b'","inputSchema":{"type":"object"}}', "n" * 80),
        (b'{"inputSchema":{"type":"object"}}', "number 1"),
        (b'"text"', "number 1"),
        (b"nonsense", "number 1"),
        (b'{"name":"nan","inputSchema":{"type":"object","maximum":NaN}}', "nan"),
    ],
)
def test_unreadable_definitions_are_named_as_far_as_they_can_be(item: bytes, name: str) -> None:
    assert refuse(item).name == name


def test_ten_good_ones_survive_the_bad() -> None:
    good = [mcp(name=f"good{n}") for n in range(10)]
    bad = [mcp(name="b1", inputSchema={"type": "string"}), mcp(name="b2", inputSchema=None), b"{", b"7"]
    null, empty = mcp(name="null", description=None), mcp(name="empty", description="")
    listing = read_listing("s", [*good[:5], *bad, null, empty, *good[5:]], Shape.MCP)
    assert len(listing.candidates) == 12
    assert len(listing.quarantined) == 4
    assert {one.definition.description_text for one in listing.candidates} == {""}


def test_schemas_that_refer_to_themselves_come_as_they_are() -> None:
    recursive: dict[str, Any] = {
        "type": "object",
        "properties": {"v": {"$ref": "#/definitions/JSONValue"}, "far": {"$ref": "https://example.invalid/x"}},
        "definitions": {
            "JSONValue": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"$ref": "#/definitions/JSONValue"}},
                    {"type": "object", "additionalProperties": {"$ref": "#/definitions/JSONValue"}},
                ]
            }
        },
    }
    assert json.loads(take(mcp(inputSchema=recursive)).line)["input_schema"] == recursive


def test_names_are_the_servers() -> None:
    for name in ("calendar.read", "user-profile/update", "Create CIFS Share", "n" * 130):
        assert take(mcp(name=name)).definition.tool_id == f"s/{name}"


def test_repeats() -> None:
    same = [mcp(name="get"), b'{"inputSchema": ' + json.dumps(OBJECT).encode() + b', "name": "get"}']
    torn = [mcp(name="torn"), mcp(name="torn", description="other")]
    listing = read_listing("s", [*same, *torn], Shape.MCP)
    assert [one.definition.name for one in listing.candidates] == ["get"]
    assert [bad.name for bad in listing.quarantined] == ["torn"]
    assert not listing.is_empty
    assert Listing().is_empty


def test_annotations_become_hints_and_others_are_dropped() -> None:
    hints = {"title": "T", "readOnlyHint": True, "destructiveHint": False, "openWorldHint": None, "audience": ["user"]}
    one = take(mcp(annotations=hints))
    assert one.definition.hints == ToolHints(read_only=True, destructive=False)
    assert "audience" not in json.loads(one.line)["annotations"]


def test_literals_stay() -> None:
    item = (
        b'{ "name" : "n", "inputSchema" : { "type":"object", "maximum" : 1.0, "x": 9007199254740993, "e": "\\u00e9" } }'
    )
    assert b'{"type":"object","maximum":1.0,"x":9007199254740993,"e":"\\u00e9"}' in take(item).line


def test_openai_and_anthropic_shapes() -> None:
    function = {"name": "f", "description": "d", "parameters": OBJECT, "strict": True}
    nested = take(json.dumps({"type": "function", "function": function}).encode(), Shape.OPENAI)
    flat = take(json.dumps({"type": "function"} | function).encode(), Shape.OPENAI)
    claude = take(json.dumps({"name": "f", "description": "d", "input_schema": OBJECT}).encode(), Shape.ANTHROPIC)
    assert nested.line == flat.line == claude.line
    bare = take(b'{"type":"function","function":{"name":"now"}}', Shape.OPENAI)
    assert json.loads(bare.line)["input_schema"] == {"type": "object", "properties": {}}
    assert refuse(b'{"type":"web_search"}', Shape.OPENAI).reasons == ("not a function tool",)
    assert refuse(b'{"type":"bash_20250124","name":"bash"}', Shape.ANTHROPIC).name == "bash"
    assert refuse(b'{"name":"f"}', Shape.ANTHROPIC).reasons == ("input_schema is missing",)


def test_schema_faults_see_every_place_a_schema_stands() -> None:
    assert schema_faults(parse(b'{"type": "object", "default": {"type": 7}, "enum": [{"allOf": 1}]}')) == []
    assert schema_faults({"items": [{"anyOf": []}]}) == ["input_schema.items[0].anyOf must be a list of schemas"]
    assert schema_faults(parse(b'{"additionalProperties": {"properties": {"p": {"enum": 1}}}}')) == [
        "input_schema.additionalProperties.properties.p.enum must be a list"
    ]


def test_terminals_are_safe() -> None:
    assert shown("a\x1b[31m\u202eb\n\tü") == "a\\u001b[31m\\u202eb\n\tü"
