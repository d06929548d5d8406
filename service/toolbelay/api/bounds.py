"""Bounds of request fields (section 9 of the design). Each violation names the field, the limit and the size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from toolbelay.errors import invalid

MAX_ID: Final = 128  # session_id, turn_id, route, call_id
MAX_MODEL: Final = 256
MAX_QUERY: Final = 1024 * 1024
MAX_CALLS: Final = 256
MAX_CANDIDATES: Final = 4096
MAX_CAPABILITIES: Final = 64
MAX_CHOICE_NAMES: Final = 128
MAX_TOOL_ID: Final = 64 + 1 + 191
MAX_NAME: Final = 1024  # a tool as a model or a caller names it: more than any exposed name, for names run together
MAX_CALLER_TOOLS: Final = 512
MAX_FINGERPRINTS: Final = 1024
MAX_PRINCIPAL_PARTS: Final = 256  # roles + scopes

# Control characters, line separators, and what turns the direction of text.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def text(field: str, value: str, limit: int) -> str:
    """Free text: at most `limit` bytes of UTF-8, without NUL."""
    _size(field, value, limit)
    if "\0" in value:
        raise invalid(field, "must not hold NUL")
    return value


def printable(field: str, value: str, limit: int = MAX_ID) -> str:
    """An identifier: at most `limit` bytes of printable text."""
    _size(field, value, limit)
    if not value.isascii() or not value.isprintable():
        if "\0" in value:
            raise invalid(field, "must not hold NUL")
        if _UNPRINTABLE.search(value):
            raise invalid(field, "must be printable text, without control or bidi characters")
    return value


def count(field: str, values: Sequence[object], limit: int) -> None:
    """At most `limit` items."""
    if len(values) > limit:
        raise invalid(field, f"{len(values)} items are more than the limit of {limit}")


def _size(field: str, value: str, limit: int) -> None:
    if len(value) * 4 <= limit:
        return
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise invalid(field, f"{size} bytes are more than the limit of {limit}")
