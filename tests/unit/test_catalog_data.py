"""Real catalogs pass: the demo's tools, and what real MCP servers list."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from toolbelay.catalog.definitions import Definition, Fault, parse_line, read_definitions

DUMPS = sorted((Path(__file__).parent.parent / "data" / "mcp").glob("*.json"))
DEMO = files("toolbelay.cli") / "demo_data"


def demo_tools() -> list[Definition]:
    found = list(read_definitions("tools/bfcl.jsonl", (DEMO / "tools" / "bfcl.jsonl").read_bytes().splitlines()))
    assert not [fault for fault in found if isinstance(fault, Fault)]
    return [tool for tool in found if isinstance(tool, Definition)]


def test_the_demo_catalog_has_no_fault_and_no_tool_twice() -> None:
    tools = demo_tools()
    assert len(tools) == 300
    assert len({tool.tool_id for tool in tools}) == 300


def test_the_demo_sessions_call_tools_of_the_demo_catalog() -> None:
    names = {tool.name for tool in demo_tools()}
    sessions = [json.loads(line) for line in (DEMO / "sessions.jsonl").read_text().splitlines()]
    assert len(sessions) == 3
    assert {name for session in sessions for turn in session["turns"] for name in turn["calls"]} <= names


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_the_tools_of_real_servers_pass(dump: Path) -> None:
    for tool in json.loads(dump.read_text()):
        line = {
            "toolset": dump.stem,
            "name": tool["name"],
            "description": tool.get("description"),
            "input_schema": tool["inputSchema"],
            "annotations": tool.get("annotations"),
        }
        (found,) = parse_line(json.dumps(line).encode(), "x")
        assert isinstance(found, Definition), found
        assert json.loads(found.input_schema) == tool["inputSchema"]


def test_row_69_one_bad_definition_does_not_take_the_others_down() -> None:
    good: list[dict[str, Any]] = [
        {"toolset": "s", "name": f"good{n}", "input_schema": {"type": "object"}} for n in range(10)
    ]
    bad: list[dict[str, Any]] = [
        {"toolset": "s", "name": "string", "input_schema": {"type": "string"}},
        {"toolset": "s", "name": "union", "input_schema": {"anyOf": [{"type": "object"}]}},
        {"toolset": "s", "name": "missing"},
        {"toolset": "s", "name": "huge", "input_schema": {"type": "object", "x": "y" * 2**21}},
    ]
    odd: list[dict[str, Any]] = [
        {"toolset": "s", "name": "null", "description": None, "input_schema": {"type": "object"}},
        {"toolset": "s", "name": "empty", "description": "", "input_schema": {"type": "object"}},
        {"toolset": "s", "name": "bare", "input_schema": {"type": "object", "properties": {"a": {"type": "array"}}}},
        {"toolset": "s", "name": "allof", "input_schema": {"type": "object", "allOf": {}}},
    ]
    found = list(read_definitions("tools/s.jsonl", [json.dumps(tool).encode() for tool in good + bad + odd]))
    assert [tool.name for tool in found if isinstance(tool, Definition)] == [tool["name"] for tool in good + odd]
    assert [fault.where for fault in found if isinstance(fault, Fault)] == [f"tools/s.jsonl:{n}" for n in range(11, 15)]
