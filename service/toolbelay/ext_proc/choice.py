"""`tool_choice` in three wire formats, to and from the neutral form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from toolbelay.application.turn import AUTO, ChoiceMode, ToolChoice
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.raw_json import JsonTextError, JsonValue, items, members, parse

_WORDS = {"auto": ChoiceMode.AUTO, "none": ChoiceMode.NONE, "required": ChoiceMode.REQUIRED}
_ANTHROPIC_WORDS = {"auto": ChoiceMode.AUTO, "none": ChoiceMode.NONE, "any": ChoiceMode.REQUIRED}
_BY_MODE = {mode: word for word, mode in _WORDS.items()}
_ANTHROPIC_BY_MODE = {mode: word for word, mode in _ANTHROPIC_WORDS.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool of the caller's allowed_tools: its name ("" for a built-in) and its exact bytes."""

    name: str
    text: bytes


@dataclass(frozen=True, slots=True)
class GivenChoice:
    """The caller's choice.

    `opaque`: it demands something that has no name, such as a hosted tool; it goes on as it came and
    reads as AUTO.
    """

    choice: ToolChoice = AUTO
    entries: tuple[Entry, ...] = ()
    opaque: bool = False


def read_choice(text: bytes | None, wire_format: WireFormat) -> GivenChoice:
    """The neutral form. Raises JsonTextError for text that is not strict JSON, or of no known shape."""
    value = parse(text) if text is not None else None
    if value is None:
        return GivenChoice()
    if wire_format is WireFormat.ANTHROPIC_MESSAGES:
        return _read_anthropic(value)
    if isinstance(value, str):
        if value not in _WORDS:
            raise JsonTextError("", "must be auto, none, required or an object")
        return GivenChoice(ToolChoice(_WORDS[value]))
    if not isinstance(value, dict):
        raise JsonTextError("", "must be a string or an object")
    if value.get("type") == "allowed_tools":
        return _read_allowed(text or b"", value)
    name = _entry_name(value)
    if not name:
        return GivenChoice(opaque=True)
    return GivenChoice(ToolChoice(ChoiceMode.NAMED, (name,)))


def _read_anthropic(value: JsonValue) -> GivenChoice:
    if not isinstance(value, dict):
        raise JsonTextError("", "must be an object")
    kind, name = value.get("type"), value.get("name")
    if isinstance(kind, str) and kind in _ANTHROPIC_WORDS:
        return GivenChoice(ToolChoice(_ANTHROPIC_WORDS[kind]))
    if kind == "tool" and isinstance(name, str) and name:
        return GivenChoice(ToolChoice(ChoiceMode.NAMED, (name,)))
    raise JsonTextError("type", "must be auto, any, none or tool with a name")


def _read_allowed(text: bytes, value: dict[str, JsonValue]) -> GivenChoice:
    """`{"type":"allowed_tools","mode","tools"}`; OpenAI Chat wraps mode and tools once more."""
    found = members(text)
    inner = found.get("allowed_tools")
    if inner is not None:
        text = inner.of(text)
        found = members(text)
        value = inner.value if isinstance(inner.value, dict) else {}
    tools, mode = found.get("tools"), value.get("mode", "auto")
    if tools is None or not isinstance(tools.value, list) or mode not in ("auto", "required"):
        raise JsonTextError("allowed_tools", "must have mode auto or required, and a list of tools")
    tools_text = tools.of(text)
    entries = tuple(
        Entry(_entry_name(span.value) if isinstance(span.value, dict) else "", span.of(tools_text))
        for span in items(tools_text)
    )
    names = tuple(dict.fromkeys(entry.name for entry in entries if entry.name))
    if not names:
        return GivenChoice(opaque=True)
    return GivenChoice(ToolChoice(ChoiceMode.ALLOWED, names, required=mode == "required"), entries)


def _entry_name(value: dict[str, JsonValue]) -> str:
    """The name in a flat or nested function or custom tool. A name inside an MCP server is that server's."""
    kind = value.get("type")
    if kind not in ("function", "custom"):
        return ""
    inner = value.get(kind)
    holder = inner if isinstance(inner, dict) else value
    name = holder.get("name")
    return name if isinstance(name, str) else ""


def write_choice(choice: ToolChoice, given: GivenChoice, wire_format: WireFormat, kinds: Mapping[str, str]) -> bytes:
    """The wire form of a choice that differs from the caller's.

    `kinds`: "function" or "custom" by tool name, for entries that the caller did not write itself. The
    caller's entries without a name stay in a list that is written anew.
    """
    if wire_format is WireFormat.ANTHROPIC_MESSAGES:
        return _dump(_anthropic(choice))
    if choice.mode is ChoiceMode.NAMED:
        return _dump(_entry(choice.names[0], wire_format, kinds))
    if choice.mode is not ChoiceMode.ALLOWED:
        return _dump(_BY_MODE[choice.mode])
    own = {entry.name: entry.text for entry in given.entries if entry.name}
    listed = [entry.text for entry in given.entries if not entry.name]
    listed += [own.get(name) or _dump(_entry(name, wire_format, kinds)) for name in choice.names]
    mode = b"required" if choice.required else b"auto"
    allowed = b'"mode":"%b","tools":[%b]' % (mode, b",".join(listed))
    if wire_format is WireFormat.OPENAI_CHAT:
        return b'{"type":"allowed_tools","allowed_tools":{%b}}' % allowed
    return b'{"type":"allowed_tools",%b}' % allowed


def _anthropic(choice: ToolChoice) -> dict[str, str]:
    if choice.mode is ChoiceMode.NAMED:
        return {"type": "tool", "name": choice.names[0]}
    return {"type": _ANTHROPIC_BY_MODE.get(choice.mode, "auto")}


def _entry(name: str, wire_format: WireFormat, kinds: Mapping[str, str]) -> dict[str, object]:
    kind = kinds.get(name, "function")
    if wire_format is WireFormat.OPENAI_CHAT:
        return {"type": kind, kind: {"name": name}}
    return {"type": kind, "name": name}


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
