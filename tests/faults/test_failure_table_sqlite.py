"""The service on SQLite while another process holds the database's lock (row 50)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.command import toolbelay
from tests.support.fault_world import TOOLS, reason_of
from tests.support.servers import RedisServer
from tests.support.service import PERMIT_ALL, Service, ids, migrated, tool

pytestmark = pytest.mark.faults

A, B = TOOLS[:2]
ROUTES = {"default": {"strategy": "caller"}}


@pytest.fixture
def service(tmp_path: Path, fresh_redis_server: Callable[..., RedisServer]) -> Iterator[Service]:
    database = migrated(f"sqlite+aiosqlite:///{tmp_path / 'one.sqlite'}")
    made = Service(database, fresh_redis_server().url, tmp_path, TOOLBELAY_AUTHORITY_POLL_SECONDS="0.2")
    made.apply([tool(t) for t in TOOLS], {"all.cedar": PERMIT_ALL}, ROUTES)
    try:
        yield made.start()
    finally:
        made.close()


def test_a_locked_database_stops_writers_only(service: Service, tmp_path: Path) -> None:
    client = service.client()
    other = sqlite3.connect(tmp_path / "one.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        for number in range(20):
            answer = client.select(f"s{number}", candidates=[A], timeout=1)
            assert ids(answer) == [A]
        assert service.health() == 1
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(service.apply, [tool(A)], {"all.cedar": PERMIT_ALL}, ROUTES, prune=True)
            assert ids(client.select("t", candidates=[B], timeout=1)) == [B]  # readers do not wait for the writer
            other.execute("COMMIT")
            generation = waiting.result(30).generation
    finally:
        other.close()
    answer = client.select("t", candidates=[B])
    assert (ids(answer), answer.receipt.generation) == ([], generation)


def test_an_import_beside_readers_fails_no_reader(service: Service) -> None:
    """2,000 tools are applied while clients select."""
    many = [tool(f"big/t{number}") for number in range(2000)]
    client = service.client()
    with ThreadPoolExecutor(5) as threads:
        applied = threads.submit(service.apply, many, {"all.cedar": PERMIT_ALL}, ROUTES)
        reasons: set[str] = set()
        while not applied.done():
            reasons |= set(threads.map(lambda n: reason_of(lambda: client.select(f"r{n}", candidates=[A])), range(4)))
        assert reasons == {"OK"}
        assert client.select("x", candidates=["big/t1"]).receipt.generation == applied.result().generation


def test_liveness_does_not_hang_on_anything(service: Service, tmp_path: Path) -> None:
    """Row 57."""
    for arguments in (("health",), ("health", "--live")):
        done = toolbelay(*arguments, cwd=tmp_path, environment={"TOOLBELAY_ADDRESS": f"127.0.0.1:{service.port}"})
        assert done.returncode == 0, done.stderr
