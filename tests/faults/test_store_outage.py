"""A server that is dead, hung, slow, silent or breaks off: each call ends in time, and recovery needs no restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.contract.session_store_tools import Place, Session, Stores, names, state_of
from tests.faults.store_fixtures import QUARTER, cause_of, quick_open, works
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer, Server
from tests.support.waiting import wait_until_async
from toolbelay.sessions.breaker import Phase
from toolbelay.sessions.endpoint import AT_ONCE
from toolbelay.sessions.port import Found, SaveStatus, StateUnavailableError

pytestmark = pytest.mark.faults


@pytest.fixture
def server(fresh_redis_server: Callable[..., RedisServer]) -> RedisServer:
    return fresh_redis_server()


@pytest.fixture
def proxy(server: RedisServer, proxy_to: Callable[[Server | int], Proxy]) -> Proxy:
    return proxy_to(server)


@pytest.fixture
async def stores(server: RedisServer) -> AsyncIterator[Stores]:
    stores = Stores(Place(server.url, [server]))
    yield stores
    await stores.close()


@pytest.fixture
def session(stores: Stores) -> Session:
    return Session(stores.make(pool_size=4))


@pytest.fixture
def proxied(stores: Stores, proxy: Proxy) -> Session:
    return Session(stores.make(f"redis://127.0.0.1:{proxy.port}/0", pool_size=4))


async def recovers(session: Session) -> None:
    await wait_until_async(lambda: works(session), 10, "the store works again")


async def test_killed_and_restarted_empty(session: Session, stores: Stores, server: RedisServer) -> None:
    await session.begin()
    opened = await session.open()
    server.kill()
    causes = {await cause_of(quick_open(session)) for _ in range(10)}
    assert causes == {"connection", "breaker_open"}
    assert stores.watch.phases[0] is Phase.OPEN
    server.start()
    await recovers(session)
    assert stores.watch.phases[-1] is Phase.CLOSED
    assert (await session.save(opened, opened.state)).status is SaveStatus.CONFLICT
    again = await session.open()
    assert again.found is Found.ABSENT
    assert (await session.save(again, state_of("a/b"))).status is SaveStatus.SAVED


async def test_a_restart_makes_the_generation_fresh(stores: Stores, server: RedisServer) -> None:
    session = Session(stores.make(pool_size=1))
    await session.store.raise_generation("acme", 5, timeout=1)
    opened = await session.open()
    assert opened.vouch is not None
    opened.vouch()
    assert not (await session.open()).fresh_connection
    server.restart()
    opened.vouch()  # too late, and for a connection that is no more
    await recovers(session)
    assert (await session.open()).fresh_connection
    server.restart()
    await wait_until_async(lambda: _fresh_and_missing(session), 10)


async def _fresh_and_missing(session: Session) -> bool:
    try:
        opened = await quick_open(session)
    except StateUnavailableError:
        return False
    assert opened.generation is None
    assert opened.fresh_connection
    return True


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_hung(fresh_redis_server: Callable[..., RedisServer], stores: Stores, kind: str) -> None:
    """Row 46: each call ends by its timeout, then the breaker ends the pile-up."""
    server = fresh_redis_server(kind=kind)
    session = Session(stores.make(server.url, pool_size=4))
    await session.begin()
    server.suspend()
    causes = await asyncio.gather(*(cause_of(quick_open(session, 0.1)) for _ in range(8)))
    assert set(causes) <= {"timeout", "pool_exhausted"}
    await wait_until_async(lambda: _is(session, "breaker_open"), 5, "the breaker opened")
    server.resume()
    await recovers(session)
    assert (await session.peek()).found is Found.PRESENT


async def _is(session: Session, cause: str) -> bool:
    return await cause_of(quick_open(session, 0.1)) == cause


async def test_black_holed(proxied: Session, proxy: Proxy) -> None:
    await proxied.begin()
    proxy.black_hole()
    assert await cause_of(quick_open(proxied, 0.1)) == "timeout"
    proxy.forward()
    await recovers(proxied)


async def test_slow(proxied: Session, proxy: Proxy) -> None:
    await proxied.begin()
    proxy.delay(0.15)
    assert await cause_of(quick_open(proxied, 0.06)) == "timeout"
    assert (await quick_open(proxied, 2)).found is Found.PRESENT


async def test_short_deadlines_do_not_open_the_breaker_for_others(
    proxied: Session, proxy: Proxy, stores: Stores
) -> None:
    await proxied.begin()
    proxy.delay(0.03)
    for _ in range(20):
        assert await cause_of(quick_open(proxied, 0.005)) in {"timeout", "pool_exhausted"}
    assert stores.watch.phases == []
    assert (await quick_open(proxied, 2)).found is Found.PRESENT


@pytest.mark.parametrize("count", [0, 1, 7, 40, 200])
async def test_cut_in_mid_reply(proxied: Session, proxy: Proxy, count: int) -> None:
    await proxied.begin(state_of(*(f"toolset/{index}" for index in range(16))))
    await proxied.peek()
    proxy.cut_replies_after(count)
    with pytest.raises(StateUnavailableError) as caught:
        await quick_open(proxied)
    assert (caught.value.cause, caught.value.maybe_applied) == ("connection", True)
    proxy.forward()
    opened = await quick_open(proxied)
    assert len(opened.state.tools) == 16
    assert opened.turn == 3  # the cut turn was counted, once


async def test_refused_connections_are_surely_not_applied(proxied: Session, proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(StateUnavailableError) as caught:
        await quick_open(proxied)
    assert (caught.value.cause, caught.value.maybe_applied) == ("connection", False)
    proxy.forward()
    await recovers(proxied)


async def test_a_timed_out_save_is_not_sent_again(proxied: Session, proxy: Proxy, stores: Stores) -> None:
    await proxied.begin()
    opened = await proxied.open()
    proxy.delay(0.3)
    with pytest.raises(StateUnavailableError) as caught:
        await proxied.store.save(proxied.ref, opened, state_of("a/late"), epoch=0, ttl_seconds=60, timeout=0.1)
    assert caught.value.maybe_applied
    proxy.forward()
    await wait_until_async(lambda: _has(proxied, "a/late"), 5, "the save was applied")
    assert (await proxied.peek()).revision == opened.revision + 1


async def _has(session: Session, tool_id: str) -> bool:
    return tool_id in names((await session.peek()).state)


async def test_a_full_pool_waits_within_the_deadline(stores: Stores, proxy: Proxy) -> None:
    session = Session(stores.make(f"redis://127.0.0.1:{proxy.port}/0", pool_size=1))
    await session.begin()
    proxy.delay(0.1)
    results = await asyncio.gather(*(quick_open(session, 0.25) for _ in range(6 * AT_ONCE)), return_exceptions=True)
    failed = [result for result in results if isinstance(result, StateUnavailableError)]
    assert AT_ONCE <= len(results) - len(failed) <= 3 * AT_ONCE
    assert {error.cause for error in failed} <= {"pool_exhausted", "timeout"}
    assert "pool_exhausted" in {error.cause for error in failed}
    assert not any(error.maybe_applied for error in failed if error.cause == "pool_exhausted")
    proxy.forward()
    await recovers(session)


async def test_a_dead_breaker_lets_one_probe_through(session: Session, server: RedisServer, stores: Stores) -> None:
    await session.begin()
    server.kill()
    await wait_until_async(lambda: _is(session, "breaker_open"), 5)
    server.start()

    async def first_success() -> bool:
        results = await asyncio.gather(*(works(session) for _ in range(10)))
        return any(results)

    await wait_until_async(first_success, 10)
    assert Phase.HALF_OPEN in stores.watch.phases
    assert all(await asyncio.gather(*(works(session) for _ in range(10))))


async def test_a_closed_store_refuses(stores: Stores) -> None:
    session = Session(stores.make())
    await session.begin()
    await session.store.close()
    assert await cause_of(quick_open(session, QUARTER)) == "connection"
