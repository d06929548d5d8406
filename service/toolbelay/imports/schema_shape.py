"""Faults of a JSON schema for which providers refuse the whole request. Follows no reference, fetches nothing."""

from __future__ import annotations

from collections.abc import Iterator

from toolbelay.catalog.raw_json import JsonValue

_TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMAS = (
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def schema_faults(schema: JsonValue, *, most: int = 5) -> list[str]:
    """The first faults, each with its path: keywords whose value has the wrong kind."""
    found: list[str] = []
    waiting: list[tuple[str, JsonValue]] = [("input_schema", schema)]
    while waiting and len(found) < most:
        path, value = waiting.pop()
        if isinstance(value, bool):
            continue
        if not isinstance(value, dict):
            found.append(f"{path} must be a schema")
            continue
        found.extend(f"{path}{fault}" for fault in _own_faults(value))
        waiting.extend(_inner(path, value))
    return found[:most]


def _own_faults(schema: dict[str, JsonValue]) -> Iterator[str]:
    for key in _LISTS:
        if key in schema and (not isinstance(schema[key], list) or not schema[key]):
            yield f".{key} must be a list of schemas"
    for key in _MAPS:
        if not isinstance(schema.get(key, {}), dict):
            yield f".{key} must be an object of schemas"
    if "type" in schema and not _is_type(schema["type"]):
        yield ".type must be one of JSON Schema's types, or a list of them"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(item, str) for item in required):
        yield ".required must be a list of names"
    if not isinstance(schema.get("enum", []), list):
        yield ".enum must be a list"
    if not isinstance(schema.get("$ref", ""), str):
        yield ".$ref must be a string"


def _is_type(value: JsonValue) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _inner(path: str, schema: dict[str, JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    for key in _LISTS:
        listed = schema.get(key)
        if isinstance(listed, list):
            yield from ((f"{path}.{key}[{index}]", item) for index, item in enumerate(listed))
    for key in _MAPS:
        mapped = schema.get(key)
        if isinstance(mapped, dict):
            yield from ((f"{path}.{key}.{name[:64]}", item) for name, item in mapped.items())
    yield from ((f"{path}.{key}", schema[key]) for key in _SCHEMAS if key in schema)
    items = schema.get("items", True)
    if isinstance(items, list):  # draft 7's tuples
        yield from ((f"{path}.items[{index}]", item) for index, item in enumerate(items))
    else:
        yield f"{path}.items", items
