"""Storage on servers that are dead, frozen, restarted, locked or full."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.support.servers import PostgresServer
from tests.support.storage import Store, opened, store_on, tool
from tests.support.waiting import wait_until_async
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.storage import migrate
from toolbelay.storage.deadline import Deadlines
from toolbelay.storage.engine import Database
from toolbelay.storage.port import StorageUnavailableError

pytestmark = pytest.mark.faults

SLACK = 2.0  # seconds that a busy machine may add to a deadline; psycopg alone would take 10


@pytest.fixture
def server(fresh_postgres_server: Callable[..., PostgresServer]) -> PostgresServer:
    return fresh_postgres_server("-c", "idle_in_transaction_session_timeout=100ms")


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[Store]:
    url = server.url.replace("postgresql://", "postgresql+psycopg://", 1)
    async with store_on(url, pool_size=3) as store:
        await store.apply(tools=[tool("a")])
        yield store


def methods(store: Store, timeout: float) -> list[Callable[[], object]]:
    """A call of every method of the ports."""
    reader, writer = store.reader, store.writer
    return [
        lambda: reader.generations(timeout=timeout),
        lambda: reader.generation("acme", timeout=timeout),
        lambda: reader.load("acme", since=0, timeout=timeout),
        lambda: reader.ready(timeout=timeout),
        lambda: writer.end_sessions("acme", who="tests", timeout=timeout),
        lambda: writer.resync({}, who="tests", timeout=timeout),
        lambda: writer.audit("acme", who="tests", action="explain", summary="{}", timeout=timeout),
    ]


async def test_a_frozen_postgresql_ends_every_method_by_its_timeout(store: Store, server: PostgresServer) -> None:
    await asyncio.gather(*[store.reader.generation("acme", timeout=5) for _ in range(3)])  # a warm pool
    server.suspend()
    try:
        for call in methods(store, 0.3):
            started = time.monotonic()
            with pytest.raises(StorageUnavailableError):
                await call()  # type: ignore[misc]
            assert time.monotonic() - started < 0.3 + SLACK
        started = time.monotonic()
        with pytest.raises(ToolbelayError) as unusable:
            await store.apply(tools=[tool("b")], timeout=0.3)
        assert time.monotonic() - started < 0.3 + SLACK
        assert unusable.value.reason is ErrorReason.AUTHORITY_UNVERIFIABLE
        # Fifty at once: the pool is bounded, and those that wait for it end as well.
        started = time.monotonic()
        results = await asyncio.gather(
            *[store.reader.generation("acme", timeout=0.3) for _ in range(50)], return_exceptions=True
        )
        assert all(isinstance(result, StorageUnavailableError) for result in results)
        assert time.monotonic() - started < 0.3 + SLACK
    finally:
        server.resume()

    async def recovered() -> bool:
        try:
            return await store.reader.generation("acme", timeout=1) is not None
        except StorageUnavailableError:
            return False

    await wait_until_async(recovered, timeout=20)
    assert (await store.apply(tools=[tool("c")])).changed


async def test_sessions_ended_by_the_server_cost_at_most_the_calls_in_flight(
    store: Store, server: PostgresServer
) -> None:
    await asyncio.gather(*[store.reader.generation("acme", timeout=5) for _ in range(3)])
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolbelay'"
    for _ in range(3):
        server.execute(end_all)
        # Pooled connections are dead now; each is noticed before it is used.
        results = await asyncio.gather(*[store.reader.generation("acme", timeout=5) for _ in range(12)])
        assert set(results) == {1}
        assert (await store.apply(tools=[tool("a")])).generation == 1

    async def inside(connection: AsyncConnection) -> int:
        if not ended:
            ended.append(True)
            await asyncio.to_thread(server.execute, end_all)
        return int(await connection.scalar(text("SELECT 1")))

    ended: list[bool] = []
    assert await store.database.read(inside, timeout=5) == 1  # a read is repeated
    ended.clear()
    with pytest.raises(StorageUnavailableError, match="AdminShutdown"):
        await store.database.write(inside, timeout=5)  # a write is not
    assert await store.database.write(inside, timeout=5) == 1


async def test_a_restarted_server_is_used_again(store: Store, server: PostgresServer) -> None:
    server.kill()
    for call in methods(store, 5.0):
        with pytest.raises(StorageUnavailableError):
            await call()  # type: ignore[misc]
    server.start()
    assert await store.reader.generation("acme", timeout=5) == 1
    assert (await store.apply(tools=[tool("b")])).generation == 2


async def test_calls_cancelled_in_mid_query_leave_a_pool_that_works(store: Store) -> None:
    async def slow(connection: AsyncConnection) -> int | None:
        await connection.execute(text("SELECT pg_sleep(30)"))
        return 1

    for round_ in range(4):
        tasks = [asyncio.ensure_future(store.database.read(slow, timeout=20)) for _ in range(5)]

        async def sleeping() -> bool:
            query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)' AND state = 'active'"
            return bool((await store.sql(query))[0][0] >= 3)

        await wait_until_async(sleeping)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        results = await asyncio.gather(*[store.reader.generation("acme", timeout=10) for _ in range(9)])
        assert set(results) == {1}, round_


async def test_a_full_server_is_told_in_time(
    fresh_postgres_server: Callable[..., PostgresServer],
) -> None:
    server = fresh_postgres_server("-c", "superuser_reserved_connections=0", max_connections=6)
    url = server.url.replace("postgresql://", "postgresql+psycopg://", 1)
    migrate.upgrade(url)
    async with opened(url, pool_size=4) as greedy, opened(url) as late:
        gate, held = asyncio.Event(), asyncio.Semaphore(0)

        async def hold(connection: AsyncConnection) -> None:
            await connection.execute(text("SELECT 1"))
            held.release()
            await gate.wait()

        holders = [asyncio.ensure_future(greedy.database.read(hold, timeout=60)) for _ in range(4)]
        holders += [asyncio.ensure_future(greedy.database.write(hold, timeout=60)) for _ in range(2)]
        for _ in holders:
            await held.acquire()
        with pytest.raises(StorageUnavailableError, match="OperationalError"):
            await late.reader.generations(timeout=5)
        gate.set()
        await asyncio.gather(*holders)
        await greedy.database.close()
        assert await late.reader.generations(timeout=5) == {}


async def test_a_password_is_in_no_error() -> None:
    database = Database("postgresql+psycopg://user:s3cret@127.0.0.1:1/x")
    assert "s3cret" not in repr(database.address)

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(text("SELECT 1"))

    for call in (database.read, database.write):
        with pytest.raises(StorageUnavailableError) as failed:
            await call(work, timeout=5)
        assert "s3cret" not in str(failed.value)
        assert failed.value.__suppress_context__
    await database.close()


async def test_no_parameter_is_in_an_error(database_url: str) -> None:
    async with store_on(database_url) as store:

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(text("SELECT nonsense(:value)"), {"value": "s3cret"})

        with pytest.raises(StorageUnavailableError) as failed:
            await store.database.read(work, timeout=5)
        assert "s3cret" not in str(failed.value)


async def test_a_read_transaction_cannot_write(database_url: str) -> None:
    async with store_on(database_url) as store:

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(text("DELETE FROM tools"))

        with pytest.raises(StorageUnavailableError):
            await store.database.read(work, timeout=5)


async def test_a_load_sees_one_snapshot_while_applies_go_on(database_url: str) -> None:
    """Each apply gives all tools the generation's number as a tag: a torn read would mix two."""
    names = [f"t{i:03d}" for i in range(600)]  # more than two pages
    async with store_on(database_url) as store:
        await store.apply(tools=[tool(name, tags=["1"]) for name in names])
        done = asyncio.Event()

        async def read() -> int:
            seen = 0
            while not done.is_set():
                rows = await store.load()
                assert {tag for found in rows.tools for tag in found.tags} == {str(rows.generation)}
                seen += 1
            return seen

        readers = [asyncio.ensure_future(read()) for _ in range(3)]
        for generation in range(2, 8):
            result = await store.apply(tools=[tool(name, tags=[str(generation)]) for name in names])
            assert result.generation == generation
        done.set()
        assert min(await asyncio.gather(*readers)) > 0


async def test_an_apply_of_2000_tools_beside_50_readers(database_url: str) -> None:
    async with store_on(database_url) as store, opened(database_url) as importer:
        await store.apply(tools=[tool("a")])
        done = asyncio.Event()

        async def read() -> int:
            reads = 0
            while not done.is_set():
                assert await store.reader.generation("acme", timeout=20) is not None
                reads += 1
            return reads

        readers = [asyncio.ensure_future(read()) for _ in range(50)]
        tools = [tool(f"t{i}", input_schema={"type": "object", "title": "x" * 500}) for i in range(2000)]
        first, second = await asyncio.gather(importer.apply(tools=tools[:1200]), store.apply(tools=tools[800:]))
        done.set()
        assert min(await asyncio.gather(*readers)) > 0
        assert sorted((first.generation, second.generation)) == [2, 3]
        assert len(await store.tools()) == 2001


async def test_sqlite_locked_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "toolbelay.sqlite"
    async with store_on(f"sqlite+aiosqlite:///{path}") as store:
        await store.apply(tools=[tool("a")])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(ToolbelayError) as locked:
            await store.apply(tools=[tool("b")], timeout=0.3)
        assert time.monotonic() - started < 0.3 + SLACK
        assert locked.value.reason is ErrorReason.AUTHORITY_UNVERIFIABLE
        assert await store.reader.generation("acme", timeout=1) == 1  # readers never wait for a writer
        waiting = asyncio.ensure_future(store.apply(tools=[tool("b")], timeout=20))
        await asyncio.sleep(0)
        assert len(await store.tools()) == 1
        other.execute("COMMIT")
        assert (await waiting).generation == 2
        other.close()


async def test_sqlite_connections_are_set_up(tmp_path: Path) -> None:
    async with store_on(f"sqlite+aiosqlite:///{tmp_path / 'toolbelay.sqlite'}") as store:
        assert (await store.sql("PRAGMA journal_mode"))[0][0] == "wal"
        assert (await store.sql("PRAGMA foreign_keys"))[0][0] == 1
        with pytest.raises(StorageUnavailableError, match="SQLITE_CONSTRAINT_FOREIGNKEY"):
            await store.sql("INSERT INTO policies VALUES (99, 'a', 'b')")


async def test_a_deadline_holds_when_the_work_does_not_let_go() -> None:
    """As psycopg does while it waits for its cancel request."""
    deadlines = Deadlines()
    release = asyncio.Event()
    ended: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await release.wait()
            ended.append("late")
            raise OSError("as late as it is useless") from None

    with pytest.raises(StorageUnavailableError):
        await deadlines.within(0.01, stubborn())
    outer = asyncio.ensure_future(deadlines.within(30, stubborn()))
    await asyncio.sleep(0)
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    assert ended == []
    release.set()
    await deadlines.drain(5)
    assert ended == ["late", "late"]
    with pytest.raises(StorageUnavailableError):
        await deadlines.within(0, stubborn())
