"""The session store's contract. Each suite that runs it brings a `place` fixture: the real servers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest
from toolbelay.planner.model import EMPTY_STATE, SessionState
from toolbelay.sessions.observer import StoreEvent
from toolbelay.sessions.port import Found, SaveStatus, SessionRef, StateUnavailableError, TurnKey

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
    tool,
    turn_key,
)

KEYS_REMEMBERED = 8


class ContractFixtures:
    @pytest.fixture
    async def stores(self, place: Place) -> AsyncIterator[Stores]:
        stores = Stores(place)
        yield stores
        await stores.close()

    @pytest.fixture
    def session(self, stores: Stores) -> Session:
        return Session(stores.make())


class TurnContract(ContractFixtures):
    """open, save, touch, peek: a session's ordinary life."""

    async def test_an_absent_session_is_turn_one_and_nothing_is_written(self, session: Session, place: Place) -> None:
        opened = await session.open(turn_key("t1"))
        assert (opened.found, opened.state, opened.turn) == (Found.ABSENT, EMPTY_STATE, 1)
        assert (opened.idle_ms, opened.replayed, opened.generation) == (None, False, None)
        assert (await session.touch()).turn == 0
        assert (await session.peek()).turn == 0
        assert place.keys() == []

    async def test_a_saved_state_comes_back_whole(self, session: Session) -> None:
        state = SessionState(
            seeded=True,
            tools=(tool("crm/find", pinned=True, turn=1, called=7, place=2), tool("Größe/日本", turn=3)),
            ranked_turns=5,
            last_answer=(b"12345678", b"abcdefgh"),
        )
        saved = await session.begin(state)
        assert (saved.status, saved.revision) == (SaveStatus.SAVED, 1)
        opened = await session.open()
        assert (opened.found, opened.state, opened.revision, opened.turn) == (Found.PRESENT, state, 1, 2)

    async def test_times_are_the_servers(self, session: Session, place: Place) -> None:
        await session.begin()
        opened = await session.open()
        with place.servers[0].client() as client:
            seconds, _ = client.time()
        assert abs(opened.last_seen_ms - seconds * 1000) < 5000
        assert opened.created_ms <= opened.last_seen_ms
        assert opened.expires_ms == opened.last_seen_ms + TTL * 1000
        assert opened.idle_ms is not None
        assert 0 <= opened.idle_ms < 5000

    async def test_each_turn_gets_the_next_number(self, session: Session) -> None:
        await session.begin()
        assert [(await session.open()).turn for _ in range(3)] == [2, 3, 4]

    async def test_touch_and_peek_count_no_turn(self, session: Session) -> None:
        await session.begin()
        await session.open()
        assert [(await session.touch()).turn, (await session.peek()).turn, (await session.open()).turn] == [2, 2, 3]

    async def test_a_known_turn_key_is_a_replay_of_its_number(self, session: Session) -> None:
        first, second = turn_key("t1"), turn_key("t2")
        await session.begin(key=first)
        opened = await session.open(second)
        await session.save(opened, opened.state, second, spent=2)
        again = await session.open(first)
        assert (again.replayed, again.turn, again.spent) == (True, 1, 0)
        again = await session.open(second)
        assert (again.replayed, again.turn, again.spent, again.key_reused) == (True, 2, 2, False)
        assert (await session.open(turn_key("t3"))).turn == 3

    async def test_the_larger_spending_of_a_turn_stays(self, session: Session) -> None:
        key = turn_key("t1")
        await session.save(await session.open(key), state_of("a/b"), key, spent=3)
        again = await session.open(key)
        await session.save(again, again.state, key, spent=1)
        assert (await session.open(key)).spent == 3

    async def test_a_turn_id_with_other_content_is_a_new_turn_and_told(self, session: Session) -> None:
        await session.begin(key=turn_key("t1", "content"))
        opened = await session.open(turn_key("t1", "other"))
        assert (opened.replayed, opened.key_reused, opened.turn) == (False, True, 2)

    async def test_the_last_eight_turn_keys_are_known(self, session: Session) -> None:
        await session.begin(key=turn_key("t1"))
        for number in range(2, KEYS_REMEMBERED + 2):
            await session.open(turn_key(f"t{number}"))
        assert (await session.open(turn_key("t2"))).replayed
        assert not (await session.open(turn_key("t1"))).replayed

    async def test_a_reload_keeps_its_number(self, session: Session) -> None:
        await session.begin()
        opened = await session.open(turn_key("t2"))
        for number in range(3, KEYS_REMEMBERED + 4):
            await session.open(turn_key(f"t{number}"))  # t2's key falls out
        reloaded = await session.open(turn_key("t2"), opened.turn)
        assert (reloaded.turn, reloaded.replayed) == (2, False)
        again = await session.open(turn_key("t2"))
        assert (again.turn, again.replayed) == (2, True)
        assert (await session.open(None, 2)).turn == 2

    async def test_a_number_given_to_an_absent_session_was_provisional(self, session: Session) -> None:
        first, second = turn_key("t1"), turn_key("t2")
        await session.open(second)
        await session.begin(key=first)
        assert (await session.open(second, 1)).turn == 2

    async def test_saving_keeps_what_other_turns_noted(self, session: Session) -> None:
        await session.begin(key=turn_key("t1"))
        mine = await session.open(turn_key("t2"))
        other = await session.open(turn_key("t3"))
        assert (await session.save(mine, state_of("a/b"), turn_key("t2"))).status is SaveStatus.SAVED
        seen = await session.open(turn_key("t3"))
        assert (seen.replayed, seen.turn, other.turn) == (True, 3, 3)
        assert (await session.open()).turn == 4

    async def test_every_call_renews_every_key_and_peek_none(self, session: Session, place: Place) -> None:
        await session.begin()
        keys = place.keys()
        assert len(keys) == 2
        for call in (session.open, session.touch):
            for key in keys:
                place.command("EXPIRE", key, 50)
            await session.peek()
            assert all(place.number("TTL", key) <= 50 for key in keys)
            await call()
            assert all(place.number("TTL", key) > TTL - 60 for key in keys)

    async def test_the_index_lives_as_long_as_its_longest_member(self, session: Session, place: Place) -> None:
        await session.begin()
        short = dataclasses.replace(session, ref=dataclasses.replace(REF, session_id="short"), ttl=60)
        await short.begin()
        await short.open()
        assert place.number("TTL", place.index_key()) > TTL - 60

    async def test_an_expired_session_is_a_fresh_start(self, session: Session, place: Place) -> None:
        await session.begin()
        opened = await session.open()
        place.command("DEL", place.session_key())
        assert (await session.save(opened, opened.state)).status is SaveStatus.CONFLICT
        again = await session.open(None, opened.turn)
        assert (again.found, again.turn) == (Found.ABSENT, 1)
        assert (await session.save(again, again.state)).status is SaveStatus.SAVED


class ConcurrencyContract(ContractFixtures):
    async def test_of_two_saves_the_second_conflicts(self, session: Session) -> None:
        await session.begin()
        one, other = await session.open(), await session.open()
        assert (await session.save(one, state_of("a/one"))).status is SaveStatus.SAVED
        lost = await session.save(other, state_of("a/other"))
        assert (lost.status, lost.revision) == (SaveStatus.CONFLICT, other.revision)
        assert names((await session.open()).state) == ["a/one"]

    async def test_of_two_creations_the_second_conflicts(self, session: Session) -> None:
        one, other = await session.open(), await session.open()
        assert (await session.save(one, state_of("a/one"))).status is SaveStatus.SAVED
        assert (await session.save(other, state_of("a/other"))).status is SaveStatus.CONFLICT

    async def test_two_turns_at_once_lose_no_pin(self, stores: Stores) -> None:
        """Two replicas, 200 rounds, a barrier between load and save."""
        replicas = [Session(stores.make()), Session(stores.make())]
        rounds, barrier = 200, asyncio.Barrier(2)
        conflicts = 0

        async def play(replica: Session, who: str) -> None:
            nonlocal conflicts
            for number in range(rounds):
                opened = await replica.open(turn_key(f"{who}{number}"))
                await barrier.wait()
                while True:
                    pin = tool(f"{who}/{number}", pinned=True, turn=opened.turn)
                    kept = opened.state.tools[-60:]
                    saved = await replica.save(opened, SessionState(seeded=True, tools=(*kept, pin)))
                    if saved.status is SaveStatus.SAVED:
                        break
                    conflicts += 1
                    opened = await replica.open(turn_key(f"{who}{number}"), opened.turn)
                await barrier.wait()
                seen = names((await replica.peek()).state)
                assert {f"a/{number}", f"b/{number}"} <= set(seen)

        await asyncio.gather(play(replicas[0], "a"), play(replicas[1], "b"))
        final = await replicas[0].peek()
        assert final.revision == 2 * rounds  # each save once, none twice
        assert final.turn == 2 * rounds
        assert conflicts >= rounds

    async def test_one_turn_id_sent_twice_at_once_is_one_turn(self, stores: Stores) -> None:
        replicas = [Session(stores.make()), Session(stores.make())]
        await replicas[0].begin()
        for number in range(20):
            key = turn_key(f"retry-{number}")
            one, other = await asyncio.gather(*(replica.open(key) for replica in replicas))
            assert one.turn == other.turn == number + 2
            assert {one.replayed, other.replayed} == {True, False}

    async def test_one_first_turn_sent_twice_at_once_spends_once(self, session: Session) -> None:
        key = turn_key("t1")
        one, other = await session.open(key), await session.open(key)
        await session.save(one, state_of("a/b"), key, spent=2)
        assert (await session.save(other, state_of("a/c"), key, spent=2)).status is SaveStatus.CONFLICT
        again = await session.open(key, other.turn)
        assert (again.replayed, again.turn, again.spent) == (True, 1, 2)

    async def test_forgotten_scripts_are_sent_again_and_run_once(self, stores: Stores, place: Place) -> None:
        session = Session(stores.make(pool_size=4))
        await session.begin()

        async def forget() -> None:
            while True:
                for server in place.servers:
                    await asyncio.to_thread(server.command, "SCRIPT", "FLUSH")
                await asyncio.sleep(0.005)

        flushing = asyncio.create_task(forget())
        turns = [await asyncio.gather(*(session.open() for _ in range(4))) for _ in range(50)]
        flushing.cancel()
        numbers = sorted(opened.turn for some in turns for opened in some)
        assert numbers == list(range(2, 202))
        assert stores.watch.events[StoreEvent.SCRIPT_RELOADED] > 2


class MergeContract(ContractFixtures):
    async def test_merged_tools_are_folded_in_by_the_next_reader(self, session: Session) -> None:
        await session.begin(state_of("a/one"))
        before = await session.open()
        await session.merge(tool("a/two", pinned=True, turn=2, called=2), tool("a/one", pinned=True, called=2))
        after = await session.peek()
        assert names(after.state) == ["a/one", "a/two"]
        assert all(stored.pinned for stored in after.state.tools)
        assert after.revision == before.revision + 1
        assert (await session.save(before, before.state)).status is SaveStatus.CONFLICT

    async def test_a_save_keeps_the_folded_state(self, session: Session) -> None:
        await session.begin(state_of("a/one"))
        await session.merge(tool("a/two", pinned=True, turn=2))
        opened = await session.open()
        await session.save(opened, opened.state)
        assert (await session.peek()).state == opened.state

    async def test_the_same_merge_again_changes_nothing(self, session: Session) -> None:
        await session.begin(state_of("a/one"))
        await session.merge(tool("a/two", pinned=True, turn=2))
        once = await session.peek()
        await session.merge(tool("a/two", pinned=True, turn=2))
        assert await session.peek() == dataclasses.replace(once, expires_ms=(await session.peek()).expires_ms)

    async def test_nothing_is_merged_into_an_absent_or_ended_session(self, session: Session, place: Place) -> None:
        await session.merge(tool("a/two", pinned=True))
        assert place.keys() == []
        await session.begin()
        await session.end()
        await session.merge(tool("a/two", pinned=True))
        assert (await session.peek()).found is Found.ABSENT

    async def test_waiting_tools_are_bounded_and_the_rest_is_counted(
        self, session: Session, stores: Stores, place: Place
    ) -> None:
        await session.begin()
        for number in range(40):
            await session.merge(*(tool(f"toolset/{number:03}-{index:03}-{'x' * 40}") for index in range(16)))
        assert stores.watch.events[StoreEvent.MERGE_REFUSED] > 0
        assert len(place.value(place.session_key())) < 64 * 1024
        assert (await session.open()).found is Found.PRESENT


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
        mine = [Session(store, dataclasses.replace(REF, session_id=f"chat-{index}")) for index in range(3)]
        other = Session(store, dataclasses.replace(REF, subject="user-2"))
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
        made = [Session(store, dataclasses.replace(REF, session_id=f"chat-{index}")) for index in range(4)]
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
        made = [Session(store, dataclasses.replace(REF, session_id=f"chat-{index}")) for index in range(3)]
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
    async def test_crafted_names_never_share(
        self, stores: Stores, one: dict[str, str], other: dict[str, str]
    ) -> None:
        store = stores.make()
        first, second = (Session(store, dataclasses.replace(REF, **names_)) for names_ in (one, other))
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

    async def test_the_generation_is_fresh_once_per_connection_and_tenant(self, stores: Stores) -> None:
        session = Session(stores.make(pool_size=1))
        other = dataclasses.replace(session, ref=dataclasses.replace(REF, tenant="other"))
        await session.store.ping(timeout=TIMEOUT)  # a connection made for something else proves nothing
        assert [(await session.open()).fresh_connection for _ in range(3)] == [True, False, False]
        assert [(await other.open()).fresh_connection for _ in range(2)] == [True, False]
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
