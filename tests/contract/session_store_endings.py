"""The session store's contract, second half: endings, quota, isolation. Each suite that runs it brings a `place` fixture: the real servers."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from msgspec import structs

from tests.contract.session_store_contract import ContractFixtures
from tests.contract.session_store_tools import (
    REF,
    SECRET,
    TIMEOUT,
    TTL,
    Place,
    Session,
    Stores,
    names,
    state_of,
)
from toolbelay.planner.model import EMPTY_STATE
from toolbelay.sessions.observer import StoreEvent
from toolbelay.sessions.port import Found, SaveStatus, SessionRef, StateUnavailableError, TurnKey


class EndContract(ContractFixtures):
    async def test_an_ended_session_is_absent(self, session: Session, place: Place) -> None:
        await session.begin()
        await session.end()
        opened = await session.open()
        assert (opened.found, opened.turn) == (Found.ABSENT, 1)
        assert 50 < place.number("TTL", place.session_key()) <= 60
        assert place.keys("tb:*:idx") == []

    @pytest.mark.parametrize("was", ["present", "absent", "ended"])
    async def test_a_turn_from_before_the_end_does_not_save(self, session: Session, was: str) -> None:
        if was != "absent":
            await session.begin()
        if was == "ended":
            await session.end()
        opened = await session.open()
        await session.end()
        assert (await session.save(opened, state_of("a/b"))).status is SaveStatus.ENDED
        assert (await session.peek()).found is Found.ABSENT

    async def test_a_turn_from_after_the_end_begins_anew(self, session: Session, place: Place) -> None:
        await session.begin()
        await session.end()
        opened = await session.open()
        assert (await session.save(opened, state_of("a/b"))).status is SaveStatus.SAVED
        assert names((await session.open()).state) == ["a/b"]
        await session.end()
        opened = await session.open()
        place.command("DEL", place.session_key())  # the tombstone's time is over
        assert (await session.save(opened, state_of("a/b"))).status is SaveStatus.SAVED

    @pytest.mark.parametrize("was", ["present", "absent", "ended"])
    async def test_a_session_begun_anew_is_not_the_old_turns(self, session: Session, was: str) -> None:
        if was != "absent":
            await session.begin()
        if was == "ended":
            await session.end()
        early = await session.open()
        await session.end()
        await session.begin(state_of("a/new"))
        assert (await session.save(early, state_of("a/old"))).status is SaveStatus.ENDED
        assert names((await session.peek()).state) == ["a/new"]

    async def test_two_turns_after_the_end_conflict_as_usual(self, session: Session) -> None:
        await session.end()
        one, other = await session.open(), await session.open()
        assert (await session.save(one, state_of("a/one"))).status is SaveStatus.SAVED
        assert (await session.save(other, state_of("a/other"))).status is SaveStatus.CONFLICT

    async def test_ending_twice_is_fine(self, session: Session) -> None:
        await session.end()
        await session.end()
        assert (await session.peek()).found is Found.ABSENT

    async def test_ending_a_principal_ends_its_sessions_and_running_turns(self, stores: Stores, place: Place) -> None:
        store = stores.make()
        mine = [Session(store, structs.replace(REF, session_id=f"chat-{index}")) for index in range(3)]
        other = Session(store, structs.replace(REF, subject="user-2"))
        for each in (*mine[:2], other):
            await each.begin()
        running = [await each.open() for each in mine]
        assert await store.end_principal(REF.tenant, REF.issuer, REF.subject, timeout=TIMEOUT) == 2
        for each, opened in zip(mine, running, strict=True):
            assert (await each.save(opened, state_of("a/b"))).status is SaveStatus.ENDED
            assert (await each.begin()).status is SaveStatus.SAVED
        assert (await other.peek()).found is Found.PRESENT
        assert await store.end_principal(REF.tenant, REF.issuer, REF.subject, timeout=TIMEOUT) == 3
        assert await store.end_principal(REF.tenant, REF.issuer, REF.subject, timeout=TIMEOUT) == 0

    async def test_an_older_epoch_is_absent_and_replaced(self, session: Session) -> None:
        await session.begin(state_of("a/old"))
        later = dataclasses.replace(session, epoch=1)
        one, other = await later.open(), await later.open()
        assert (one.found, one.turn, one.state) == (Found.ABSENT, 1, EMPTY_STATE)
        assert (await later.peek()).found is Found.ABSENT
        assert (await later.save(one, state_of("a/new"))).status is SaveStatus.SAVED
        assert (await later.save(other, state_of("a/other"))).status is SaveStatus.CONFLICT
        assert names((await later.open()).state) == ["a/new"]

    async def test_a_turn_from_before_the_tenants_end_does_not_save(self, session: Session) -> None:
        await session.begin()
        opened = await session.open()
        later = dataclasses.replace(session, epoch=1)
        assert (await later.save(opened, opened.state)).status is SaveStatus.ENDED

    async def test_a_worker_behind_does_not_lower_the_epoch(self, session: Session) -> None:
        later = dataclasses.replace(session, epoch=5)
        await later.begin()
        opened = await session.open()
        assert (opened.found, opened.epoch) == (Found.PRESENT, 5)
        await session.save(opened, opened.state)
        assert (await later.open()).found is Found.PRESENT


class OtherContract(ContractFixtures):
    """Quota, isolation, generations, secrets."""

    async def test_the_least_recently_used_session_makes_room(self, stores: Stores, place: Place) -> None:
        store = stores.make(sessions_per_principal=3)
        made = [Session(store, structs.replace(REF, session_id=f"chat-{index}")) for index in range(4)]
        for each in made[:3]:
            await each.begin()
            await asyncio.sleep(0.002)  # last seen is counted in milliseconds
        await made[0].open()
        await asyncio.sleep(0.002)
        await made[3].begin()
        assert [(await each.peek()).found for each in made] == [
            Found.PRESENT,
            Found.ABSENT,
            Found.PRESENT,
            Found.PRESENT,
        ]
        assert stores.watch.events[StoreEvent.EVICTED] == 1
        assert place.number("ZCARD", place.index_key()) == 3

    async def test_expired_sessions_do_not_count(self, stores: Stores, place: Place) -> None:
        store = stores.make(sessions_per_principal=2)
        made = [Session(store, structs.replace(REF, session_id=f"chat-{index}")) for index in range(3)]
        await made[0].begin()
        await asyncio.sleep(0.002)
        await made[1].begin()
        (expired,) = set(place.keys("tb:*:s:*")) - {await _only_key_of(made[0], place)}
        place.command("DEL", expired)
        await made[2].begin()
        assert (await made[0].peek()).found is Found.PRESENT
        assert stores.watch.events[StoreEvent.EVICTED] == 0

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"subject": "a:b", "session_id": "c"}, {"subject": "a", "session_id": "b:c"}),
            ({"subject": "alice"}, {"subject": "ali", "issuer": "https://idp.examplece"}),
            ({"route": "r", "session_id": "1:x"}, {"route": "r1:", "session_id": "x"}),
            ({"issuer": "https://a.example"}, {"issuer": "https://b.example"}),
            ({"tenant": "t1"}, {"tenant": "t2"}),
            ({"session_id": "{x}"}, {"session_id": "x"}),
            ({"session_id": "a}b{c"}, {"session_id": "abc"}),
            ({"subject": "é"}, {"subject": "e\u0301"}),
            ({"session_id": "s "}, {"session_id": "s"}),
        ],
    )
    async def test_crafted_names_never_share(self, stores: Stores, one: dict[str, str], other: dict[str, str]) -> None:
        store = stores.make()
        first, second = (Session(store, structs.replace(REF, **names_)) for names_ in (one, other))
        await first.begin(state_of("secret/one"))
        assert (await second.open()).found is Found.ABSENT
        await second.begin(state_of("secret/other"))
        assert names((await first.peek()).state) == ["secret/one"]

    async def test_nothing_of_a_principal_is_readable(self, stores: Stores, place: Place) -> None:
        ref = SessionRef("tenant-x", "https://issuer-x", "subject-x", "route-x", "{session}-x")
        await Session(stores.make(), ref).begin(key=TurnKey(b"identity", b"content-content-"))
        dump = "".join(place.keys()).encode() + place.value(place.session_key())
        for word in (b"tenant-x", b"issuer-x", b"subject-x", b"route-x", b"session}-x"):
            assert word not in dump
        (tag,) = {key.partition("{")[2].partition("}")[0] for key in place.keys()}  # noqa: SIM118
        assert len(tag) == 24

    async def test_another_secret_is_another_world(self, stores: Stores) -> None:
        await Session(stores.make()).begin()
        assert (await Session(stores.make(secret=b"b" * 32)).open()).found is Found.ABSENT

    async def test_a_session_follows_the_secret_once(self, stores: Stores, place: Place) -> None:
        await Session(stores.make()).begin(state_of("a/kept", pinned=["a/kept"]))
        moved = Session(stores.make(secret=b"b" * 32, previous=SECRET))
        assert names((await moved.peek()).state) == ["a/kept"]
        opened = await moved.open()
        assert (opened.found, names(opened.state), opened.turn) == (Found.PRESENT, ["a/kept"], 2)
        assert (await moved.save(opened, opened.state)).status is SaveStatus.SAVED
        assert len(place.keys("tb:*:s:*")) == 1
        assert stores.watch.events[StoreEvent.ADOPTED] == 1
        assert (await moved.open()).turn == 3

    async def test_an_ended_session_does_not_come_back_from_the_old_secret(self, stores: Stores, place: Place) -> None:
        old = Session(stores.make())
        await old.begin()
        moved = Session(stores.make(secret=b"b" * 32, previous=SECRET))
        await moved.end()
        for key in place.keys("tb:*:s:*"):
            place.command("DEL", key)  # the tombstones' time is over
        assert (await moved.open()).found is Found.ABSENT
        await old.begin()
        assert await moved.store.end_principal(REF.tenant, REF.issuer, REF.subject, timeout=TIMEOUT) == 1
        assert (await moved.open()).found is Found.ABSENT

    async def test_a_generation_only_rises(self, session: Session, place: Place) -> None:
        store = session.store
        assert (await store.generation("acme", timeout=TIMEOUT))[0] is None
        assert await store.raise_generation("acme", 7, timeout=TIMEOUT) == 7
        assert await store.raise_generation("acme", 5, timeout=TIMEOUT) == 7
        assert (await store.generation("acme", timeout=TIMEOUT))[0] == 7
        assert (await session.open()).generation == 7
        assert (await session.peek()).generation == 7
        assert (await store.generation("other", timeout=TIMEOUT))[0] is None
        (key,) = place.keys("tb:gen:*")
        place.command("EXPIRE", key, 50)
        await store.raise_generation("acme", 7, timeout=TIMEOUT)
        assert place.number("TTL", key) > 23 * 3600

    @pytest.mark.keeps_keys("tb:gen:*")
    @pytest.mark.parametrize("foreign", [b"", b"-3", b"7x", b"9" * 30, b"list"])
    async def test_a_foreign_generation_is_unknown_and_replaced(
        self, session: Session, place: Place, stores: Stores, foreign: bytes
    ) -> None:
        await session.store.raise_generation("acme", 1, timeout=TIMEOUT)
        (key,) = place.keys("tb:gen:*")
        place.command("DEL", key)
        place.command("RPUSH" if foreign == b"list" else "SET", key, foreign)
        assert (await session.store.generation("acme", timeout=TIMEOUT))[0] is None
        assert (await session.open()).generation is None
        assert stores.watch.events[StoreEvent.FOREIGN_GENERATION] == 2
        assert await session.store.raise_generation("acme", 9, timeout=TIMEOUT) == 9
        assert (await session.open()).generation == 9

    async def test_the_generation_is_fresh_until_vouched_for_per_connection_and_tenant(self, stores: Stores) -> None:
        session = Session(stores.make(pool_size=1))
        other = dataclasses.replace(session, ref=structs.replace(REF, tenant="other"))
        await session.store.ping(timeout=TIMEOUT)  # a connection made for something else proves nothing
        assert [(await session.open()).fresh_connection for _ in range(3)] == [True, True, True]
        seen = await session.store.see_generation(REF.tenant, timeout=TIMEOUT, proven=True)
        assert (seen.value, seen.fresh, seen.vouch) == (None, True, None)
        for each in (session, other):
            opened = await each.open()
            assert opened.vouch is not None
            opened.vouch()
            assert [(await each.open()).fresh_connection for _ in range(2)] == [False, False]
        assert (await session.store.generation(REF.tenant, timeout=TIMEOUT))[1] is False

    async def test_ping_proves_writes_and_leaves_nothing_for_long(self, session: Session, place: Place) -> None:
        await session.store.ping(timeout=TIMEOUT)
        assert 0 < place.number("TTL", "tb:probe") <= 10

    async def test_an_unreadable_deadline_is_refused_at_once(self, session: Session) -> None:
        with pytest.raises(StateUnavailableError, match="timeout"):
            await session.store.open(REF, epoch=0, ttl_seconds=TTL, timeout=0)


async def _only_key_of(session: Session, place: Place) -> str:
    """The key that a touch of this session renews."""
    keys = place.keys("tb:*:s:*")
    for key in keys:
        place.command("EXPIRE", key, 50)
    await session.touch()
    (key,) = [key for key in keys if place.number("TTL", key) > 50]
    return key
