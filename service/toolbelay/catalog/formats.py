"""Wire formats: how a tool is written for a provider, and which tools a provider cannot take."""

from __future__ import annotations

from enum import Flag, StrEnum, auto
from typing import Final

from toolbelay.catalog.model import Tool
from toolbelay.catalog.raw_json import MAX_BYTES, JsonTextError, JsonValue, parse
from toolbelay.memo import BytesMemo

OPENAI_CAP: Final = 128  # tools of one request, the caller's own counted
BYTES_PER_TOKEN: Final = 4  # estimate: providers' tokenizers differ and are not public for all


class WireFormat(StrEnum):
    """The JSON shape of a tool definition; names as in the API."""

    OPENAI_CHAT = "OPENAI_CHAT"
    OPENAI_RESPONSES = "OPENAI_RESPONSES"
    ANTHROPIC_MESSAGES = "ANTHROPIC_MESSAGES"
    MCP = "MCP"

    @property
    def is_openai(self) -> bool:
        return self in _OPENAI


_OPENAI = frozenset({WireFormat.OPENAI_CHAT, WireFormat.OPENAI_RESPONSES})

# (before the name, before the description, before the schema, end). Key order is part of the prompt
# that providers cache: these bytes never change.
_SHAPES: Final = {
    WireFormat.OPENAI_CHAT: (
        b'{"type":"function","function":{"name":"',
        b'","description":',
        b',"parameters":',
        b"}}",
    ),
    WireFormat.OPENAI_RESPONSES: (b'{"type":"function","name":"', b'","description":', b',"parameters":', b"}"),
    WireFormat.ANTHROPIC_MESSAGES: (b'{"name":"', b'","description":', b',"input_schema":', b"}"),
    WireFormat.MCP: (b'{"name":"', b'","description":', b',"inputSchema":', b"}"),
}
_NO_DESCRIPTION = b'""'


def render(tool: Tool, wire_format: WireFormat) -> bytes:
    """The tool's definition: the stored bytes spliced into the format's shape, an empty description left out."""
    head, before_description, before_schema, tail = _SHAPES[wire_format]
    name = tool.exposed_name.encode("ascii")
    if tool.description == _NO_DESCRIPTION:
        return b"".join((head, name, b'"', before_schema, tool.input_schema, tail))
    return b"".join((head, name, before_description, tool.description, before_schema, tool.input_schema, tail))


def default_cap(wire_format: WireFormat) -> int | None:
    """Most tools that a request of the format may carry; `None` = no limit."""
    return OPENAI_CAP if wire_format.is_openai else None


def tokens(definition: bytes) -> int:
    """Estimated tokens of a definition: bytes / 4, rounded up."""
    return -(-len(definition) // BYTES_PER_TOKEN)


class Quirk(Flag):
    """What in a schema some provider refuses."""

    NONE = 0
    UNION_AT_TOP = auto()  # anyOf, oneOf or allOf beside the top-level type
    LIST_AT_TOP = auto()  # enum or not beside the top-level type
    ARRAY_WITHOUT_ITEMS = auto()
    UNREADABLE = auto()


_REFUSED: Final = {
    WireFormat.OPENAI_CHAT: Quirk.UNION_AT_TOP | Quirk.LIST_AT_TOP | Quirk.ARRAY_WITHOUT_ITEMS | Quirk.UNREADABLE,
    WireFormat.OPENAI_RESPONSES: Quirk.UNION_AT_TOP | Quirk.LIST_AT_TOP | Quirk.ARRAY_WITHOUT_ITEMS | Quirk.UNREADABLE,
    WireFormat.ANTHROPIC_MESSAGES: Quirk.UNION_AT_TOP | Quirk.UNREADABLE,
    WireFormat.MCP: Quirk.NONE,
}
QUIRKS: BytesMemo[Quirk] = BytesMemo(max_entries=131_072, max_bytes=131_072 * 32)


def carries(tool: Tool, wire_format: WireFormat) -> bool:
    """Whether a provider of the format takes the tool's schema. About 0.5 µs when the tool was asked before."""
    refused = _REFUSED[wire_format]
    if not refused:
        return True
    quirks = QUIRKS.get(tool.fingerprint)
    if quirks is None:
        quirks = quirks_of(tool.input_schema)
        QUIRKS.put(tool.fingerprint, quirks)
    return not quirks & refused


def quirks_of(input_schema: bytes) -> Quirk:
    """Everything in the schema that some provider refuses."""
    try:
        schema = parse(input_schema, max_bytes=MAX_BYTES)
    except JsonTextError:
        return Quirk.UNREADABLE
    if not isinstance(schema, dict):
        return Quirk.UNREADABLE
    quirks = Quirk.NONE
    if not schema.keys().isdisjoint(("anyOf", "oneOf", "allOf")):
        quirks |= Quirk.UNION_AT_TOP
    if not schema.keys().isdisjoint(("enum", "not")):
        quirks |= Quirk.LIST_AT_TOP
    if _has_array_without_items(schema):
        quirks |= Quirk.ARRAY_WITHOUT_ITEMS
    return quirks


# Where JSON Schema holds further schemas; values elsewhere (default, const, examples) are data.
_SCHEMA_KEYS = (
    "items", "additionalItems", "contains", "additionalProperties", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "not", "if", "then", "else",
)  # fmt: skip
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def _has_array_without_items(schema: JsonValue) -> bool:
    """Depth is bounded by the parser; references are not followed."""
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in schema:
        return True
    return any(map(_has_array_without_items, _subschemas(schema)))


def _subschemas(schema: dict[str, JsonValue]) -> list[JsonValue]:
    found = [schema[key] for key in _SCHEMA_KEYS if key in schema]
    for key in _SCHEMA_LISTS:
        part = schema.get(key)
        if isinstance(part, list):
            found.extend(part)
    for key in _SCHEMA_MAPS:
        part = schema.get(key)
        if isinstance(part, dict):
            found.extend(part.values())
    return found
