"""Items of an answer on the wire, encoded part by part.

Definitions are the bulk of an answer and are the same turn after turn; what changes per turn is a dozen
bytes. So the first part is encoded once and remembered, the second is written by hand, as
https://protobuf.dev/programming-guides/encoding/ describes. A test holds both equal to protobuf's own.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from toolbelay.application.turn import SelectedItem
from toolbelay.v1 import selection_pb2 as pb

MAX_BYTES: Final = 32 * 1024 * 1024  # of remembered parts, all tenants together

ORIGINS: Final[Mapping[str, Any]] = {n.removeprefix("ORIGIN_"): v for n, v in pb.Origin.items()}

_TOOLS_TAG: Final = b"\x0a"  # field 1 of SelectToolsResponse, length-delimited
_ORIGIN_TAG: Final = b"\x28"  # field 5 of SelectedTool, varint
_PINNED: Final = b"\x30\x01"  # field 6, true
_SCORE: Final = struct.Struct("<cd")  # field 7, 64 bits
_SCORE_TAG: Final = b"\x39"
_TAILS: Final = {
    (name, pinned): _ORIGIN_TAG + bytes([number]) + (_PINNED if pinned else b"")
    for name, number in ORIGINS.items()
    for pinned in (False, True)
}

_Key = tuple[str, str, str, bytes]


class ItemEncoder:
    """Encodes items; remembers the parts that turns share, least recently used goes.

    `hits`, `misses` count look-ups; `len()` is the number of parts held.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._heads: OrderedDict[_Key, bytes] = OrderedDict()
        self._bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._heads)

    def encode(self, item: SelectedItem, *, omit: bool) -> bytes:
        """One element of SelectToolsResponse.tools: tag, length, message. `omit`: without the definition."""
        head = self._head((item.tool_id, item.name, item.fingerprint, b"" if omit else item.definition))
        tail = _TAILS[item.origin, item.pinned]
        if item.score:
            tail += _SCORE.pack(_SCORE_TAG, item.score)
        return b"".join((_TOOLS_TAG, _varint(len(head) + len(tail)), head, tail))

    def _head(self, key: _Key) -> bytes:
        head = self._heads.get(key)
        if head is not None:
            self.hits += 1
            self._heads.move_to_end(key)
            return head
        self.misses += 1
        tool_id, name, fingerprint, definition = key
        head = pb.SelectedTool(
            tool_id=tool_id, name=name, fingerprint=fingerprint, definition=definition
        ).SerializeToString()
        self._heads[key] = head
        self._bytes += len(head)
        while self._bytes > self._max_bytes:
            _, dropped = self._heads.popitem(last=False)
            self._bytes -= len(dropped)
        return head


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
