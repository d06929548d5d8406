"""What stands under a session's key may be damaged, foreign, or written by another build."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import AsyncIterator, Callable

import msgpack  # type: ignore[import-untyped]
import pytest
from msgspec import structs

from tests.contract.session_store_tools import Place, Session, Stores, names, state_of, tool, turn_key
from tests.support.servers import RedisServer
from toolbelay.planner.model import SessionState
from toolbelay.sessions.observer import StoreEvent
from toolbelay.sessions.port import Found, SaveStatus, StateUnavailableError

KEY_BYTES = 30
HEADER_BYTES = 80


@pytest.fixture
def place(redis_server: RedisServer) -> Place:
    return Place(redis_server.url, [redis_server])


@pytest.fixture
async def stores(place: Place) -> AsyncIterator[Stores]:
    stores = Stores(place)
    yield stores
    await stores.close()


@pytest.fixture
def session(stores: Stores) -> Session:
    return Session(stores.make())


def with_byte(raw: bytes, at: int, value: int) -> bytes:
    return raw[:at] + bytes([value]) + raw[at + 1 :]


def with_tail(raw: bytes, body: object) -> bytes:
    tail: bytes = msgpack.packb(body)
    return raw[:HEADER_BYTES] + tail


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "an empty string": lambda _: b"",
    "one byte": lambda raw: raw[:1],
    "a cut header": lambda raw: raw[: HEADER_BYTES - 1],
    "a cut tail": lambda raw: raw[:-5],
    "a header alone": lambda raw: raw[:HEADER_BYTES],
    "JSON": lambda _: b'{"tools": ["a", "b"]}',
    "a cut JSON": lambda _: b'{"tools": ["a", ',
    "another magic": lambda raw: b"XX" + raw[2:],
    "version 0": lambda raw: with_byte(raw, 2, 0),
    "version 99": lambda raw: with_byte(raw, 2, 99),
    "turn keys of 3 bytes": lambda raw: with_byte(raw, 3, 3),
    "a header of 9 bytes": lambda raw: with_byte(raw, 4, 9),
    "a header beyond the end": lambda raw: with_byte(raw, 5, 0xFF),
    "200 turn keys": lambda raw: with_byte(raw, 6, 200),
    "pending beyond the end": lambda raw: with_byte(raw, 74, 0xFF),
    "an enormous turn": lambda raw: with_byte(raw, 39, 0xFF),
    "bytes behind the tail": lambda raw: raw + b"\x00",
    "a tail that is a list": lambda raw: with_tail(raw, [1, 2]),
    "a tail without tools": lambda raw: with_tail(raw, {"s": True}),
    "tools of another type": lambda raw: with_tail(raw, {"s": True, "t": 5}),
    "a tool of two fields": lambda raw: with_tail(raw, {"s": True, "t": [["a/b", b"x" * 32]]}),
    "a tool id of bytes": lambda raw: with_tail(raw, {"s": True, "t": [[b"a/b", b"x" * 32, 0, 1, 0, 0, 0]]}),
    "a short fingerprint": lambda raw: with_tail(raw, {"s": True, "t": [["a/b", b"x", 0, 1, 0, 0, 0]]}),
    "a negative turn": lambda raw: with_tail(raw, {"s": True, "t": [["a/b", b"x" * 32, 0, -1, 0, 0, 0]]}),
    "a tool twice": lambda raw: with_tail(raw, {"s": True, "t": [["a/b", b"x" * 32, 0, 1, 0, 0, 0]] * 2}),
    "half a digest": lambda raw: with_tail(raw, {"s": True, "t": [], "d": b"1234"}),
    "nested 5,000 deep": lambda raw: raw[:HEADER_BYTES] + b"\x91" * 5000,
    "5 MB": lambda raw: raw + b"\x00" * 5_000_000,
    "zeros": lambda raw: b"\x00" * len(raw),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_damage_is_a_counted_fresh_start(
    session: Session, stores: Stores, place: Place, damage: Callable[[bytes], bytes]
) -> None:
    await session.begin(SessionState(seeded=True, tools=(tool("a/b"),)))
    key = place.session_key()
    place.command("SET", key, damage(place.value(key)))
    for call in (session.open, session.touch, session.peek):
        assert (await call()).found is Found.DAMAGED
    assert stores.watch.events[StoreEvent.DAMAGED] == 3
    await session.merge(tool("a/c"))
    opened = await session.open(turn_key("t1"))
    assert (opened.turn, opened.state.tools) == (1, ())
    assert (await session.save(opened, state_of("a/new"), turn_key("t1"))).status is SaveStatus.SAVED
    again = await session.open()
    assert (again.found, names(again.state), again.turn) == (Found.PRESENT, ["a/new"], 2)


async def test_a_list_under_the_key_is_a_fresh_start(session: Session, place: Place) -> None:
    await session.begin()
    key = place.session_key()
    place.command("DEL", key)
    place.command("RPUSH", key, "a", "b")
    opened = await session.open()
    assert opened.found is Found.DAMAGED
    assert (await session.save(opened, state_of("a/new"))).status is SaveStatus.SAVED
    assert (await session.open()).found is Found.PRESENT


async def test_a_string_under_the_index_is_replaced(session: Session, place: Place) -> None:
    await session.begin()
    index = place.index_key()
    place.command("SET", index, "foreign")
    assert (await session.open()).found is Found.PRESENT
    assert place.command("TYPE", index) == b"zset"
    place.command("SET", index, "foreign")
    await session.end()
    assert await session.store.end_principal("acme", "https://idp.example", "user-1", timeout=5) == 0


async def test_damage_repaired_by_another_turn_conflicts(session: Session, place: Place) -> None:
    await session.begin()
    place.command("SET", place.session_key(), "junk")
    one, other = await session.open(), await session.open()
    assert (await session.save(one, state_of("a/one"))).status is SaveStatus.SAVED
    assert (await session.save(other, state_of("a/other"))).status is SaveStatus.CONFLICT


async def test_a_newer_builds_fields_survive_this_build(session: Session, place: Place) -> None:
    """Longer header, longer turn keys, a further map key, further elements of a tool: all kept by a rewrite."""
    await session.begin(state_of("a/kept"), key=turn_key("t1"))
    key = place.session_key()
    raw = place.value(key)
    keys, tail = raw[HEADER_BYTES : HEADER_BYTES + KEY_BYTES], msgpack.unpackb(raw[HEADER_BYTES + KEY_BYTES :])
    header = with_byte(raw[:HEADER_BYTES], 3, KEY_BYTES + 2)
    header = header[:4] + struct.pack("<H", HEADER_BYTES + 6) + header[6:] + b"newer!"
    tail["zz"] = {"a": [1, b"\x00", None]}
    tail["t"][0] += [2.5, "more"]
    place.command("SET", key, header + keys + b"K2" + msgpack.packb(tail))

    opened = await session.open(turn_key("t1"))
    assert (opened.found, opened.replayed) == (Found.PRESENT, True)
    await session.open(turn_key("t2"))
    grown = structs.replace(opened.state, tools=(*opened.state.tools, tool("a/new")))
    assert (await session.save(opened, grown, turn_key("t1"), spent=1)).status is SaveStatus.SAVED

    raw = place.value(key)
    assert raw[HEADER_BYTES : HEADER_BYTES + 6] == b"newer!"
    keys_at = HEADER_BYTES + 6
    assert raw[keys_at + KEY_BYTES : keys_at + KEY_BYTES + 2] == b"K2"
    stored = msgpack.unpackb(raw[keys_at + 2 * (KEY_BYTES + 2) :])
    assert stored["zz"] == {"a": [1, b"\x00", None]}
    assert [row[7:] for row in stored["t"]] == [[2.5, "more"], []]
    assert (await session.open(turn_key("t2"))).replayed


async def test_sixteen_ordinary_tools_fit_into_two_kibibytes(session: Session, place: Place) -> None:
    tools = tuple(tool(f"github/create_pull_request_review_{index:02}", pinned=True, called=9) for index in range(16))
    digests = tuple(bytes([index]) * 8 for index in range(20))
    await session.begin(SessionState(seeded=True, tools=tools, last_answer=digests))
    for number in range(10):
        await session.open(turn_key(f"t{number}"))
    assert len(place.value(place.session_key())) <= 2048


async def test_a_state_over_the_bound_loses_its_digests_first(session: Session, stores: Stores) -> None:
    tools = tuple(tool(f"toolset/{index:03}-{'n' * 180}") for index in range(128))
    state = SessionState(seeded=True, tools=tools, last_answer=tuple(bytes(8) for _ in range(3000)))
    await session.begin(state)
    assert stores.watch.events[StoreEvent.DIGESTS_DROPPED] == 1
    opened = await session.open()
    assert opened.state == structs.replace(state, last_answer=())

    huge = structs.replace(state, extra={"zz": bytes(60_000)})
    with pytest.raises(StateUnavailableError, match="too_large"):
        await session.save(opened, huge)
    assert (await session.peek()).state == opened.state


async def test_the_header_is_laid_out_as_documented(session: Session, place: Place) -> None:
    """Version 1, field by field; replicas of other builds read it."""
    await session.begin(state_of("a/b"), key=turn_key("t1"))
    second = dataclasses.replace(session, epoch=3)
    opened = await session.open(turn_key("t2"))
    assert (await session.save(opened, state_of("a/b", "a/c"), turn_key("t2"), spent=2)).status is SaveStatus.SAVED
    raw = place.value(place.session_key())
    fields = struct.unpack_from("<2sBBHBx8sQQQQQQ8sII", raw)
    magic, version, key_bytes, start, keys, incarnation, revision, epoch, turn, created, seen, last_turn, *rest = fields
    assert (magic, version, key_bytes, start, keys) == (b"TB", 1, KEY_BYTES, HEADER_BYTES, 2)
    assert len(set(incarnation)) > 1
    assert (revision, epoch, turn) == (2, 0, 2)
    assert 0 < created <= last_turn <= seen
    assert rest == [bytes(8), 0, 0]
    key = turn_key("t2")
    at = HEADER_BYTES + KEY_BYTES
    assert raw[at : at + KEY_BYTES] == key.identity + key.content + struct.pack("<IH", 2, 2)
    await second.begin()
    assert struct.unpack_from("<Q", place.value(place.session_key()), 24) == (3,)
