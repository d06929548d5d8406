"""The caller's tools array, item by item: names, exact bytes, and the fingerprint of what is a function tool."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.raw_json import MAX_BYTES, MAX_DEPTH, JsonTextError, JsonValue, parse
from toolbelay.errors import ToolbelayError, invalid
from toolbelay.memo import BytesMemo
from toolbelay.planner.fingerprint import fingerprint

MAX_OFFERED = 512


class Offered(Struct, frozen=True, gc=False):
    """One item of the caller's array.

    `name` is empty for a nameless built-in such as `{"type":"web_search"}`. `fingerprint` is that of
    a catalog tool with the same exposed name, description and schema; `None` where the item is no
    plain function tool, so that it can never be taken for the catalog's.
    """

    index: int  # in the caller's array, from 0
    definition: bytes  # the caller's exact bytes
    name: str
    is_function: bool
    fingerprint: bytes | None  # 32 bytes


def parse_offered(items: Sequence[bytes], wire_format: WireFormat) -> tuple[Offered, ...]:
    """The items in order, an exact duplicate collapsed to its first.

    Raises INVALID_REQUEST, with the field, for an item that is not one strict JSON object of at most
    64 KiB whose schema is at most 64 levels deep, for two unequal items of one name, and for more
    than 512 items.
    """
    if len(items) > MAX_OFFERED:
        raise invalid("offered_tools", f"{len(items)} items are more than the limit of {MAX_OFFERED}")
    found: dict[bytes, Offered] = {}
    names: dict[str, int] = {}
    for index, definition in enumerate(items):
        if definition in found:
            continue
        reading = _read(definition, index, wire_format)
        if reading.name and names.setdefault(reading.name, index) != index:
            raise _fault(index, f"differs from offered_tools[{names[reading.name]}], which has the same name")
        found[definition] = Offered(index, definition, reading.name, reading.is_function, reading.fingerprint)
    return tuple(found.values())


class _Reading(Struct, frozen=True, gc=False):
    """What an item's bytes say, whatever its place."""

    name: str
    is_function: bool
    fingerprint: bytes | None


# A gateway offers the same items turn after turn; what they say depends on their bytes and the format alone.
_readings: dict[WireFormat, BytesMemo[_Reading]] = {
    wire_format: BytesMemo(max_entries=8192, max_bytes=8 * 1024 * 1024) for wire_format in WireFormat
}


class _Readings:
    """The counts of all formats together."""

    def __len__(self) -> int:
        return sum(map(len, _readings.values()))

    @property
    def hits(self) -> int:
        """Look-ups that were answered."""
        return sum(memo.hits for memo in _readings.values())

    @property
    def misses(self) -> int:
        """Look-ups that were not."""
        return sum(memo.misses for memo in _readings.values())


READINGS = _Readings()  # for metrics


def _read(definition: bytes, index: int, wire_format: WireFormat) -> _Reading:
    memo = _readings[wire_format]
    reading = memo.get(definition)
    if reading is None:
        try:
            reading = _parse(definition, wire_format)
        except JsonTextError as error:
            raise _fault(index, str(error)) from None
        memo.put(definition, reading)
    return reading


def _fault(index: int, message: str) -> ToolbelayError:
    return invalid(f"offered_tools[{index}].definition", message)


def _parse(definition: bytes, wire_format: WireFormat) -> _Reading:
    # The limit is on the schema; OpenAI Chat wraps it twice, the other formats once.
    wrapped = 2 if wire_format is WireFormat.OPENAI_CHAT else 1
    item = parse(definition, max_depth=MAX_DEPTH + wrapped, max_bytes=MAX_BYTES)
    if not isinstance(item, dict):
        raise JsonTextError("", "must be an object")
    if wire_format.is_openai:
        return _openai(item)
    return _flat(item, "input_schema" if wire_format is WireFormat.ANTHROPIC_MESSAGES else "inputSchema")


def _openai(item: dict[str, JsonValue]) -> _Reading:
    """Nested (`{"type":"function","function":{…}}`) and flat shapes, in both formats.

    An item with both shapes means one thing to one provider and another to the next: two names are
    refused, and it is never taken for the catalog's.
    """
    kind = item.get("type")
    inner = item.get(kind) if isinstance(kind, str) else None
    nested_name = _name(inner) if isinstance(inner, dict) else ""
    flat_name = _name(item)
    if nested_name and flat_name and nested_name != flat_name:
        raise JsonTextError("name", "the item has two names")
    name = nested_name or flat_name
    if kind != "function" or not name:
        return _Reading(name, is_function=False, fingerprint=None)
    if isinstance(inner, dict):
        plain = item.keys().isdisjoint(("name", "description", "parameters"))
        return _function(name, inner, "parameters", plain=plain and bool(nested_name))
    return _function(name, item, "parameters", plain="function" not in item)


def _flat(item: dict[str, JsonValue], schema_key: str) -> _Reading:
    """Anthropic and MCP. A `type` other than "custom" is one of Anthropic's own server tools."""
    name = _name(item)
    if not name or item.get("type", "custom") not in ("custom", None):
        return _Reading(name, is_function=False, fingerprint=None)
    return _function(name, item, schema_key, plain=True)


def _name(item: dict[str, JsonValue]) -> str:
    name = item.get("name")
    return name if isinstance(name, str) else ""


def _function(name: str, item: dict[str, JsonValue], schema_key: str, *, plain: bool) -> _Reading:
    """`strict`, `cache_control` and the like are the caller's business and no part of the fingerprint."""
    description = item.get("description")
    schema = item.get(schema_key)
    if description is None:
        description = ""
    if schema is None:
        # Providers read a missing schema as a function without parameters.
        schema = {"type": "object", "properties": {}}
    if not plain or not isinstance(description, str) or not isinstance(schema, dict):
        return _Reading(name, is_function=True, fingerprint=None)
    return _Reading(name, is_function=True, fingerprint=fingerprint(name, description, schema))
