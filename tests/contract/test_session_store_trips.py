"""Round trips, counted at a proxy: what a turn costs beside the model's own time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.contract.session_store_tools import REF, SECRET, TIMEOUT, Place, Session, Stores, state_of, tool, turn_key
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer, Server
from toolbelay.sessions.port import Found


@pytest.fixture
def place(redis_server: RedisServer) -> Place:
    return Place(redis_server.url, [redis_server])


@pytest.fixture
def proxy(redis_server: RedisServer, proxy_to: Callable[[Server | int], Proxy]) -> Proxy:
    return proxy_to(redis_server)


@pytest.fixture
async def stores(place: Place) -> AsyncIterator[Stores]:
    stores = Stores(place)
    yield stores
    await stores.close()


@pytest.fixture
async def session(stores: Stores, proxy: Proxy) -> Session:
    """Over the proxy, connected, scripts known, the session there."""
    session = Session(stores.make(f"redis://127.0.0.1:{proxy.port}/0", pool_size=1))
    await session.begin()
    await session.merge(tool("a/b"))
    await session.touch()
    await session.peek()
    proxy.reset()
    return session


async def test_a_turn_that_changes_nothing_costs_one_trip(session: Session, proxy: Proxy) -> None:
    await session.store.raise_generation(REF.tenant, 4, timeout=TIMEOUT)
    proxy.reset()
    opened = await session.open(turn_key("t2"))
    assert (opened.found, opened.generation, opened.turn) == (Found.PRESENT, 4, 2)
    assert proxy.round_trips == 1


async def test_a_turn_that_saves_costs_two(session: Session, proxy: Proxy) -> None:
    opened = await session.open(turn_key("t2"))
    await session.save(opened, state_of("a/b", "a/c"), turn_key("t2"))
    assert proxy.round_trips == 2


@pytest.mark.parametrize("call", ["touch", "peek", "end", "merge", "generation", "end_principal"])
async def test_every_other_call_costs_one(session: Session, proxy: Proxy, call: str) -> None:
    store = session.store
    calls: dict[str, Callable[[], object]] = {
        "touch": session.touch,
        "peek": session.peek,
        "end": session.end,
        "merge": lambda: session.merge(tool("a/d")),
        "generation": lambda: store.generation("acme", timeout=TIMEOUT),
        "end_principal": lambda: store.end_principal("acme", "i", "s", timeout=TIMEOUT),
    }
    if call.startswith("end"):
        await calls[call]()  # type: ignore[misc]
        proxy.reset()
    await calls[call]()  # type: ignore[misc]
    assert proxy.round_trips == 1


async def test_a_forgotten_script_costs_one_trip_more(session: Session, proxy: Proxy, place: Place) -> None:
    place.servers[0].command("SCRIPT", "FLUSH")
    await session.open()
    assert proxy.round_trips == 2
    await session.open()
    assert proxy.round_trips == 3


async def test_a_new_connection_costs_no_trip_of_its_own(stores: Stores, proxy: Proxy) -> None:
    session = Session(stores.make(f"redis://127.0.0.1:{proxy.port}/0"))
    proxy.reset()
    await session.touch()
    assert (proxy.accepted, proxy.round_trips) == (1, 1)


async def test_the_previous_secret_costs_trips_only_when_nothing_is_found(
    session: Session, stores: Stores, proxy: Proxy
) -> None:
    both = Session(stores.make(f"redis://127.0.0.1:{proxy.port}/0", secret=SECRET, previous=b"o" * 32))
    await both.touch()
    proxy.reset()
    await both.open()
    assert proxy.round_trips == 1
    await session.end()
    proxy.reset()
    await both.open()  # a tombstone is an answer too
    assert proxy.round_trips == 1
