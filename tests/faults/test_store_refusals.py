"""A server that answers, but refuses: full, read-only, cut off, loading (rows 41 and 44), busy, forbidden."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec import structs

from tests.contract.session_store_tools import REF, TIMEOUT, Place, Session, Stores, names, state_of
from tests.faults.store_fixtures import cause_of, in_step, ping_cause, quick_open, works
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer, Server
from tests.support.waiting import wait_until_async
from toolbelay.sessions.observer import StoreEvent
from toolbelay.sessions.port import Found, SaveStatus

pytestmark = pytest.mark.faults

STATE_PAGE = Path(__file__).parents[2] / "docs" / "state.md"


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, fresh_redis_server: Callable[..., RedisServer]) -> RedisServer:
    return fresh_redis_server(kind=request.param)


@pytest.fixture
async def stores(server: RedisServer) -> AsyncIterator[Stores]:
    stores = Stores(Place(server.url, [server]))
    yield stores
    await stores.close()


@pytest.fixture
def session(stores: Stores) -> Session:
    return Session(stores.make(pool_size=4))


async def test_full_memory_is_told_and_passes(session: Session, server: RedisServer) -> None:
    await session.begin()
    opened = await session.open()
    server.command("CONFIG", "SET", "maxmemory", "1")
    assert await cause_of(session.save(opened, state_of("a/c"))) == "oom"
    assert await cause_of(quick_open(session)) == "oom"
    assert await ping_cause(session) == "oom"
    assert (await session.peek()).found is Found.PRESENT  # reads go on
    server.command("CONFIG", "SET", "maxmemory", "0")
    assert (await session.save(opened, state_of("a/c"))).status is SaveStatus.SAVED


async def test_evicted_sessions_are_fresh_starts(session: Session, server: RedisServer) -> None:
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    base = server.command("INFO", "memory")
    assert isinstance(base, dict)
    server.command("CONFIG", "SET", "maxmemory", base["used_memory"] + 600_000)
    state = state_of(*(f"toolset/a-tool-of-some-length-{index}" for index in range(20)))
    sessions = [dataclasses.replace(session, ref=structs.replace(REF, subject=f"user-{index}")) for index in range(600)]
    for each in sessions:
        assert (await each.begin(state)).status is SaveStatus.SAVED
    found = [await each.peek() for each in sessions]
    assert {opened.found for opened in found} == {Found.PRESENT, Found.ABSENT}
    assert all(opened.state == state for opened in found if opened.found is Found.PRESENT)
    for each in sessions[:50]:
        saved = await each.save(await each.open(), state)
        # Evicted between the two calls: the turn conflicts, reads again and begins anew.
        assert saved.status in {SaveStatus.SAVED, SaveStatus.CONFLICT}
        if saved.status is SaveStatus.CONFLICT:
            assert (await each.begin(state)).status is SaveStatus.SAVED


async def test_a_read_only_server_is_told_and_passes(session: Session, server: RedisServer) -> None:
    await session.store.raise_generation("acme", 3, timeout=TIMEOUT)
    await session.begin()
    await session.open()
    server.command("REPLICAOF", "127.0.0.1", "1")
    for _ in range(12):
        assert await cause_of(quick_open(session)) == "readonly"  # never "breaker_open": the server answers
    server.command("REPLICAOF", "NO", "ONE")
    opened = await session.open()
    assert (opened.found, opened.generation, opened.fresh_connection) == (Found.PRESENT, 3, True)


async def test_a_server_that_cannot_persist_still_tells_the_generation(session: Session, server: RedisServer) -> None:
    """MISCONF refuses what writes, and PING; what only reads goes on."""
    await session.store.raise_generation("acme", 3, timeout=TIMEOUT)
    await session.begin(state_of("a/kept"))
    (server.directory / "dump.rdb" / "in the way").mkdir(parents=True)
    server.command("CONFIG", "SET", "save", "3600 1")
    server.command("BGSAVE")
    await wait_until_async(lambda: _refuses_writes(server), 10)
    assert await cause_of(quick_open(session)) == "misconf"
    assert await session.store.generation("acme", timeout=TIMEOUT) == (3, True)
    assert names((await session.peek()).state) == ["a/kept"]


def _refuses_writes(server: RedisServer) -> bool:
    told = server.command("INFO", "persistence")
    assert isinstance(told, dict)
    return bool(told["rdb_last_bgsave_status"] != "ok")


async def test_a_replica_without_its_primary_is_told_and_passes(session: Session, server: RedisServer) -> None:
    """Row 41, MASTERDOWN: it would not even read."""
    await session.begin(state_of("a/kept"))
    server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    server.command("REPLICAOF", "127.0.0.1", "1")
    for _ in range(12):
        assert await cause_of(quick_open(session)) == "masterdown"  # never "breaker_open": the server answers
        assert await cause_of(session.peek()) == "masterdown"
    server.command("REPLICAOF", "NO", "ONE")
    opened = await session.open()
    assert (opened.found, names(opened.state), opened.fresh_connection) == (Found.PRESENT, ["a/kept"], True)


async def test_after_a_failover_the_new_primary_is_found_within_the_call(
    server: RedisServer,
    stores: Stores,
    fresh_redis_server: Callable[..., RedisServer],
    proxy_to: Callable[[Server | int], Proxy],
) -> None:
    """Row 41: the old primary stays up as a read-only replica; the name (here: a proxy) leads to the new one."""
    server.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    replica = fresh_redis_server(kind=server.kind)
    replica.command("REPLICAOF", "127.0.0.1", server.port)
    proxy = proxy_to(server)
    session = Session(stores.make(f"redis://127.0.0.1:{proxy.port}/0", pool_size=3))
    await session.store.raise_generation("acme", 8, timeout=TIMEOUT)
    await session.begin(state_of("a/kept"))
    await asyncio.gather(*(session.open() for _ in range(3)))
    await wait_until_async(lambda: in_step(server, replica), 10, "the replica caught up")
    replica.command("REPLICAOF", "NO", "ONE")
    server.command("REPLICAOF", "127.0.0.1", replica.port)
    proxy.target = replica.port
    opened = await asyncio.gather(*(session.open() for _ in range(3)))
    assert {names(each.state)[0] for each in opened} == {"a/kept"}
    assert {each.generation for each in opened} == {8}
    assert all(each.fresh_connection for each in opened)
    assert stores.watch.events[StoreEvent.RETRIED] >= 1
    assert stores.watch.failures == {}


async def test_loading_is_told_and_passes(session: Session, server: RedisServer) -> None:
    await session.begin()
    with server.client() as client:
        client.mset({f"filler:{index}": "x" for index in range(300)})
        for index in range(300):
            client.expire(f"filler:{index}", 600)
        client.save()
    server.stop()
    server._args = (*server._args, "--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024")
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    seen: set[str | None] = set()

    async def loaded() -> bool:
        seen.add(await ping_cause(session))
        return "loading" in seen and None in seen

    await wait_until_async(loaded, 20, f"loading, then fine; seen {seen}")
    await starting
    assert (await session.open()).found is Found.PRESENT


async def test_a_busy_script_is_told_and_passes(session: Session, server: RedisServer) -> None:
    await session.begin()
    server.command("CONFIG", "SET", "busy-reply-threshold", "10")
    endless = asyncio.create_task(asyncio.to_thread(_run_for_ever, server))
    await wait_until_async(lambda: _pings(session, "busy"), 10, "the server is busy")
    assert await cause_of(quick_open(session)) in {"busy", "breaker_open"}
    server.command("SCRIPT", "KILL")
    await endless
    await wait_until_async(lambda: works(session), 10)


async def _pings(session: Session, cause: str) -> bool:
    return await ping_cause(session) == cause


def _run_for_ever(server: RedisServer) -> None:
    with server.client(timeout=30) as client, pytest.raises(Exception, match="killed"):
        client.eval("while true do end", 0)


@pytest.mark.parametrize(
    ("rules", "cause"),
    [
        ("+@all -eval -evalsha", "noperm"),
        ("+@all -set", "noperm"),
        ("+@all resetkeys ~other:*", "noperm"),
    ],
)
async def test_an_acl_that_forbids_is_told(stores: Stores, server: RedisServer, rules: str, cause: str) -> None:
    server.command("ACL", "SETUSER", "app", "on", ">pw", "~tb:*", *rules.split())
    session = Session(stores.make(f"redis://app:pw@127.0.0.1:{server.port}/0"))
    assert await ping_cause(session) == cause


async def test_the_documented_acl_suffices(stores: Stores, server: RedisServer) -> None:
    documented = re.search(r"ACL SETUSER [^`]+", STATE_PAGE.read_text())
    assert documented is not None
    allowed = re.findall(r"[-+]@?[a-z]+", documented.group().partition("~tb:*")[2])
    assert "+evalsha" in allowed
    server.command("ACL", "SETUSER", "app", "on", ">pw", "resetkeys", "~tb:*", *allowed)
    store = stores.make(f"redis://app:pw@127.0.0.1:{server.port}/0", sessions_per_principal=1)
    session = Session(store)
    await store.ping(timeout=TIMEOUT)
    await store.raise_generation("acme", 2, timeout=TIMEOUT)
    await session.begin()
    await Session(store, structs.replace(REF, session_id="chat-2")).begin()
    await session.merge()
    await session.touch()
    await session.peek()
    await session.end()
    assert await store.end_principal(REF.tenant, REF.issuer, REF.subject, timeout=TIMEOUT) == 1
    assert stores.watch.failures == {}


async def test_wrong_or_missing_credentials_are_told(stores: Stores, server: RedisServer) -> None:
    server.command("CONFIG", "SET", "requirepass", "right")
    for login in ("", ":wrong@"):
        session = Session(stores.make(f"redis://{login}127.0.0.1:{server.port}/0"))
        assert await ping_cause(session) == "noauth"
    session = Session(stores.make(f"redis://:right@127.0.0.1:{server.port}/0"))
    assert await ping_cause(session) is None
