"""The envelope's Python half: encoding, and folding merged tools in."""

from __future__ import annotations

import string

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from toolbelay.planner.model import EMPTY_STATE, SessionState, StoredTool
from toolbelay.sessions.envelope import (
    MAX_TAIL_BYTES,
    DamagedEnvelopeError,
    OversizedStateError,
    TailMemo,
    decode,
    encode_entry,
    encode_tail,
    fold,
)

HEADER = b"TB\x01\x1e" + (80).to_bytes(2, "little") + bytes(74)

numbers = st.integers(0, 2**40)
extras = st.lists(st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=3)), max_size=2)
tools = st.builds(
    StoredTool,
    tool_id=st.text(st.characters(codec="utf-8"), max_size=20),
    fingerprint=st.binary(min_size=32, max_size=32),
    pinned=st.booleans(),
    first_seen_turn=numbers,
    called_turn=numbers,
    called_place=numbers,
    mark=numbers,
    extra=extras.map(tuple),
)
states = st.builds(
    SessionState,
    seeded=st.booleans(),
    tools=st.lists(tools, max_size=6, unique_by=lambda tool: tool.tool_id).map(tuple),
    ranked_turns=numbers,
    last_answer=st.lists(st.binary(min_size=8, max_size=8), max_size=5).map(tuple),
    extra=st.dictionaries(st.text(min_size=2, max_size=4), numbers, max_size=2),
)
merged_tools = st.lists(
    st.builds(
        StoredTool,
        tool_id=st.sampled_from(["a/1", "a/2", "a/3", "b/1"]),
        fingerprint=st.sampled_from([b"x" * 32, b"y" * 32]),
        pinned=st.booleans(),
        first_seen_turn=st.integers(1, 3),
        called_turn=st.integers(0, 3),
        called_place=st.integers(0, 2),
    ),
    max_size=6,
)


words = st.text(st.characters(codec="utf-8"), max_size=3)
newer = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        words,
        st.binary(max_size=3),
        st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
        st.builds(msgpack.Timestamp, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999)),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(
    states, st.dictionaries(st.text(string.ascii_lowercase, min_size=2, max_size=4), newer), st.lists(newer, max_size=3)
)
def test_whatever_a_newer_build_wrote_is_written_again(
    state: SessionState, of_session: dict[str, object], of_tool: list[object]
) -> None:
    body = msgpack.unpackb(encode_tail(structs.replace(state, extra={}, tools=()))[0])
    tool = ["a/1", b"x" * 32, 1, 1, 1, 0, 0, *of_tool]
    read = decode(HEADER + msgpack.packb({**of_session, **body, "t": [tool]})).state
    tail, _ = encode_tail(read)
    assert msgpack.packb(msgpack.unpackb(tail)["t"]) == msgpack.packb([tool])
    again = msgpack.unpackb(tail)
    assert {key: msgpack.packb(again[key]) for key in of_session} == {
        k: msgpack.packb(v) for k, v in of_session.items()
    }
    remembered = TailMemo()
    remembered.states.put(tail, read)  # as a save does
    found = decode(HEADER + tail).state
    assert _shown(remembered(tail)) == _shown(found)
    entries = HEADER[:72] + len(encode_entry(read.tools[0])).to_bytes(4, "little") + HEADER[76:]
    pending = decode(entries + encode_entry(read.tools[0]) + encode_tail(EMPTY_STATE)[0]).state
    assert _shown(pending) == _shown(SessionState(tools=read.tools))


def _shown(state: SessionState) -> bytes:
    """What `==` would compare; but that tells NaN from itself."""
    return encode_tail(structs.replace(state, extra=dict(sorted(state.extra.items()))))[0]


@settings(max_examples=150, deadline=None)
@given(states)
def test_a_state_survives(state: SessionState) -> None:
    tail, complete = encode_tail(state)
    assert complete
    assert decode(HEADER + tail).state == state


@settings(max_examples=300, deadline=None)
@given(states, st.integers(0, 400), st.binary(max_size=4))
def test_any_damage_is_told_as_damage(state: SessionState, at: int, junk: bytes) -> None:
    raw = HEADER + encode_tail(state)[0]
    at = min(at, len(raw))
    try:
        decode(raw[:at] + junk + raw[at + len(junk) :])
    except DamagedEnvelopeError:
        return


@settings(max_examples=200, deadline=None)
@given(states, merged_tools, st.randoms())
def test_folding_knows_no_order_and_no_repetition(state: SessionState, added: list[StoredTool], chance: object) -> None:
    once = fold(state, added)
    shuffled = [*added, *added]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fold(state, shuffled) == once
    assert [tool.tool_id for tool in once.tools][: len(state.tools)] == [tool.tool_id for tool in state.tools]
    pinned = {tool.tool_id for tool in (*state.tools, *added) if tool.pinned}
    assert {tool.tool_id for tool in once.tools if tool.pinned} == pinned


def test_folding_nothing_changes_nothing() -> None:
    assert fold(EMPTY_STATE, []) == EMPTY_STATE


def test_pending_tools_are_folded_when_read() -> None:
    entry = StoredTool("a/1", b"x" * 32, pinned=True, first_seen_turn=4, called_turn=4)
    pending = encode_entry(entry)
    header = HEADER[:72] + len(pending).to_bytes(4, "little") + HEADER[76:]
    state = SessionState(seeded=True, tools=(StoredTool("a/0", b"z" * 32, pinned=False, first_seen_turn=1),))
    found = decode(header + pending + encode_tail(state)[0])
    assert found.state == structs.replace(state, tools=(*state.tools, entry))


def test_a_state_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(OversizedStateError):
        encode_tail(SessionState(extra={"zz": bytes(MAX_TAIL_BYTES)}, last_answer=(bytes(8),)))


@pytest.mark.parametrize("raw", [b"", b"TB", HEADER, HEADER + b"\xc1", HEADER + b"\x80"])
def test_no_state_is_damage(raw: bytes) -> None:
    with pytest.raises(DamagedEnvelopeError):
        decode(raw)


GOLDEN_STATE = SessionState(
    seeded=True,
    tools=(
        StoredTool("crm/find", bytes(range(32)), True, 1, called_turn=7, called_place=2, mark=5),
        StoredTool("git/日本", bytes(32), False, 300),
    ),
    ranked_turns=9,
    last_answer=(b"12345678", b"abcdefgh"),
)
GOLDEN_TAIL = bytes.fromhex(
    "84a173c3a1749297a863726d2f66696e64c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f0101070205"
    "97aa6769742fe697a5e69cacc420" + "00" * 32 + "00cd012c000000a17209a164c41031323334353637386162636465666768"
)


def test_version_1_is_written_and_read_as_ever() -> None:
    """Replicas of an older and a newer build share the sessions: a change here is a change of the format."""
    assert encode_tail(GOLDEN_STATE)[0] == GOLDEN_TAIL
    assert decode(HEADER + GOLDEN_TAIL).state == GOLDEN_STATE
