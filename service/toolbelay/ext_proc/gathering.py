"""Gathers a body that comes in chunks, until it is whole, over the limit, or plainly no JSON object. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum


class Gathered(Enum):
    """What became of a chunk."""

    HELD = "held"  # withheld with those before it
    WHOLE = "whole"  # `text` is the whole body
    TOO_LARGE = "too large"  # `text` is what came so far; the rest passes
    NO_OBJECT = "no object"  # same
    PASSING = "passing"  # the body was let go before


_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+(\\?"?)', re.DOTALL)
_OUTSIDE = re.compile(rb'[^"{}\[\]]*+(["{}\[\]]?)')


class _ObjectEnd:
    """Finds the end of a JSON object in chunks, reading each byte once. Bytes of a character are never marks."""

    def __init__(self) -> None:
        self.closed = False
        self.no_object = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, chunk: bytes) -> None:
        at = 0
        if self._depth == 0:
            at = len(chunk) - len(chunk.lstrip(b" \t\r\n\xef\xbb\xbf"))
            if at == len(chunk):
                return
            if chunk[at : at + 1] != b"{":
                self.no_object = True
                return
        while at < len(chunk) and not self.closed:
            at = self._string(chunk, at) if self._in_string else self._mark(chunk, at)

    def _string(self, chunk: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        match = _IN_STRING.match(chunk, at)
        assert match is not None
        self._in_string = match[1] != b'"'
        self._escaped = match[1] == b"\\"
        return match.end()

    def _mark(self, chunk: bytes, at: int) -> int:
        match = _OUTSIDE.match(chunk, at)
        assert match is not None
        mark = match[1]
        if mark == b'"':
            self._in_string = True
        elif mark in (b"{", b"["):
            self._depth += 1
        elif mark:
            self._depth -= 1
            self.closed = self._depth == 0
        return match.end()


@dataclass(slots=True)
class Gathering:
    """One body. With `at_end_only` it is whole at its end, otherwise once its JSON object has closed."""

    limit: int
    at_end_only: bool
    text: bytes = b""
    passing: bool = False
    _chunks: list[bytes] = field(default_factory=list)
    _size: int = 0
    _scan: _ObjectEnd = field(default_factory=_ObjectEnd)

    has_withheld: bool = False  # whether a chunk was ever withheld

    @property
    def holds(self) -> bool:
        """Whether chunks are withheld now."""
        return bool(self._chunks)

    def feed(self, chunk: bytes, *, end: bool) -> Gathered:
        """Take one chunk. After anything but HELD, `text` has all that came since the start."""
        if self.passing:
            return Gathered.PASSING
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > self.limit:
            return self._let_go(Gathered.TOO_LARGE)
        if end:
            return self._let_go(Gathered.WHOLE)
        if not self.at_end_only:
            self._scan.feed(chunk)
            if self._scan.closed:
                return self._let_go(Gathered.WHOLE)
            if self._scan.no_object:
                return self._let_go(Gathered.NO_OBJECT)
        self.has_withheld = True
        return Gathered.HELD

    def finish(self) -> bytes:
        """All that is withheld, at the body's end by trailers."""
        self._let_go(Gathered.WHOLE)
        return self.text

    def _let_go(self, how: Gathered) -> Gathered:
        self.text = b"".join(self._chunks)
        self._chunks.clear()
        self.passing = True
        return how
