"""F2 and F3 over the real service: lost raises, SQL that stays away, restored databases, admins that die."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest

from tests.support.command import toolbelay
from tests.support.fault_world import (
    POLL_SECONDS,
    TOOLS,
    UNVERIFIED_SECONDS,
    FaultWorld,
    fault_world,
    reason_of,
    soon,
    told,
)
from tests.support.servers import RedisServer
from tests.support.service import ids
from tests.support.waiting import wait_until
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.sessions.endpoint import AT_ONCE
from toolbelay.sessions.keys import generation_key

pytestmark = pytest.mark.faults

A, B = TOOLS[:2]
GROWING = 3 * AT_ONCE  # calls at once: more than share a connection
KEY = generation_key("acme").decode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultWorld]:
    with fault_world(tmp_path_factory.mktemp("promises")) as made:
        yield made


@pytest.fixture
def world(shared: FaultWorld) -> Iterator[FaultWorld]:
    shared.apply()
    yield shared
    shared.wire.target = shared.redis.port
    shared.cure()


def shows_a(world: FaultWorld, session: str = "s") -> bool:
    return A in ids(world.client().select(session, candidates=[A, B], called_tools=["a"]))


def seen(world: FaultWorld) -> int:
    """The generation in Redis; 0 = missing."""
    value = world.redis.command("GET", KEY)
    return int(value) if isinstance(value, bytes) else 0


# F2: the raise is lost right after the acknowledgement.


def flush(world: FaultWorld) -> None:
    world.redis.command("FLUSHALL")


def evict(world: FaultWorld) -> None:
    world.redis.command("DEL", KEY)


def restart_empty(world: FaultWorld) -> None:
    world.redis.kill()
    world.redis.start()


def older_number(world: FaultWorld) -> None:
    world.redis.command("SET", KEY, seen(world) - 1, "EX", 600)


@pytest.mark.parametrize("lose", [flush, evict, restart_empty, older_number])
def test_a_lost_raise_is_noticed(world: FaultWorld, lose: Callable[[FaultWorld], None]) -> None:
    for _ in range(3):
        generation = world.apply().generation
        assert shows_a(world)
        revoked = world.apply(denied=[A]).generation
        assert revoked > generation
        lose(world)
        soon(lambda: not shows_a(world), POLL_SECONDS, "the revocation holds again")
        assert not any(shows_a(world) for _ in range(20))
        soon(lambda g=revoked: seen(world) >= g, POLL_SECONDS, "Redis is repaired")  # type: ignore[misc]


def test_a_failover_to_a_replica_that_lacks_the_raise(world: FaultWorld) -> None:
    replica = RedisServer("valkey", "--replicaof", f"127.0.0.1 {world.redis.port}", "--repl-diskless-sync-delay", "0")
    try:
        replica.start()
        wait_until(lambda: b"master_link_status:up" in _replication(replica), 10)
        assert shows_a(world)
        wait_until(lambda: replica.command("GET", KEY) == str(seen(world)).encode(), 10)
        replica.command("REPLICAOF", "NO", "ONE")
        world.apply(denied=[A])  # confirmed by the primary alone
        world.redis.suspend()
        world.wire.target = replica.port
        world.wire.drop_connections()
        answers = [shows_a(world) for _ in range(20)]
        assert not any(answers)  # the new connections were checked against SQL at once
        soon(lambda: replica.command("GET", KEY) == str(world_generation(world)).encode(), POLL_SECONDS)
        world.redis.resume()
    finally:
        world.wire.target = world.redis.port
        replica.close()
        world.wire.drop_connections()


def _replication(server: RedisServer) -> bytes:
    with server.client() as client:
        client.response_callbacks.clear()
        reply = client.execute_command("INFO", "replication")
    assert isinstance(reply, bytes)
    return reply


def world_generation(world: FaultWorld) -> int:
    return world.client().select("", candidates=[B]).receipt.generation


def test_a_connection_that_could_not_be_checked_is_not_trusted_later(world: FaultWorld) -> None:
    """Redis lost the raise and every connection while SQL is away: closed on each read, not on the first alone."""
    assert _endings_after_a_hidden_revocation(world) == {"UNAVAILABLE AUTHORITY_UNVERIFIABLE"}
    world.sql.forward()
    soon(lambda: reason_of(lambda: shows_a(world)) == "OK", POLL_SECONDS)
    assert not shows_a(world)


def _endings_after_a_hidden_revocation(world: FaultWorld) -> set[str]:
    assert shows_a(world)
    world.sql.refuse()
    world.apply(denied=[A])
    older_number(world)
    world.wire.drop_connections()
    return {reason_of(lambda: shows_a(world)) for _ in range(10)}


def test_a_build_that_trusts_the_first_read_would_be_seen(tmp_path: Path) -> None:
    with fault_world(tmp_path, entry="tests.support.broken_trusting") as broken:
        assert "OK" in _endings_after_a_hidden_revocation(broken)


@pytest.mark.parametrize("away", ["refuse", "black_hole"])
def test_the_pool_grows_while_sql_is_away(world: FaultWorld, away: str) -> None:
    assert shows_a(world)
    world.wire.drop_connections()
    assert shows_a(world)  # one connection, proven
    getattr(world.sql, away)()
    world.wire.reset()
    world.wire.delay(0.05)  # so that calls overlap: more of them than share a connection
    start = threading.Barrier(GROWING)

    def turn(number: int) -> tuple[str, str]:
        start.wait(10)
        return told(world.client().select(f"grow-{away}-{number}", candidates=[A, B], timeout=5))

    with ThreadPoolExecutor(GROWING) as threads:
        outcomes = set(threads.map(turn, range(GROWING)))
    assert outcomes == {("SEEDED", "UNSPECIFIED")}
    assert world.wire.accepted >= 1


# F3


def test_sql_away_closes_after_the_bound(world: FaultWorld) -> None:
    assert shows_a(world)
    world.postgres.suspend()
    assert shows_a(world)
    wait_until(
        lambda: reason_of(lambda: shows_a(world)) == "UNAVAILABLE AUTHORITY_UNVERIFIABLE", UNVERIFIED_SECONDS + 5
    )
    assert reason_of(lambda: world.client().authorize("s", ["a"])) == "UNAVAILABLE AUTHORITY_UNVERIFIABLE"
    assert world.metric("toolbelay_authority_unverified_seconds") > UNVERIFIED_SECONDS - 1
    world.postgres.resume()
    wait_until(lambda: reason_of(lambda: shows_a(world)) == "OK", 15)


# Admins


def test_two_admins_at_once(world: FaultWorld) -> None:
    with ThreadPoolExecutor(4) as threads:
        tries = [threads.submit(world.apply, denied=[TOOLS[i % 4]]) for i in range(12)]
        results = sorted(task.result().generation for task in tries)
    changed = [g for g in results if results.count(g) == 1]
    assert len(changed) >= 4
    final = world.apply(denied=[A]).generation
    assert final >= results[-1]
    assert seen(world) == final
    answer = world.client().select("two", candidates=[A, B])
    assert (ids(answer), answer.receipt.generation) == ([B], final)


@pytest.mark.parametrize("polls", [True, False])
def test_an_admin_killed_between_commit_and_raise(world: FaultWorld, polls: bool, tmp_path: Path) -> None:
    assert shows_a(world)
    before = seen(world)
    if not polls:
        world.sql.black_hole()  # or else the poller may bring it before the repeated apply does
    killed = subprocess.run(
        [sys.executable, "-m", "tests.support.killed_admin", A],
        env=dict(world.admin_environment) | {"PATH": "/usr/bin"},
        timeout=60,
        check=False,
    )
    assert killed.returncode == -9
    assert seen(world) in ({before, before + 1} if polls else {before})
    if not polls:
        assert shows_a(world)  # committed, not acknowledged
        world.sql.forward()
        world.sql.drop_connections()
        again = world.apply(denied=[A])
        assert (again.generation, again.changed) == (before + 1, False)
        assert not shows_a(world)
    else:
        soon(lambda: not shows_a(world), POLL_SECONDS, "the poller brings what is committed")
    assert seen(world) == before + 1


def test_a_database_restored_behind_redis(world: FaultWorld, tmp_path: Path) -> None:
    assert shows_a(world)
    saved = world.apply().generation
    with ExitDump(world) as dump:
        world.apply(denied=[A, B])
        world.apply(denied=[A])
        assert not shows_a(world)
        dump.restore()
        with pytest.raises(ToolbelayError, match="db resync") as unacknowledged:
            world.apply(denied=[B])  # its number is one that the replicas are past
        assert unacknowledged.value.reason is ErrorReason.PROPAGATION_UNCONFIRMED
        dump.restore()
        world.service.kill()  # a worker that starts anew knows nothing of what was lost
        world.service.start(wait=False)
        wait_until(lambda: reason_of(lambda: shows_a(world)) == "UNAVAILABLE AUTHORITY_UNVERIFIABLE", 20)
        done = toolbelay("db", "resync", cwd=tmp_path, environment=world.admin_environment)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: reason_of(lambda: shows_a(world)) == "OK", 15)
        assert shows_a(world)  # what the backup says
        assert world_generation(world) > saved + 1
        world.apply(denied=[A])
        assert not shows_a(world)


def test_a_worker_that_holds_more_than_a_restored_database_closes(world: FaultWorld, tmp_path: Path) -> None:
    world.apply()
    with ExitDump(world) as dump:
        world.apply(denied=[A])
        assert not shows_a(world)
        dump.restore()
        wait_until(
            lambda: reason_of(lambda: shows_a(world)) == "UNAVAILABLE AUTHORITY_UNVERIFIABLE", UNVERIFIED_SECONDS + 5
        )
        assert toolbelay("db", "resync", cwd=tmp_path, environment=world.admin_environment).returncode == 0
        wait_until(lambda: reason_of(lambda: shows_a(world)) == "OK", 15)
        assert shows_a(world)


class ExitDump:
    """The rows of the catalog's tables, to be put back."""

    def __init__(self, world: FaultWorld) -> None:
        self._world = world

    def __enter__(self) -> Self:
        self._run("CREATE SCHEMA saved", *(f"CREATE TABLE saved.{t} AS TABLE public.{t}" for t in self._tables()))
        return self

    def __exit__(self, *_: object) -> None:
        self._run("DROP SCHEMA saved CASCADE")

    def restore(self) -> None:
        tables = self._tables()
        self._run(
            "SET session_replication_role = replica",
            *(f"DELETE FROM public.{t}" for t in tables),
            *(f"INSERT INTO public.{t} SELECT * FROM saved.{t}" for t in tables),
        )

    def _tables(self) -> list[str]:
        rows = self._query(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
        )
        return sorted(str(name) for (name,) in rows)

    def _run(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self._world.postgres.database_url(self._world.database)) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _query(self, statement: str) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self._world.postgres.database_url(self._world.database)) as connection:
            return connection.execute(statement.encode()).fetchall()


# min_generation


def test_min_generation_reads_your_writes(world: FaultWorld) -> None:
    client = world.client()
    generation = world.apply(denied=[A]).generation
    answer = client.select("own", candidates=[A, B], min_generation=generation)
    assert (ids(answer), answer.receipt.generation) == ([B], generation)
    world.wire.black_hole()  # without Redis too: SQL says
    generation = world.apply(denied=[B]).generation
    answer = client.select("own", candidates=[A, B], min_generation=generation)
    assert (ids(answer), answer.receipt.generation) == ([A], generation)
    refused = reason_of(lambda: client.select("own", candidates=[A], min_generation=generation + 1))
    assert refused == "FAILED_PRECONDITION GENERATION_NOT_REACHED"


def test_a_far_ahead_min_generation_cannot_flood_sql(world: FaultWorld) -> None:
    client = world.client()
    assert shows_a(world)
    world.sql.reset()

    def ahead(_: int) -> str:
        return reason_of(lambda: client.select("flood", candidates=[A], min_generation=10**9))

    with ThreadPoolExecutor(25) as threads:
        assert set(threads.map(ahead, range(500))) == {"FAILED_PRECONDITION GENERATION_NOT_REACHED"}
    # A check is four trips (the pool's ping, BEGIN, SELECT, COMMIT); 25 at a time share one, 500 alone would be 2,000.
    assert world.sql.round_trips < 1_000
    assert shows_a(world)


def test_coalesced_reads_begin_after_their_callers() -> None:
    """A caller never shares a read that was at work when it asked."""
    from toolbelay.catalog.coalesce import NextRead

    async def play() -> None:
        began: list[int] = []
        gate = asyncio.Event()

        async def read() -> int:
            began.append(len(began))
            mine = began[-1]
            await gate.wait()
            return mine

        reads = NextRead(read)
        first = reads.after_now()
        await asyncio.sleep(0)
        late = [reads.after_now() for _ in range(50)]
        assert began == [0]
        gate.set()
        assert await first == 0
        assert {await task for task in late} == {1}
        assert began == [0, 1]

    asyncio.run(play())
