"""Cuts JSON text into its parts without judging them: one bad part must not hide the others.

`catalog.raw_json` then reads each part strictly. Nothing here recurses, whatever the depth.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from toolbelay.catalog.raw_json import JsonTextError

# A string that is never closed is one token too: tried again from each of its quotes, it would cost the square.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},:]', re.DOTALL)
_STRING_OR_SPACE = re.compile(rb'("(?:[^"\\]++|\\.)*+")|[ \t\r\n]+', re.DOTALL)
_WHITE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Part:
    """One item of an array (`key` empty) or member of an object: `text[start:end]` is its value."""

    key: str
    start: int
    end: int


def split_array(text: bytes) -> list[Part]:
    """The items of an array. Raises JsonTextError where the brackets do not close, or it is no array."""
    return _split(text, b"[", b"]")


def split_object(text: bytes) -> list[Part]:
    """The members of an object, in order, equal keys all listed. Raises JsonTextError like `split_array`."""
    return _split(text, b"{", b"}")


def member(text: bytes, key: str) -> bytes | None:
    """The exact bytes of an object's member, of the last where it stands twice; `None` where it has none."""
    found = [part for part in split_object(text) if part.key == key]
    return text[found[-1].start : found[-1].end] if found else None


def compact(text: bytes) -> bytes:
    """JSON text without white space between its tokens: literals, escapes and key order stay."""
    return _STRING_OR_SPACE.sub(lambda match: match[1] or b"", text)


def _split(text: bytes, opening: bytes, closing: bytes) -> list[Part]:
    body = text.strip(_WHITE)
    if not body.startswith(opening):
        raise JsonTextError("", f"must be {'an array' if opening == b'[' else 'an object'}")
    parts: list[Part] = []
    depth, start, key, last = 0, 0, "", b""
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if depth == 1 and mark == b":" and opening == b"{":
            key, start = _key(last), token.end()
        elif depth == 1 and mark in (b",", closing):
            _close(text, start, token.start(), key, parts)
            start, key = token.end(), ""
        if mark in (b"[", b"{"):
            depth += 1
            start = token.end() if depth == 1 else start
        elif mark in (b"]", b"}"):
            depth -= 1
            if depth == 0:
                if text[token.end() :].strip(_WHITE):
                    raise JsonTextError("", "more text follows the value")
                return parts
        last = mark
    raise JsonTextError("", "not JSON: a bracket is never closed")


def _close(text: bytes, start: int, end: int, key: str, parts: list[Part]) -> None:
    value = text[start:end]
    left = len(value) - len(value.lstrip(_WHITE))
    if value.strip(_WHITE):
        parts.append(Part(key, start + left, start + len(value.rstrip(_WHITE))))


def _key(token: bytes) -> str:
    try:
        key = json.loads(token)
    except ValueError:
        raise JsonTextError("", "not JSON: a key must be a string") from None
    if not isinstance(key, str):
        raise JsonTextError("", "not JSON: a key must be a string")
    return key
