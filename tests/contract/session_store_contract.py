"""The session store's contract. Each suite that runs it brings a `place` fixture: the real servers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from tests.contract.session_store_tools import (
    REF,
    TTL,
    Place,
    Session,
    Stores,
    names,
    state_of,
    tool,
    turn_key,
)
from toolbelay.planner.model import EMPTY_STATE, SessionState
from toolbelay.sessions.observer import StoreEvent
from toolbelay.sessions.port import Found, SaveStatus

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
        short = dataclasses.replace(session, ref=structs.replace(REF, session_id="short"), ttl=60)
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
        again = await session.peek()
        assert structs.replace(again, expires_ms=once.expires_ms, vouch=None) == structs.replace(once, vouch=None)

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
