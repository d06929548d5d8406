"""A Cluster whose slots move and whose primaries hang, die and fail over (row 43)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec import structs

from tests.contract.session_store_tools import REF, SECRET, TIMEOUT, Place, Session, Stores, names, state_of, turn_key
from tests.faults.store_fixtures import QUARTER, in_step, quick_open, works
from tests.support.cluster import RedisCluster
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until_async
from toolbelay.sessions.keys import KeyMaker, generation_key, slot_of
from toolbelay.sessions.observer import StoreEvent
from toolbelay.sessions.port import Found, SaveStatus, StateUnavailableError

pytestmark = pytest.mark.faults


async def make_stores(cluster: RedisCluster) -> Stores:
    return Stores(Place(cluster.url, cluster.nodes, cluster))


@pytest.fixture
async def stores(redis_cluster: RedisCluster) -> AsyncIterator[Stores]:
    stores = await make_stores(redis_cluster)
    yield stores
    await stores.close()


def key_of(session: Session) -> str:
    return KeyMaker(SECRET).session(session.ref).session.decode()


def many(session: Session, count: int) -> list[Session]:
    return [
        dataclasses.replace(session, ref=structs.replace(REF, subject=f"user-{{{index}}}", session_id="}{x"))
        for index in range(count)
    ]


def move_slot(cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    """As an operator's tool does it: announce, move key by key, then settle."""
    source_id, target_id = (_text(node.command("CLUSTER", "MYID")) for node in (source, target))
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
        assert isinstance(keys, list)
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *(_text(key) for key in keys))
    for node in (target, source, *cluster.nodes):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)


def _text(reply: object) -> str:
    assert isinstance(reply, bytes | str)
    return reply.decode() if isinstance(reply, bytes) else reply


async def test_a_thousand_sessions_of_odd_names(stores: Stores, redis_cluster: RedisCluster) -> None:
    sessions = many(Session(stores.make()), 1000)
    for start in range(0, len(sessions), 50):
        some = sessions[start : start + 50]
        saved = await asyncio.gather(*(each.begin(state_of(f"own/{each.ref.subject}")) for each in some))
        assert {each.status for each in saved} == {SaveStatus.SAVED}
    for start in range(0, len(sessions), 50):
        some = sessions[start : start + 50]
        for each, opened in zip(some, await asyncio.gather(*(each.open() for each in some)), strict=True):
            assert names(opened.state) == [f"own/{each.ref.subject}"]
    assert all(node.command("DBSIZE") for node in redis_cluster.nodes)
    assert stores.watch.failures == {}


async def test_moving_slots_cost_only_retries(stores: Stores, redis_cluster: RedisCluster) -> None:
    sessions = many(Session(stores.make(pool_size=8)), 24)
    for each in sessions:
        await each.begin(state_of(f"own/{each.ref.subject}"))
    moving = True
    turns = dict.fromkeys(range(len(sessions)), 1)

    async def play(index: int) -> None:
        while moving:
            opened = await sessions[index].open()
            turns[index] += 1
            assert (opened.found, opened.turn) == (Found.PRESENT, turns[index])
            assert names(opened.state) == [f"own/{sessions[index].ref.subject}"]

    players = [asyncio.create_task(play(index)) for index in range(len(sessions))]
    moved = []
    for each in sessions[:8]:
        key = key_of(each)
        source = redis_cluster.node_of(key)
        target = next(node for node in redis_cluster.primaries if node is not source)
        moved.append((slot_of(key.encode()), target, source))
        await asyncio.to_thread(move_slot, redis_cluster, slot_of(key.encode()), source, target)
    moving = False
    await asyncio.gather(*players)
    assert stores.watch.events[StoreEvent.REDIRECTED] >= 1
    assert stores.watch.failures == {}
    for slot, here, back in moved:
        await asyncio.to_thread(move_slot, redis_cluster, slot, here, back)


async def test_a_moved_generation_is_fresh_once(stores: Stores, redis_cluster: RedisCluster) -> None:
    store = stores.make(pool_size=1)
    await store.raise_generation("acme", 3, timeout=TIMEOUT)
    seen = await store.see_generation("acme", timeout=TIMEOUT)
    assert seen.vouch is not None
    seen.vouch()
    assert [seen.fresh, await store.generation("acme", timeout=TIMEOUT)] == [True, (3, False)]
    key = generation_key("acme")
    source = redis_cluster.node_of(key.decode())
    target = next(node for node in redis_cluster.primaries if node is not source)
    for tenant in range(40):  # the target's connection is no new one
        await store.generation(f"tenant-{tenant}", timeout=TIMEOUT)
    for here, there in ((source, target), (target, source)):
        await asyncio.to_thread(move_slot, redis_cluster, slot_of(key), here, there)
        assert await store.generation("acme", timeout=TIMEOUT) == (3, True)


async def test_a_lost_shard_costs_only_its_sessions(fresh_redis_cluster: Callable[..., RedisCluster]) -> None:
    cluster = fresh_redis_cluster(node_timeout_ms=60_000)  # longer than the test: nobody is voted out
    stores = await make_stores(cluster)
    sessions = many(Session(stores.make()), 60)
    for each in sessions:
        await each.begin()
    lost = cluster.node_of(generation_key(REF.tenant).decode())
    hit = [each for each in sessions if cluster.node_of(key_of(each)) is lost]
    spared = [each for each in sessions if each not in hit]
    assert hit
    assert spared
    lost.suspend()
    try:
        for each in spared[:20]:
            opened = await quick_open(each)
            assert opened.found is Found.PRESENT
            assert opened.generation is None  # its shard is gone, so SQL is asked; the session is not lost for it
        for each in hit[:10]:
            with pytest.raises(StateUnavailableError):
                await asyncio.wait_for(quick_open(each, QUARTER), TIMEOUT)
        assert set(stores.watch.failures) <= {"timeout", "breaker_open"}
    finally:
        lost.resume()
    await wait_until_async(lambda: works(hit[0]), 10)
    assert (await hit[0].open()).found is Found.PRESENT
    await stores.close()


async def test_state_survives_a_primary_with_a_replica(fresh_redis_cluster: Callable[..., RedisCluster]) -> None:
    cluster = fresh_redis_cluster(replicas=1, node_timeout_ms=500)
    stores = await make_stores(cluster)
    store = stores.make()
    sessions = many(Session(store), 30)
    for each in sessions:
        await each.begin(state_of(f"own/{each.ref.subject}"))
    await store.raise_generation(REF.tenant, 6, timeout=TIMEOUT)
    assert [(await sessions[0].open()).generation for _ in range(2)] == [6, 6]
    lost = cluster.node_of(generation_key(REF.tenant).decode())
    (replica,) = cluster.replicas_of(lost)
    await wait_until_async(lambda: in_step(lost, replica), 10, "the replica has every write")
    lost.kill()

    async def all_work() -> bool:
        return all([await works(each) for each in sessions])

    await wait_until_async(all_work, 20, "the replica took over")
    for each in sessions:
        assert names((await each.peek()).state) == [f"own/{each.ref.subject}"]
    assert (await store.generation(REF.tenant, timeout=TIMEOUT))[0] == 6
    await stores.close()


async def test_an_unreachable_cluster_is_told_and_found_later(
    fresh_redis_cluster: Callable[..., RedisCluster],
) -> None:
    cluster = fresh_redis_cluster()
    stores = await make_stores(cluster)
    for node in cluster.nodes:
        node.suspend()
    session = Session(stores.make())
    with pytest.raises(StateUnavailableError):
        await asyncio.wait_for(quick_open(session, QUARTER), TIMEOUT)
    for node in cluster.nodes:
        node.resume()
    await wait_until_async(lambda: works(session), 20)
    await session.begin(key=turn_key("t1"))
    assert (await session.open(turn_key("t1"))).replayed
    await stores.close()
