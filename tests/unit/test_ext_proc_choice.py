"""tool_choice in three formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolbelay.application.turn import ChoiceMode, ToolChoice
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.raw_json import JsonTextError
from toolbelay.ext_proc.choice import GivenChoice, read_choice, write_choice

CHAT, RESPONSES, ANTHROPIC = WireFormat.OPENAI_CHAT, WireFormat.OPENAI_RESPONSES, WireFormat.ANTHROPIC_MESSAGES
AUTO, NONE, REQUIRED = ToolChoice(), ToolChoice(ChoiceMode.NONE), ToolChoice(ChoiceMode.REQUIRED)
NAMED = ToolChoice(ChoiceMode.NAMED, ("f",))
FLAT, NESTED = {"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}


def given(value: Any, wire_format: WireFormat) -> GivenChoice:
    return read_choice(json.dumps(value).encode(), wire_format)


@pytest.mark.parametrize(
    ("wire_format", "value", "expected"),
    [
        (CHAT, None, AUTO),
        (CHAT, "auto", AUTO),
        (CHAT, "none", NONE),
        (RESPONSES, "required", REQUIRED),
        (CHAT, NESTED, NAMED),
        (CHAT, FLAT, NAMED),
        (RESPONSES, FLAT, NAMED),
        (RESPONSES, NESTED, NAMED),
        (CHAT, {"type": "custom", "custom": {"name": "f"}}, NAMED),
        (ANTHROPIC, {"type": "auto", "disable_parallel_tool_use": True}, AUTO),
        (ANTHROPIC, {"type": "any"}, REQUIRED),
        (ANTHROPIC, {"type": "none"}, NONE),
        (ANTHROPIC, {"type": "tool", "name": "f"}, NAMED),
    ],
)
def test_reads(wire_format: WireFormat, value: Any, expected: ToolChoice) -> None:
    assert given(value, wire_format) == GivenChoice(expected)


def test_absent_is_auto() -> None:
    assert read_choice(None, CHAT) == GivenChoice()


@pytest.mark.parametrize(
    "value", [{"type": "web_search"}, {"type": "mcp", "server_label": "x", "name": "f"}, {"type": "function"}]
)
def test_what_has_no_name_goes_on_as_it_came(value: Any) -> None:
    assert given(value, RESPONSES) == GivenChoice(opaque=True)


ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [FLAT, {"type": "function", "name": "g"}]}


def test_allowed_tools_of_both_openai_formats() -> None:
    expected = ToolChoice(ChoiceMode.ALLOWED, ("f", "g"), required=True)
    assert given(ALLOWED, RESPONSES).choice == expected
    inner = {"mode": "required", "tools": [NESTED, {"type": "function", "function": {"name": "g"}}]}
    assert given({"type": "allowed_tools", "allowed_tools": inner}, CHAT).choice == expected
    assert given({**ALLOWED, "tools": [{"type": "web_search"}]}, RESPONSES).opaque


@pytest.mark.parametrize(
    ("wire_format", "text"),
    [
        (CHAT, b'"always"'),
        (CHAT, b"5"),
        (CHAT, b"[]"),
        (CHAT, b'{"type":"function","function":{"name":"a"},"function":{"name":"b"}}'),
        (RESPONSES, b'{"type":"allowed_tools"}'),
        (RESPONSES, b'{"type":"allowed_tools","tools":{}}'),
        (RESPONSES, b'{"type":"allowed_tools","mode":"x","tools":[]}'),
        (ANTHROPIC, b'"auto"'),
        (ANTHROPIC, b'{"type":"tool"}'),
        (ANTHROPIC, b'{"type":"x"}'),
    ],
)
def test_refuses_other_shapes(wire_format: WireFormat, text: bytes) -> None:
    with pytest.raises(JsonTextError):
        read_choice(text, wire_format)


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES, ANTHROPIC])
@pytest.mark.parametrize("choice", [AUTO, NONE, REQUIRED, NAMED])
def test_what_is_written_is_read_back(wire_format: WireFormat, choice: ToolChoice) -> None:
    assert read_choice(write_choice(choice, GivenChoice(), wire_format, {}), wire_format).choice == choice


def test_allowed_is_written_in_the_formats_own_form() -> None:
    choice = ToolChoice(ChoiceMode.ALLOWED, ("f", "sh"))
    assert write_choice(choice, GivenChoice(), CHAT, {"sh": "custom"}) == (
        b'{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":['
        b'{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"sh"}}]}}'
    )
    assert write_choice(choice, GivenChoice(), RESPONSES, {"sh": "custom"}) == (
        b'{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"},{"type":"custom","name":"sh"}]}'
    )


def test_the_callers_own_entries_and_its_nameless_ones_stay() -> None:
    text = b'{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}, {"name":"f", "type":"function"}, {"type":"function","name":"g"}]}'
    found = read_choice(text, RESPONSES)
    assert found.choice.names == ("f", "g")
    written = write_choice(ToolChoice(ChoiceMode.ALLOWED, ("f",)), found, RESPONSES, {})
    assert (
        written
        == b'{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"},{"name":"f", "type":"function"}]}'
    )
