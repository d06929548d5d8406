"""The session's value in Redis, as Python sees it. Pure: bytes in, frozen values out.

    header   80 bytes or more, fixed, little-endian; the Lua scripts own it (`scripts/prelude.lua`)
    keys     the last turn keys, up to 8
    pending  tools merged without compare-and-set, a stream of msgpack arrays
    tail     one msgpack map, owned by this module: the state

Compatibility: a field that a newer build adds (header bytes behind ours, a map key, an element at the end of a tool)
is kept by this build when it rewrites the value. A field is never removed or given another meaning under the same
version, and a version is read one release before it is written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolbelay.memo import BytesMemo
from toolbelay.planner.model import SessionState, StoredTool

MAX_TAIL_BYTES = 51_200  # with 12 KiB of pending tools, keys and header under the hard bound of 64 KiB
_HEADER = struct.Struct("<2sBBHBx8sQQQQQQ8sII")
_PINNED = 1
_DIGEST_BYTES = 8
_FINGERPRINT_BYTES = 32
_TOOL_FIELDS = 7
_KNOWN = frozenset({"s", "t", "r", "d"})


def _of_newer_build(value: object) -> object:
    if isinstance(value, msgpack.Timestamp):
        return msgspec.msgpack.Ext(-1, value.to_bytes())
    raise TypeError(type(value).__name__)


_Ext = msgspec.msgpack.Ext  # the encoder writes it as what it was; it would write msgpack's own as an array
# msgpack's own makes a buffer of a megabyte for each value.
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_of_newer_build)


class DamagedEnvelopeError(Exception):
    """The bytes are not an envelope that this build can read."""


class OversizedStateError(Exception):
    """The state does not fit into the bound, even without what can be left out."""


class Envelope(Struct, frozen=True, gc=False):
    """A decoded value. Times are Unix milliseconds of the server."""

    revision: int
    epoch: int
    turn: int
    created_ms: int
    last_seen_ms: int
    last_turn_ms: int
    state: SessionState  # pending tools folded in


def decode(raw: bytes, read_tail: Callable[[bytes], SessionState] | None = None) -> Envelope:
    """Read a value whose header a script has accepted. `read_tail`: a TailMemo. Raises DamagedEnvelopeError."""
    try:
        fields = _HEADER.unpack_from(raw)
        _, _, key_bytes, start, keys, _, revision, epoch, turn, created, seen, last_turn, _, pending, _ = fields
        pending_at = start + keys * key_bytes
        state = (read_tail or _read_tail)(raw[pending_at + pending :])
        if pending:
            state = fold(state, _entries(raw[pending_at : pending_at + pending]))
    except (struct.error, ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise DamagedEnvelopeError(type(error).__name__) from error
    return Envelope(revision, epoch, turn, created, seen, last_turn, state)


class TailMemo:
    """Reads tails, and remembers what the latest of them said: a session's tail stays as it is turn after turn.

    A state depends on nothing but the tail's bytes, which are the key. A state takes about four times its tail.
    """

    def __init__(self, *, max_entries: int = 4_096, max_bytes: int = 8 * 1024 * 1024) -> None:
        self.states: BytesMemo[SessionState] = BytesMemo(max_entries=max_entries, max_bytes=max_bytes)

    def __call__(self, tail: bytes) -> SessionState:
        """The state. Raises what `decode` takes for damage."""
        state = self.states.get(tail)
        if state is None:
            state = _read_tail(tail)
            self.states.put(tail, state)
        return state


def _read_tail(tail: bytes) -> SessionState:
    return _state(msgpack.unpackb(tail, use_list=False, ext_hook=_Ext))


def encode_tail(state: SessionState) -> tuple[bytes, bool]:
    """The state in msgpack, and whether it is complete.

    Over the bound the last answer's digests are left out: all that is lost by it is the next turn's stable prefix.
    Raises OversizedStateError when that is not enough.
    """
    body: dict[str, Any] = {**state.extra, "s": state.seeded, "t": [_tool_fields(tool) for tool in state.tools]}
    if state.ranked_turns:
        body["r"] = state.ranked_turns
    if state.last_answer:
        body["d"] = b"".join(state.last_answer)
    tail = _ENCODER.encode(body)
    if len(tail) <= MAX_TAIL_BYTES:
        return tail, True
    body.pop("d", None)
    tail = _ENCODER.encode(body)
    if len(tail) > MAX_TAIL_BYTES:
        raise OversizedStateError(f"{len(tail)} bytes, {MAX_TAIL_BYTES} allowed")
    return tail, False


def encode_entry(tool: StoredTool) -> bytes:
    """A tool as a pending entry."""
    return _ENCODER.encode(_tool_fields(tool))


def fold(state: SessionState, added: Iterable[StoredTool]) -> SessionState:
    """Put merged tools into a state: the same result for any order and any repetition of `added`.

    A pin wins and the latest call wins; a tool that the state lacks is appended at its end, by first-seen turn, call
    and tool id. The state may exceed a route's bounds afterwards: enforcing them is the planner's.
    """
    merged: dict[str, StoredTool] = {}
    for tool in added:
        other = merged.get(tool.tool_id)
        merged[tool.tool_id] = tool if other is None else _join(other, tool)
    kept = [_note(tool, merged.pop(tool.tool_id, None)) for tool in state.tools]
    return replace(state, tools=(*kept, *sorted(merged.values(), key=_admission)))


def _note(stored: StoredTool, added: StoredTool | None) -> StoredTool:
    """What a merge changes about a tool that the state has; its place, fingerprint and first turn stay."""
    if added is None:
        return stored
    turn, place = max((stored.called_turn, stored.called_place), (added.called_turn, added.called_place))
    return replace(stored, pinned=stored.pinned or added.pinned, called_turn=turn, called_place=place)


def _join(one: StoredTool, other: StoredTool) -> StoredTool:
    """Two merges of a tool that the state lacks; commutative and associative."""
    newest = max(one, other, key=lambda tool: (tool.called_turn, tool.called_place, tool.fingerprint, repr(tool.extra)))
    return replace(
        newest,
        pinned=one.pinned or other.pinned,
        first_seen_turn=min(one.first_seen_turn, other.first_seen_turn),
        mark=max(one.mark, other.mark),
    )


def _admission(tool: StoredTool) -> tuple[int, int, int, bytes]:
    return tool.first_seen_turn, tool.called_turn, tool.called_place, tool.tool_id.encode()


def _tool_fields(tool: StoredTool) -> tuple[object, ...]:
    return (
        tool.tool_id,
        tool.fingerprint,
        _PINNED if tool.pinned else 0,
        tool.first_seen_turn,
        tool.called_turn,
        tool.called_place,
        tool.mark,
        *tool.extra,
    )


def _state(body: object) -> SessionState:
    if type(body) is not dict:
        raise TypeError("not a map")
    digests = body.get("d", b"")
    ranked = body.get("r", 0)
    if type(digests) is not bytes or len(digests) % _DIGEST_BYTES or type(ranked) is not int or ranked < 0:
        raise TypeError("digests or ranked turns")
    if type(body["s"]) is not bool:
        raise TypeError("seeded")
    return SessionState(
        seeded=body["s"],
        tools=_unique([_tool(fields) for fields in body["t"]]),
        ranked_turns=ranked,
        last_answer=tuple([digests[at : at + _DIGEST_BYTES] for at in range(0, len(digests), _DIGEST_BYTES)]),
        extra={key: body[key] for key in body.keys() - _KNOWN},
    )


def _unique(tools: Sequence[StoredTool]) -> tuple[StoredTool, ...]:
    if len({tool.tool_id for tool in tools}) != len(tools):
        raise ValueError("a tool twice")
    return tuple(tools)


def _tool(fields: tuple[Any, ...]) -> StoredTool:
    # On the path of every turn, for every stored tool: the shape of plain tuple operations is for their speed.
    tool_id, fingerprint, flags, first_seen, called_turn, called_place, mark = fields[:_TOOL_FIELDS]
    if (
        type(tool_id) is str
        and type(fingerprint) is bytes
        and len(fingerprint) == _FINGERPRINT_BYTES
        and type(flags) is type(first_seen) is type(called_turn) is type(called_place) is type(mark) is int
        and (flags | first_seen | called_turn | called_place | mark) >= 0
    ):
        pinned = flags & _PINNED == _PINNED
        return StoredTool(
            tool_id, fingerprint, pinned, first_seen, called_turn, called_place, mark, fields[_TOOL_FIELDS:]
        )
    raise TypeError("a tool's fields")


def _entries(raw: bytes) -> list[StoredTool]:
    stream = msgpack.Unpacker(use_list=False, ext_hook=_Ext, max_buffer_size=len(raw))
    stream.feed(raw)
    return [_tool(fields) for fields in stream]
