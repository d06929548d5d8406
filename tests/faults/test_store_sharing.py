"""Calls that share a connection: none reads another's reply, and one that is given up costs only itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial

import hiredis
import pytest
from msgspec import structs
from redis.asyncio.connection import AbstractConnection, Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.contract.session_store_tools import REF, Place, Session, Stores, names, state_of
from tests.faults.store_fixtures import cause_of, quick_open
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer, Server
from tests.support.waiting import wait_until_async
from toolbelay.sessions import lane
from toolbelay.sessions.breaker import Breaker
from toolbelay.sessions.endpoint import AT_ONCE, Call, Endpoint
from toolbelay.sessions.keys import generation_key
from toolbelay.sessions.port import Found, SessionStore, StateUnavailableError

pytestmark = pytest.mark.faults


@pytest.fixture
def proxy(redis_server: RedisServer, proxy_to: Callable[[Server | int], Proxy]) -> Proxy:
    return proxy_to(redis_server)


@pytest.fixture
async def stores(redis_server: RedisServer) -> AsyncIterator[Stores]:
    stores = Stores(Place(redis_server.url, [redis_server]))
    yield stores
    await stores.close()


@pytest.fixture
async def lone_stores() -> AsyncIterator[Stores]:
    """For servers that a test plays itself."""
    stores = Stores(Place("", []))
    yield stores
    await stores.close()


async def crowd(stores: Stores, url: str, count: int) -> list[Session]:
    """Sessions on one store, each with a state of its own."""
    store = stores.make(url, pool_size=2)
    sessions = [Session(store, structs.replace(REF, session_id=f"chat-{index}")) for index in range(count)]
    for index, session in enumerate(sessions):
        await session.begin(state_of(f"own/{index}"))
    return sessions


async def proven(stores: Stores, url: str) -> Session:
    """A session on a store whose connection is proven for the tenant's generation, 7."""
    (session,) = await crowd(stores, url, 1)
    await session.store.raise_generation("acme", 7, timeout=5)
    seen = await session.store.see_generation("acme", timeout=5)
    assert seen.vouch is not None
    seen.vouch()
    return session


async def test_calls_at_once_share_a_connection_and_its_trips(stores: Stores, proxy: Proxy) -> None:
    sessions = await crowd(stores, f"redis://127.0.0.1:{proxy.port}/0", AT_ONCE)
    proxy.reset()
    accepted = proxy.accepted
    found = await asyncio.gather(*(quick_open(session, 5) for session in sessions))
    assert [names(opened.state) for opened in found] == [[f"own/{index}"] for index in range(AT_ONCE)]
    assert proxy.accepted == accepted
    assert proxy.round_trips < AT_ONCE / 2


async def test_a_call_that_is_given_up_leaves_the_others_of_its_connection_alone(stores: Stores, proxy: Proxy) -> None:
    sessions = await crowd(stores, f"redis://127.0.0.1:{proxy.port}/0", 8)
    proxy.delay(0.1)
    calls = [asyncio.create_task(quick_open(session, 5)) for session in sessions[1:]]
    assert await cause_of(quick_open(sessions[0], 0.06)) == "timeout"
    calls[3].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results.pop(3), asyncio.CancelledError)
    rest = [index for index in range(1, 8) if index != 4]
    assert [names(r.state) for r in results if not isinstance(r, BaseException)] == [[f"own/{i}"] for i in rest]
    proxy.forward()
    assert names((await quick_open(sessions[0], 5)).state) == ["own/0"]


async def test_the_connection_of_a_lost_reply_serves_nobody_afterwards(stores: Stores, proxy: Proxy) -> None:
    sessions = await crowd(stores, f"redis://127.0.0.1:{proxy.port}/0", 4)
    proxy.black_hole()
    assert await cause_of(quick_open(sessions[0], 0.1)) == "timeout"
    proxy.forward()
    for _ in range(3):
        found = await asyncio.gather(*(quick_open(session, 5) for session in sessions))
        assert [names(opened.state) for opened in found] == [[f"own/{index}"] for index in range(4)]


async def test_who_is_cancelled_or_late_costs_nobody_the_proof_of_a_connection(stores: Stores, proxy: Proxy) -> None:
    session = await proven(stores, f"redis://127.0.0.1:{proxy.port}/0")
    store, accepted = session.store, proxy.accepted
    proxy.delay(0.1)
    call = asyncio.create_task(quick_open(session, 5))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    assert await _proof(store, proven=True) == (7, False)  # behind the late reply
    assert await _proof(store) == (7, False)
    assert await cause_of(quick_open(session, 0.06)) == "timeout"
    assert await _proof(store, proven=True) == (7, False)
    assert await _proof(store) == (7, False)
    assert proxy.accepted == accepted


async def _proof(store: SessionStore, *, proven: bool = False) -> tuple[int | None, bool]:
    seen = await store.see_generation("acme", timeout=5, proven=proven)
    return seen.value, seen.fresh


async def test_a_proven_connection_that_is_late_for_too_long_proves_nothing(
    stores: Stores, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await proven(stores, f"redis://127.0.0.1:{proxy.port}/0")
    store, accepted = session.store, proxy.accepted
    proxy.black_hole()
    assert await cause_of(quick_open(session, 0.06)) == "timeout"
    proxy.forward()
    monkeypatch.setattr(lane, "LATE_SECONDS", 0.0)
    assert await _proof(store, proven=True) == (None, True)
    assert proxy.accepted == accepted
    assert await _proof(store) == (7, True)


async def test_a_late_reply_that_came_after_too_long_proves_nothing_either(
    stores: Stores, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have lost its role meanwhile, and what it missed with it."""
    session = await proven(stores, f"redis://127.0.0.1:{proxy.port}/0")
    store, accepted = session.store, proxy.accepted
    proxy.delay(0.1)
    assert await cause_of(quick_open(session, 0.06)) == "timeout"
    assert await _proof(store, proven=True) == (7, False)  # behind the late reply, which has come with it
    monkeypatch.setattr(lane, "LATE_SECONDS", 0.0)
    assert await _proof(store) == (7, True)
    assert proxy.accepted == accepted


async def test_the_loss_of_a_shared_connection_counts_once_against_the_server(stores: Stores, proxy: Proxy) -> None:
    sessions = await crowd(stores, f"redis://127.0.0.1:{proxy.port}/0", 24)
    proxy.delay(0.2)
    calls = [asyncio.create_task(quick_open(session, 5)) for session in sessions]
    await asyncio.sleep(0)  # they are on their way
    proxy.drop_connections()
    proxy.forward()
    lost = await asyncio.gather(*calls, return_exceptions=True)
    assert {error.cause for error in lost if isinstance(error, StateUnavailableError)} == {"connection"}
    assert len(lost) == 24
    found = await asyncio.gather(*(quick_open(session, 5) for session in sessions))  # the breaker is closed
    assert [names(opened.state) for opened in found] == [[f"own/{index}"] for index in range(24)]


@pytest.mark.parametrize("pool_size", [1, 2])
async def test_a_connection_that_never_pays_is_given_up_for_a_new_one(
    stores: Stores, proxy: Proxy, pool_size: int
) -> None:
    session = Session(stores.make(f"redis://127.0.0.1:{proxy.port}/0", pool_size=pool_size))
    await session.begin()
    for _ in range(4):
        proxy.black_hole()
        assert await cause_of(quick_open(session, 0.06)) == "timeout"
        proxy.forward()
        assert (await quick_open(session, 5)).found is Found.PRESENT


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_swallowed_request_gives_nobody_the_reply_of_another(
    stores: Stores, proxy: Proxy, cancelled: bool
) -> None:
    """TCP loses nothing in the middle, but what lies between may: here it swallows requests and then goes on."""
    sessions = await crowd(stores, f"redis://127.0.0.1:{proxy.port}/0", 4)
    proxy.black_hole()
    lost = asyncio.create_task(quick_open(sessions[0], 5))
    await wait_until_async(lambda: proxy.swallowed, 5)
    proxy.forward()
    if cancelled:
        lost.cancel()
        await asyncio.wait({lost})
    others = await asyncio.gather(*(quick_open(session, 5) for session in sessions[1:]), return_exceptions=True)
    for index, other in enumerate(others, start=1):
        if isinstance(other, BaseException):
            assert isinstance(other, StateUnavailableError)
        else:
            assert names(other.state) == [f"own/{index}"]
    if not cancelled:
        assert await cause_of(lost) == "connection"
    found = await asyncio.gather(*(quick_open(session, 5) for session in sessions))
    assert [names(opened.state) for opened in found] == [[f"own/{index}"] for index in range(4)]


async def test_a_connection_lost_while_idle_is_made_again_for_the_next_call(
    stores: Stores, redis_server: RedisServer
) -> None:
    (session,) = await crowd(stores, redis_server.url, 1)
    redis_server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await wait_until_async(lambda: _opens(session), 5, "the store connects again")
    assert names((await quick_open(session, 5)).state) == ["own/0"]


async def _opens(session: Session) -> bool:
    with contextlib.suppress(StateUnavailableError):
        return (await quick_open(session, 5)).found is Found.PRESENT
    return False


@contextlib.asynccontextmanager
async def played(stores: Stores, reply: bytes) -> AsyncIterator[tuple[SessionStore, list[int]]]:
    """A store on a server that answers each packet with `reply`, `%b` in it being the packet's mark; its connections."""
    accepted: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(len(accepted))
        while asked := await reader.read(65536):
            writer.write(reply.replace(b"%b", asked.split(b"\r\n")[-2]))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield stores.make(f"redis://127.0.0.1:{port}/0", pool_size=1), accepted
        await stores.close()


async def test_a_reply_that_nobody_asked_for_ends_the_connection(lone_stores: Stores) -> None:
    async with played(lone_stores, b":1\r\n$8\r\n%b\r\n:2\r\n") as (store, accepted):
        for calls in range(1, 4):
            await store.end(REF, timeout=1)
            assert len(accepted) == calls


@pytest.mark.parametrize("lost", [{0}, {1}, {2}, {0, 1}, {0, 1, 2}, {3}, {2, 3}, {0, 3}])
async def test_a_reply_lost_in_the_middle_gives_nobody_the_reply_of_another(
    lone_stores: Stores, lost: set[int]
) -> None:
    """`lost`: which of the replies to three calls that left together, and to what else was in their packet."""
    loses = False

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while asked := await reader.read(65536):
            commands.feed(asked)
            replies = []
            while (command := commands.gets()) is not False:
                told = b"%d" % tenants.index(command[1]) if command[0] == b"GET" else command[-1]
                replies.append(b"$%d\r\n%b\r\n" % (len(told), told))
            writer.writelines(r for place, r in enumerate(replies) if not (loses and place in lost))
        writer.close()

    tenants = [generation_key(f"tenant-{number}") for number in range(3)]
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        store = lone_stores.make(f"redis://127.0.0.1:{port}/0", pool_size=1)
        assert await store.generation("tenant-1", timeout=5) == (1, True)
        loses = True
        calls = [asyncio.create_task(store.generation(f"tenant-{number}", timeout=0.3)) for number in range(3)]
        await asyncio.sleep(0.05)
        loses = False
        calls += [asyncio.create_task(store.generation(f"tenant-{number}", timeout=5)) for number in (2, 1, 0)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        for number, outcome in zip((0, 1, 2, 2, 1, 0), found, strict=True):
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, StateUnavailableError)
            else:
                assert outcome[0] == number
        await wait_until_async(lambda: _answers(store), 5, "the breaker lets calls through again")
        assert [(await store.generation(f"tenant-{number}", timeout=5))[0] for number in range(3)] == [0, 1, 2]
        await lone_stores.close()


@pytest.mark.parametrize(
    ("behind", "cause"),
    [
        (b"$8\r\n99999999\r\n", "connection"),
        (b"$1\r\n1\r\n", "connection"),
        (b"$-1\r\n", "connection"),
        (b":1\r\n", "connection"),
        (b"*1\r\n$8\r\n%b\r\n", "connection"),
        (b"+%b\r\n+%b\r\n", None),  # what comes too much ends the connection, after the call
        (b"-\r\n", "other"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "loading"),
        (b"-NOAUTH Authentication required.\r\n", "noauth"),
        (b"-NOPERM User app has no permissions to run the 'echo' command\r\n", "noperm"),
        (b"-BUSY Redis is busy running a script.\r\n", "busy"),
        (b"!\r\n", "other"),
        (b"\r\n", "other"),
    ],
)
async def test_another_mark_than_the_packets_own_gives_nobody_a_reply(
    lone_stores: Stores, behind: bytes, cause: str | None
) -> None:
    async with played(lone_stores, b"$1\r\n7\r\n" + behind) as (store, accepted):
        for calls in range(1, 4):
            if cause is None:
                assert await store.generation("acme", timeout=1) == (7, True)
            else:
                assert await cause_of(store.generation("acme", timeout=1)) == cause
            assert len(accepted) == calls


async def _answers(store: SessionStore) -> bool:
    with contextlib.suppress(StateUnavailableError):
        return (await store.generation("tenant-1", timeout=5))[0] == 1
    return False


async def test_a_connection_that_is_being_made_is_forgotten_with_the_others(
    redis_server: RedisServer, fresh_redis_server: Callable[..., RedisServer], proxy: Proxy
) -> None:
    """Its address was asked for before the servers changed: it may lead to a primary that is none any more."""
    key, successor = generation_key("acme"), fresh_redis_server()
    for server, generation in ((redis_server, 1), (successor, 2)):
        with server.client() as client:
            client.select(1)
            client.set(key, generation, ex=60)
    primary = proxy.port

    async def aim(connection: AbstractConnection) -> None:
        assert isinstance(connection, Connection)
        connection.port = primary

    made = partial(Connection, db=1, protocol=2, driver_info=None, retry=Retry(NoBackoff(), 0))
    endpoint = Endpoint(made, size=1, breaker=Breaker(), aim=aim)
    proxy.delay(0.1)
    early = asyncio.create_task(endpoint.call(Call(generation_key=key), timeout=5))
    await wait_until_async(lambda: proxy.accepted > 0, 5)
    primary = successor.port
    await endpoint.forget()
    assert (await early).fresh
    proxy.forward()
    assert (await endpoint.call(Call(generation_key=key), timeout=5)).generation == b"2"
    await endpoint.close()
