"""The fingerprint of a definition: what the model sees of a tool, in a canonical form.

Key order, white space and escapes do not count; strings are compared by value and numbers by their
literal. Tags, hints and `requires` are no part of it: policy reads them anew each turn.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolbelay.catalog.raw_json import JsonValue

_DOMAIN = b"toolbelay.definition.1"


def fingerprint(exposed_name: str, description: str, input_schema: JsonValue) -> bytes:
    """SHA-256 (32 bytes) over exposed name, description ("" where there is none) and input schema.

    The schema is a value of `catalog.raw_json.parse`, at most 64 levels deep. Every part carries its
    type and length, so that no two definitions have the same canonical form.
    """
    return fingerprint_of_canonical(exposed_name, canonical_definition(description, input_schema))


def canonical_definition(description: str, input_schema: JsonValue) -> bytes:
    """The part of the canonical form that does not depend on the exposed name; equal for equal definitions."""
    parts: list[bytes] = []
    _string(b"s", description, parts)
    _canonical(input_schema, parts)
    return b"".join(parts)


def fingerprint_of_canonical(exposed_name: str, canonical: bytes) -> bytes:
    """The fingerprint from a result of `canonical_definition`, for callers that learn the name later."""
    parts: list[bytes] = [_DOMAIN]
    _string(b"s", exposed_name, parts)
    parts.append(canonical)
    return sha256(b"".join(parts)).digest()


def _canonical(value: JsonValue, parts: list[bytes]) -> None:
    if isinstance(value, str):
        _string(b"s", value, parts)
    elif isinstance(value, dict):
        parts.append(b"o%d:" % len(value))
        for key in sorted(value):
            _string(b"s", key, parts)
            _canonical(value[key], parts)
    elif isinstance(value, list):
        parts.append(b"a%d:" % len(value))
        for item in value:
            _canonical(item, parts)
    elif value is True:
        parts.append(b"t")
    elif value is False:
        parts.append(b"f")
    elif value is None:
        parts.append(b"z")
    else:
        _string(b"n", value.literal, parts)


def _string(kind: bytes, text: str, parts: list[bytes]) -> None:
    data = text.encode("utf-8", "surrogatepass")
    parts.append(b"%b%d:" % (kind, len(data)))
    parts.append(data)
