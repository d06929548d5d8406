"""A bounded memory for pure functions of bytes: least recently used goes, by entries and by bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BytesMemo(Generic[Value]):
    """Values by key. At most `max_entries`, whose keys together hold at most `max_bytes`.

    `hits`, `misses` count look-ups, for metrics.
    """

    def __init__(self, *, max_entries: int, max_bytes: int) -> None:
        self._entries: OrderedDict[bytes, Value] = OrderedDict()
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """Bytes of all keys together."""
        return self._bytes

    def get(self, key: bytes) -> Value | None:
        value = self._entries.get(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
            self._entries.move_to_end(key)
        return value

    def put(self, key: bytes, value: Value) -> None:
        if key not in self._entries:
            self._bytes += len(key)
        self._entries[key] = value
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            oldest, _ = self._entries.popitem(last=False)
            self._bytes -= len(oldest)
