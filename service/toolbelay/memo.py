"""Bounded memories, and how they are counted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sized
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

Part = TypeVar("Part", bound=Sized)

Value = TypeVar("Value")


class Cache(Protocol):
    """A cache that counts: its totals since the start and its present entries."""

    @property
    def hits(self) -> int:
        """Look-ups that were answered."""

    @property
    def misses(self) -> int:
        """Look-ups that were not."""

    def __len__(self) -> int:
        """Present entries."""


class Tally:
    """Counts of a cache that lives in several parts, such as one for each snapshot, and ends with them.

    `hits`, `misses` count look-ups in all parts there ever were; `len()` is what the present ones hold.
    """

    def __init__(self) -> None:
        self._parts: WeakValueDictionary[int, Sized] = WeakValueDictionary()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return sum(map(len, list(self._parts.values())))

    def count(self, part: Part) -> Part:
        """Count a new part."""
        self._parts[id(part)] = part
        return part


class LruTally:
    """Counts of functions under `functools.lru_cache`, added up."""

    def __init__(self, *functions: _LruCached) -> None:
        self._functions = functions

    def __len__(self) -> int:
        return sum(function.cache_info().currsize for function in self._functions)

    @property
    def hits(self) -> int:
        """Look-ups that were answered."""
        return sum(function.cache_info().hits for function in self._functions)

    @property
    def misses(self) -> int:
        """Look-ups that were not."""
        return sum(function.cache_info().misses for function in self._functions)


class _LruCached(Protocol):
    def cache_info(self) -> Any:
        """As functools documents it."""


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
