"""The API as lines of text: `python -m tests.support.api_surface`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from toolbelay.v1 import admin_pb2, error_reason_pb2, selection_pb2

_TYPES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 11: "message", 12: "bytes",
    13: "uint32", 14: "enum",
}  # fmt: skip


def lines() -> list[str]:
    """One line per RPC, field and enum value, sorted."""
    found: set[str] = set()
    for module in (selection_pb2, admin_pb2, error_reason_pb2):
        file: Any = module.DESCRIPTOR
        for message in file.message_types_by_name.values():
            found.update(_message(message))
        for enum in file.enum_types_by_name.values():
            found.update(_enum(enum))
        for service in file.services_by_name.values():
            for method in service.methods:
                given = ("stream " if method.client_streaming else "") + method.input_type.full_name
                back = ("stream " if method.server_streaming else "") + method.output_type.full_name
                found.add(f"rpc {method.full_name} ({given}) returns ({back})")
    return sorted(found)


def _message(message: Any) -> Iterator[str]:
    for field in message.fields:
        kind = field.message_type or field.enum_type
        name = kind.full_name if kind is not None else _TYPES[field.type]
        label = "repeated " if field.is_repeated else ""
        yield f"field {field.full_name} = {field.number} {label}{name}"
    for nested in message.nested_types:
        yield from _message(nested)
    for enum in message.enum_types:
        yield from _enum(enum)


def _enum(enum: Any) -> Iterator[str]:
    for value in enum.values:
        yield f"value {enum.full_name}.{value.name} = {value.number}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
