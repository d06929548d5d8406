"""Lines of tools/*.jsonl."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolbelay.catalog.definitions import Definition, Fault, parse_line, read_definitions, split_tool_id
from toolbelay.catalog.model import ToolHints

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def line(**changes: Any) -> bytes:
    given = {"toolset": "crm", "name": "get", "description": "Gets.", "input_schema": SCHEMA, **changes}
    return json.dumps({key: value for key, value in given.items() if value is not ...}).encode()


def one(text: bytes) -> Definition:
    (found,) = parse_line(text, "tools/x.jsonl:1")
    assert isinstance(found, Definition), found
    return found


def faults(text: bytes) -> list[str]:
    found = parse_line(text, "tools/x.jsonl:1")
    assert all(isinstance(fault, Fault) and fault.where == "tools/x.jsonl:1" for fault in found)
    return [fault.message for fault in found if isinstance(fault, Fault)]


def test_exact_bytes_are_kept() -> None:
    schema = '{"type" : "object","x":[1.0,1e400,9007199254740993, "\\u00e9 é \\ud83d\\ude00 😀"],"b":1,"a":2}'
    text = f'{{"toolset":"crm","name":"get","description":"\\u00e9 é\\/","input_schema": {schema} }}'.encode()
    found = one(text)
    assert found.description == '"\\u00e9 é\\/"'.encode()
    assert found.input_schema == schema.encode()
    assert found.description_text == "é é/"


@pytest.mark.parametrize("description", [..., None, ""])
def test_no_description_is_one_thing(description: object) -> None:
    found = one(line(description=description))
    assert found.description == b'""'
    assert found.description_text == ""


def test_names_are_trimmed_and_the_first_slash_splits() -> None:
    assert one(line(name="  user-profile/update ")).tool_id == "crm/user-profile/update"
    assert split_tool_id("crm/a/b") == ("crm", "a/b")
    with pytest.raises(ValueError, match="toolset/name"):
        split_tool_id("crm")


@pytest.mark.parametrize("name", ["calendar.read", "Create CIFS Share", "n" * 191, "é" * 95, "😀", 'x"); permit //'])
def test_names_that_a_provider_would_refuse_are_stored(name: str) -> None:
    assert one(line(name=name)).name == name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "  "}, "name is empty"),
        ({"name": "n" * 192}, "name is 192 bytes"),
        ({"name": "é" * 96}, "name is 192 bytes"),
        ({"name": "a\u202eb"}, "bidirectional"),
        ({"name": "a\nb"}, "control"),
        ({"name": "a\u0085b"}, "control"),
        ({"name": 5}, "name must be a string"),
        ({"name": "a\ud800"}, "lone surrogate"),
        ({"name": "a\x00"}, "NUL"),
        ({"toolset": "a/b"}, "toolset must be"),
        ({"toolset": ""}, "toolset must be"),
        ({"toolset": "t" * 65}, "toolset must be"),
        ({"toolset": "crm\n"}, "toolset must be"),
        ({"toolset": "caller"}, "reserved"),
        ({"description": 7}, "description must be"),
        ({"input_schema": ...}, "input_schema is missing"),
        ({"input_schema": None}, "input_schema must be an object"),
        ({"input_schema": {"type": "string"}}, '"type": "object"'),
        ({"input_schema": {"anyOf": []}}, '"type": "object"'),
        ({"input_schema": {"type": ["object"]}}, '"type": "object"'),
        ({"inputSchema": SCHEMA}, "unknown key 'inputSchema'"),
        ({"tags": "a"}, "tags must be"),
        ({"tags": ["a", 1]}, "tags must be"),
        ({"tags": [str(n) for n in range(65)]}, "65 tags"),
        ({"requires": ["x" * 129]}, "each of requires"),
        ({"requires": [""]}, "each of requires"),
        ({"annotations": {"readOnlyHint": "yes"}}, "annotations.readOnlyHint"),
        ({"annotations": {"readonlyHint": True}}, "unknown key 'readonlyHint'"),
        ({"annotations": []}, "annotations must be"),
        ({"description": "x" * 70_000}, "the definition is"),
        ({"input_schema": {"type": "object", "x": "y" * 2_000_000}}, "limit of 131072"),
    ],
)
def test_faults(changes: dict[str, Any], message: str) -> None:
    found = faults(line(**changes))
    assert len(found) == 1
    assert message in found[0]


def test_all_faults_of_a_line_are_listed() -> None:
    found = faults(line(description=1, tags=1, annotations=1, extra=1, input_schema=[]))
    assert len(found) == 5


def test_a_key_twice_is_refused_wherever_it_stands() -> None:
    schema = '{"type":"object","properties":{"a":{},"a":{"type":"string"}}}'
    text = f'{{"toolset":"crm","name":"get","input_schema":{schema}}}'.encode()
    assert faults(text) == ["input_schema.properties.a: the key occurs twice"]
    assert faults(b'{"toolset":"a","toolset":"b"}') == ["toolset: the key occurs twice"]


def test_depth_of_a_schema() -> None:
    def nested(levels: int) -> Any:
        value: Any = {}
        for _ in range(levels - 2):
            value = {"items": value}
        return {"type": "object", "x": value}

    assert one(line(input_schema=nested(64))).tool_id == "crm/get"
    assert "deeper" in faults(line(input_schema=nested(65)))[0]
    hostile = b'{"toolset":"crm","name":"get","input_schema":' + b'{"a":' * 2000 + b"1" + b"}" * 2002
    assert "deeper" in faults(hostile)[0]


def test_hints_have_the_defaults_of_mcp() -> None:
    assert one(line()).hints == ToolHints(read_only=False, destructive=True, idempotent=False, open_world=True)
    given = {
        "title": "T",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert one(line(annotations=given)).hints == ToolHints(True, False, True, False)
    assert one(line(annotations=None)).hints == ToolHints()


def test_labels_are_sets() -> None:
    found = one(line(tags=["b", "a", "b"], requires=["vision"]))
    assert (set(found.tags), set(found.requires)) == ({"a", "b"}, {"vision"})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "$defs": {"V": {"anyOf": [{"type": "string"}, {"items": {"$ref": "#/$defs/V"}}]}},
         "properties": {"v": {"$ref": "#/$defs/V"}}},
        {"type": "object", "definitions": {"A": {"$ref": "#/definitions/B"}, "B": {"$ref": "#/definitions/A"}}},
        {"type": "object", "properties": {"x": {"$ref": "https://example.invalid/x"}}},
        {"type": "object", "allOf": {"not": "a list"}},
        {"type": "object", "anyOf": []},
    ],
)  # fmt: skip
def test_references_are_stored_and_never_followed(schema: dict[str, Any]) -> None:
    assert json.loads(one(line(input_schema=schema)).input_schema) == schema


def test_a_file_gives_its_good_tools_and_every_fault_with_its_line() -> None:
    text = [line(name="a"), b"", b"{", line(name="b", input_schema={"type": "string"}), b"  \r\n", line(name="c")]
    found = list(read_definitions("tools/crm.jsonl", text))
    assert [d.tool_id for d in found if isinstance(d, Definition)] == ["crm/a", "crm/c"]
    assert [(f.where, f.subject) for f in found if isinstance(f, Fault)] == [
        ("tools/crm.jsonl:3", ""),
        ("tools/crm.jsonl:4", "crm/b"),
    ]
