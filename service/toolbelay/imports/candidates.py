"""What a server or a file lists, tool by tool: a line for `tools/*.jsonl`, or the reason why not. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from toolbelay.catalog.definitions import MAX_DEFINITION, Definition, Fault, is_clean_name, parse_line
from toolbelay.catalog.raw_json import MAX_DEPTH, JsonTextError, Span, members
from toolbelay.imports.schema_shape import schema_faults
from toolbelay.imports.split import compact, member

MAX_ITEM = 4 * MAX_DEFINITION  # bytes of one listed tool; output schemas and icons come on top of the definition
MAX_TOOLS = 10_000  # of one server or file
_HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_NO_PARAMETERS = b'{"type":"object","properties":{}}'
_SHOWN_NAME = 80


class Shape(Enum):
    """How a listed tool is written."""

    MCP = "mcp"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool that may be imported: its line as it would be stored, and what the line says."""

    line: bytes = field(repr=False)
    definition: Definition


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A listed tool that is not imported. `name` is what the list calls it, or its place in the list."""

    name: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """All that was listed: one candidate per name, in the list's order."""

    candidates: tuple[Candidate, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.candidates


def read_listing(toolset: str, items: Iterable[bytes], shape: Shape) -> Listing:
    """Every item judged by itself. Equal repeats of a name are one; unequal ones are quarantined, all of them."""
    found: dict[str, Candidate] = {}
    bad: list[Quarantined] = []
    torn: set[str] = set()
    for place, item in enumerate(items):
        read = read_item(toolset, item, shape, place)
        if isinstance(read, Quarantined):
            bad.append(read)
            continue
        name = read.definition.name
        if not same_tool(found.setdefault(name, read).definition, read.definition):
            torn.add(name)
    bad += [Quarantined(name, ("listed more than once, with definitions that differ",)) for name in sorted(torn)]
    return Listing(tuple(one for name, one in found.items() if name not in torn), tuple(bad))


def read_item(toolset: str, item: bytes, shape: Shape, place: int = 0) -> Candidate | Quarantined:
    """One listed tool."""
    name = _name_of(item, shape) or f"number {place + 1}"
    try:
        line = _line(toolset, item, shape)
    except JsonTextError as error:
        return Quarantined(name, (str(error),))
    read = parse_line(line, name)
    definition = read[0]
    if isinstance(definition, Fault):
        return Quarantined(name, tuple(fault.message for fault in read if isinstance(fault, Fault)))
    faults = schema_faults(definition.schema_value)
    return Quarantined(name, tuple(faults)) if faults else Candidate(line, definition)


def same_tool(one: Definition, other: Definition) -> bool:
    """Whether a server's two definitions are one: key order, white space and escapes do not count, hints do."""
    from toolbelay.planner.fingerprint import canonical_definition

    mine = canonical_definition(one.description_text, one.schema_value)
    return one.hints == other.hints and mine == canonical_definition(other.description_text, other.schema_value)


def write_line(parts: Mapping[str, bytes]) -> bytes:
    """A line of the given members, in order; values are JSON text."""
    inner = b",".join(json.dumps(key).encode() + b":" + value for key, value in parts.items())
    return b"{" + inner + b"}"


def _line(toolset: str, item: bytes, shape: Shape) -> bytes:
    given = members(item, max_depth=MAX_DEPTH + 3, max_bytes=MAX_ITEM)
    text = item
    if shape is Shape.OPENAI:
        text, given = _openai_function(item, given)
    schema = _text(text, given.get(_SCHEMA_KEY[shape]))
    if schema is None and shape is Shape.OPENAI:
        schema = _NO_PARAMETERS  # a function without parameters is legal there
    if shape is Shape.ANTHROPIC and given.get("type", _NONE).value not in (None, "custom"):
        raise JsonTextError("", "a tool that the provider defines, not a tool with a schema of its own")
    parts = {"toolset": json.dumps(toolset).encode()}
    name, description = _text(text, given.get("name")), _text(text, given.get("description"))
    parts |= {"name": name} if name is not None else {}
    parts |= {"description": description} if description is not None else {}
    parts |= {"input_schema": compact(schema)} if schema is not None else {}
    hints = _annotations(text, given.get("annotations")) if shape is Shape.MCP else None
    return write_line(parts | ({"annotations": hints} if hints else {}))


_NONE = Span(0, 0, None)
_SCHEMA_KEY = {Shape.MCP: "inputSchema", Shape.OPENAI: "parameters", Shape.ANTHROPIC: "input_schema"}


def _openai_function(item: bytes, given: dict[str, Span]) -> tuple[bytes, dict[str, Span]]:
    """The flat form (Responses), or what stands inside the nested one (Chat)."""
    if given.get("type", _NONE).value != "function":
        raise JsonTextError("", "not a function tool")
    inner = given.get("function")
    if inner is None:
        return item, given
    text = inner.of(item)
    return text, members(text, max_depth=MAX_DEPTH + 2, max_bytes=MAX_ITEM)


def _text(text: bytes, span: Span | None) -> bytes | None:
    return None if span is None or span.value is None else span.of(text)


def _annotations(text: bytes, span: Span | None) -> bytes | None:
    """The hints that policy can read; others that a server may add are not kept."""
    if span is None or span.value is None:
        return None
    own = span.of(text)
    found = {key: one.of(own) for key, one in members(own, max_depth=MAX_DEPTH).items() if key in _HINTS}
    return compact(write_line(found)) if found else None


def _name_of(item: bytes, shape: Shape) -> str:
    """What an item calls itself, also where the rest of it cannot be read."""
    try:
        inner = member(item, "function") if shape is Shape.OPENAI else None
        value = json.loads(member(inner or item, "name") or b"null")
    except (JsonTextError, ValueError):
        return ""
    return shown(value.strip()[:_SHOWN_NAME]) if isinstance(value, str) else ""


def shown(text: str) -> str:
    """Text for a terminal: control and bidirectional characters as escapes, line ends and tabs as they are."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or is_clean_name(c) else f"\\u{ord(c):04x}" for c in text)
