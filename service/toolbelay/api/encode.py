"""Items of an answer on the wire, encoded part by part.

Definitions are the bulk of an answer and are the same turn after turn; what changes per turn is a dozen
bytes. So the first part is encoded once and remembered, the second is written by hand, as
https://protobuf.dev/programming-guides/encoding/ describes. A test holds both equal to protobuf's own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from toolbelay.application.turn import SelectedItem
from toolbelay.catalog.surface import Rendered
from toolbelay.v1 import selection_pb2 as pb

MAX_BYTES: Final = 32 * 1024 * 1024  # of remembered parts and their keys, all tenants together
_BESIDE: Final = 512  # bytes that a part takes beside its own; not counted, small items would take five times the bound

ORIGINS: Final[Mapping[str, Any]] = {n.removeprefix("ORIGIN_"): v for n, v in pb.Origin.items()}

_ORIGIN_TAG: Final = b"\x28"  # field 5 of SelectedTool, varint
_PINNED: Final = b"\x30\x01"  # field 6, true
_SCORE: Final = struct.Struct("<cd")  # field 7, 64 bits
_SCORE_TAG: Final = b"\x39"
_TAILS: Final = {
    (name, pinned): _ORIGIN_TAG + bytes([number]) + (_PINNED if pinned else b"")
    for name, number in ORIGINS.items()
    for pinned in (False, True)
}


class ItemEncoder:
    """Encodes items; remembers the parts that turns share, the oldest goes.

    `hits`, `misses` count look-ups; `len()` is the number of parts held. A part depends on nothing but its key.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._heads: dict[Rendered, bytes] = {}
        self._bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._heads)

    def encode(self, items: Iterable[SelectedItem], omit: Callable[[SelectedItem], bool] | None = None) -> list[bytes]:
        """The elements of SelectToolsResponse.tools, in pieces. `omit`: which items go without their definition."""
        pieces: list[bytes] = []
        heads, misses, count = self._heads, self.misses, 0
        for item in items:
            shown = item.shown
            if omit is not None and omit(item):
                shown = replace(shown, definition=b"")
            head = heads.get(shown) or self._remember(shown)
            tail = _TAILS[item.origin, item.pinned]
            if item.score:
                tail += _SCORE.pack(_SCORE_TAG, item.score)
            size = len(head) + len(tail)
            pieces += (_PREFIXES[size] if size < len(_PREFIXES) else _prefix(size), head, tail)
            count += 1
        self.hits += count - (self.misses - misses)
        return pieces

    def _remember(self, shown: Rendered) -> bytes:
        self.misses += 1
        head = pb.SelectedTool(
            tool_id=shown.tool_id, name=shown.name, fingerprint=shown.fingerprint, definition=shown.definition
        ).SerializeToString()
        if not head:
            return head
        self._heads[shown] = head
        self._bytes += len(head) + _BESIDE
        while self._bytes > self._max_bytes:
            # In the order of their coming, which costs look-ups nothing: what is still in use comes again.
            self._bytes -= len(self._heads.pop(next(iter(self._heads)))) + _BESIDE
        return head


def _prefix(size: int) -> bytes:
    """Tag and length of an element: field 1 of SelectToolsResponse, length-delimited."""
    out = bytearray(b"\x0a")
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


_PREFIXES: Final = [_prefix(size) for size in range(4096)]
