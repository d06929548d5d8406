"""Cancelled and timed-out calls never mix up replies, and never leak a connection."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec import structs

from tests.contract.session_store_tools import REF, TTL, Place, Session, Stores, names, state_of
from tests.faults.store_fixtures import quick_open
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer, Server
from tests.support.waiting import wait_until_async
from toolbelay.sessions.port import Found, StateUnavailableError

pytestmark = pytest.mark.faults

POOL = 3
ROUNDS = 120


@pytest.fixture
def proxy(redis_server: RedisServer, proxy_to: Callable[[Server | int], Proxy]) -> Proxy:
    return proxy_to(redis_server)


@pytest.fixture
async def stores(redis_server: RedisServer) -> AsyncIterator[Stores]:
    stores = Stores(Place(redis_server.url, [redis_server]))
    yield stores
    await stores.close()


async def test_control_sessions_never_see_anothers_state(stores: Stores, proxy: Proxy) -> None:
    store = stores.make(f"redis://127.0.0.1:{proxy.port}/0", pool_size=POOL)
    sessions = [Session(store, structs.replace(REF, session_id=f"chat-{index}")) for index in range(8)]
    for index, session in enumerate(sessions):
        await session.begin(state_of(f"own/{index}"))
        await store.raise_generation(f"tenant-{index}", index + 1, timeout=5)
    proxy.delay(0.003)
    chance = random.Random(7)
    seen = 0

    async def disturb(session: Session) -> None:
        for _ in range(ROUNDS):
            call = asyncio.ensure_future(quick_open(session, chance.uniform(0.0005, 0.02)))
            if chance.random() < 0.5:
                asyncio.get_running_loop().call_later(chance.uniform(0, 0.01), call.cancel)
            await asyncio.wait({call})
            if not call.cancelled() and call.exception() is None:
                assert names(call.result().state) == [f"own/{sessions.index(session)}"]

    async def control(index: int) -> None:
        nonlocal seen
        for _ in range(ROUNDS // 2):
            opened = await quick_open(sessions[index], 5)
            assert (opened.found, names(opened.state)) == (Found.PRESENT, [f"own/{index}"])
            assert (await store.generation(f"tenant-{index}", timeout=5))[0] == index + 1
            seen += 1

    await asyncio.gather(*(disturb(session) for session in sessions[:6]), control(6), control(7))
    assert seen == ROUNDS


async def test_no_connection_is_leaked(stores: Stores, proxy: Proxy, redis_server: RedisServer) -> None:
    store = stores.make(f"redis://127.0.0.1:{proxy.port}/0", pool_size=POOL)
    session = Session(store)
    await session.begin()
    chance = random.Random(11)

    async def call() -> None:
        limit = 0.0002 if chance.random() < 0.3 else 5.0
        with contextlib.suppress(*([StateUnavailableError] if limit < 1 else [])):
            await store.touch(REF, epoch=0, ttl_seconds=TTL, timeout=limit)

    for _ in range(40):
        await asyncio.gather(*(call() for _ in range(50)))
    results = await asyncio.gather(*(quick_open(session, 5) for _ in range(POOL)))
    assert len(results) == POOL
    await wait_until_async(lambda: _clients(redis_server) <= POOL + 1, 5, "surplus connections are gone")


def _clients(server: RedisServer) -> int:
    with server.client() as client:
        return len(client.client_list())


async def test_a_cancelled_call_is_cancelled(stores: Stores, proxy: Proxy) -> None:
    session = Session(stores.make(f"redis://127.0.0.1:{proxy.port}/0", pool_size=1))
    await session.begin()
    proxy.black_hole()
    call = asyncio.create_task(quick_open(session, 5))
    await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    proxy.forward()
    assert (await quick_open(session, 5)).found is Found.PRESENT
