"""What makes a change acknowledged: the raise in a real Redis, after the commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.servers import RedisServer
from tests.support.storage import Store, bundle, store_on, tool
from toolbelay.application.apply_config import ApplyConfig
from toolbelay.application.apply_confirm import confirm_raise
from toolbelay.application.apply_tenant import EndTenantSessions, ResyncGenerations
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.sessions.connect import open_link
from toolbelay.sessions.observer import Unobserved
from toolbelay.sessions.port import StateUnavailableError
from toolbelay.sessions.store import RedisSessionStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with store_on(f"sqlite+aiosqlite:///{tmp_path / 'toolbelay.sqlite'}") as store:
        yield store


def connected(server: RedisServer) -> RedisSessionStore:
    return RedisSessionStore(open_link(server.url, pool_size=2, observer=Unobserved()), secret=bytes(32))


@pytest.fixture
async def generations(redis_server: RedisServer) -> AsyncIterator[RedisSessionStore]:
    generations = connected(redis_server)
    yield generations
    await generations.close()


async def test_an_apply_ends_when_redis_holds_its_generation(store: Store, generations: RedisSessionStore) -> None:
    applying = ApplyConfig(store.writer, generations)
    for number, name in enumerate("abc", start=1):
        assert (await applying.run("acme", bundle(tools=[tool(name)]), who="tests")).generation == number
        assert (await generations.generation("acme", timeout=1))[0] == number
    # A replica of an older apply must not take the number back.
    await confirm_raise(generations, "acme", 1)
    assert (await generations.generation("acme", timeout=1))[0] == 3


async def test_an_apply_repeated_after_redis_lost_the_raise_repairs_it(
    store: Store, generations: RedisSessionStore, redis_server: RedisServer
) -> None:
    applying = ApplyConfig(store.writer, generations)
    await applying.run("acme", bundle(tools=[tool("a")]), who="tests")
    redis_server.command("FLUSHALL")
    assert (await applying.run("acme", bundle(tools=[tool("a")]), who="tests")).changed is False
    assert (await generations.generation("acme", timeout=1))[0] == 1


async def test_resync_goes_past_redis_and_confirms(store: Store, generations: RedisSessionStore) -> None:
    await store.apply("a", tools=[tool("x")])
    await store.apply("b", tools=[tool("x")])
    await generations.raise_generation("a", 41, timeout=1)  # the database was restored from before that
    resync = ResyncGenerations(store.reader, store.writer, generations)
    assert await resync.run(who="tests") == {"a": 42, "b": 2}
    assert (await generations.generation("a", timeout=1))[0] == 42
    assert (await generations.generation("b", timeout=1))[0] == 2
    assert (await store.load("a", since=41)).since == 0


async def test_ending_a_tenants_sessions_is_confirmed(store: Store, generations: RedisSessionStore) -> None:
    ending = EndTenantSessions(store.writer, generations)
    with pytest.raises(ToolbelayError) as unknown:
        await ending.run("acme", who="tests")
    assert unknown.value.reason is ErrorReason.ROUTE_NOT_FOUND
    await store.apply(tools=[tool("a")])
    assert await ending.run("acme", who="tests") == 2
    assert (await generations.generation("acme", timeout=1))[0] == 2


@pytest.mark.faults
async def test_redis_down_frozen_and_back(store: Store, fresh_redis_server: Callable[..., RedisServer]) -> None:
    server = fresh_redis_server()
    generations = connected(server)
    applying = ApplyConfig(store.writer, generations, confirm_seconds=0.5)
    for number, fault in enumerate((server.suspend, server.kill), start=1):
        fault()
        with pytest.raises(ToolbelayError) as unconfirmed:
            await applying.run("acme", bundle(tools=[tool(f"t{number}")]), who="tests")
        assert unconfirmed.value.reason is ErrorReason.PROPAGATION_UNCONFIRMED
        assert unconfirmed.value.metadata == {"generation": str(number)}
        assert await store.reader.generation("acme", timeout=5) == number
    with pytest.raises(StateUnavailableError):  # nothing is raised in SQL when Redis cannot be read
        await ResyncGenerations(store.reader, store.writer, generations).run(who="tests")
    assert await store.reader.generation("acme", timeout=5) == 2
    # It comes back while an apply is waiting.
    waiting = asyncio.ensure_future(
        ApplyConfig(store.writer, generations, confirm_seconds=20).run("acme", bundle(tools=[tool("t3")]), who="tests")
    )
    await asyncio.to_thread(server.start)
    assert (await waiting).generation == 3
    assert (await generations.generation("acme", timeout=1))[0] == 3
    await generations.close()


async def test_a_cancelled_caller_does_not_stop_the_raise() -> None:
    class Slow:
        def __init__(self) -> None:
            self.asked, self.go, self.raised = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def raise_generation(self, tenant: str, generation: int, *, timeout: float) -> int:
            self.asked.set()
            await self.go.wait()
            self.raised.set()
            return generation

    slow = Slow()
    task = asyncio.ensure_future(confirm_raise(slow, "acme", 1))
    await slow.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    slow.go.set()
    await asyncio.wait_for(slow.raised.wait(), 5)


@pytest.mark.parametrize("tenant", ["", "a\0b", "a\nb", "x" * 257, "\ud800"])
async def test_a_tenants_name_is_checked(store: Store, tenant: str) -> None:
    with pytest.raises(ToolbelayError) as refused:
        await store.apply(tenant, tools=[tool("a")])
    assert (refused.value.reason, refused.value.field) == (ErrorReason.INVALID_REQUEST, "tenant")
