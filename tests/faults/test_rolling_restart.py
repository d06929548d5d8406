"""Starting and stopping replicas: ready when loaded, no call lost, no state lost, by a client that retries UNAVAILABLE."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import create_engine, text

from tests.conftest import sqlalchemy_url
from tests.support.command import toolbelay
from tests.support.fault_world import TOOLS, FaultWorld, fault_world, reason_of, told
from tests.support.servers import PostgresServer, RedisServer
from tests.support.service import PERMIT_ALL, Client, Service, apply_config, bundle, ids, in_thread, migrated, tool
from tests.support.waiting import wait_until
from toolbelay.v1 import selection_pb2 as pb

pytestmark = pytest.mark.faults

A, B = TOOLS[:2]
RETRIES = 200


class Retrying:
    """One client over two replicas that retries on UNAVAILABLE only, on the other replica first."""

    def __init__(self, world: FaultWorld, subject: str) -> None:
        self._clients: list[Client] = [world.client(subject, replica=number) for number in range(2)]
        self._turn = 0

    def call(self, work: Callable[[Client], Any]) -> Any:
        for _ in range(RETRIES):
            self._turn += 1
            try:
                return work(self._clients[self._turn % 2])
            except grpc.RpcError as error:
                call: Any = error
                if call.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                time.sleep(0.02)  # a client's backoff
        raise AssertionError("no replica answers")


def _turn(number: int, client: Client) -> pb.SelectToolsResponse:
    return client.select("r", candidates=TOOLS, called_tools=["ab"[number % 2]], turn_id=str(number))


def test_a_rolling_restart_loses_no_call_and_no_state(tmp_path: Path) -> None:
    with fault_world(tmp_path, replicas=2) as world:
        over = threading.Event()
        played: dict[int, int] = {}

        def play(number: int) -> None:
            retrying, turns = Retrying(world, f"rolling-{number}"), 0
            while not over.is_set():
                turns += 1
                answer = retrying.call(partial(_turn, turns))
                assert told(answer)[0] in {"SEEDED", "REUSED", "UPDATED"}
                assert answer.receipt.turn == turns
                decided = retrying.call(lambda c: c.authorize("r", ["a"], timeout=10))
                assert turns < 3 or decided.decisions[0].verdict == pb.VERDICT_ALLOWED
            played[number] = turns

        with ThreadPoolExecutor(4) as threads:
            playing = [threads.submit(play, number) for number in range(4)]
            try:
                for replica in world.replicas:
                    assert replica.terminate() == 0
                    replica.start()
            finally:
                over.set()
            for task in playing:
                task.result()
        for number, turns in played.items():
            session = world.client(f"rolling-{number}").session("r")
            assert session.turn == turns
            assert {t.tool_id for t in session.tools if t.pinned} == {A, B}


def test_a_stop_lets_running_calls_end_with_their_own_status(tmp_path: Path) -> None:
    with fault_world(tmp_path) as world:
        client = world.client()
        client.select("s", candidates=[A, B])
        world.wire.delay(0.2)
        with ThreadPoolExecutor(8) as threads:
            running = [threads.submit(client.select, f"s{n}", candidates=[A, B], timeout=10) for n in range(8)]
            wait_until(lambda: world.metric("toolbelay_in_flight") >= 8, 10)
            code = threads.submit(world.service.terminate)
            wait_until(lambda: world.service.health() != 1, 10, "health says NOT_SERVING")
            answers = [task.result() for task in running]
            assert code.result() == 0
        assert {tuple(ids(answer)) for answer in answers} == {(A, B)}
        assert [line["event"] for line in world.logged("stopped")] == ["stopped"]


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    name = postgres_server.create_database()
    yield sqlalchemy_url(postgres_server, name)
    postgres_server.drop_database(name)


def test_without_a_schema_not_ready_until_it_is_there(
    database: str, fresh_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """Row 57: calls are told NOT_READY, the log says what to do, and `db upgrade` is all that is needed."""
    with ExitStack() as stack:
        service = Service(database, fresh_redis_server().url, tmp_path, TOOLBELAY_AUTHORITY_POLL_SECONDS="0.2")
        stack.callback(service.close)
        service.start(wait=False)
        wait_until(lambda: service.health() == 2, 20, "alive, not ready")
        assert reason_of(lambda: service.client().select("s", candidates=[A])) == "UNAVAILABLE NOT_READY"
        assert "toolbelay db upgrade" in service.log.read_text()
        assert service.process.poll() is None
        migrated(database)
        config = bundle([tool(t) for t in TOOLS], {"all.cedar": PERMIT_ALL}, {"default": {"strategy": "caller"}})
        in_thread(apply_config(service.environment, "acme", config))
        service.wait()
        assert ids(service.client().select("s", candidates=[A])) == [A]


def test_without_sql_not_ready_until_it_answers(
    fresh_postgres_server: Callable[..., PostgresServer],
    fresh_redis_server: Callable[..., RedisServer],
    tmp_path: Path,
) -> None:
    server = fresh_postgres_server()
    database = migrated(sqlalchemy_url(server, server.create_database()))
    server.kill()
    with ExitStack() as stack:
        service = Service(database, fresh_redis_server().url, tmp_path, TOOLBELAY_AUTHORITY_POLL_SECONDS="0.2")
        stack.callback(service.close)
        service.start(wait=False)
        wait_until(lambda: service.health() == 2, 20, "alive, not ready")
        server.start()
        service.wait()


def test_an_unknown_schema_stops_the_start(
    database: str, fresh_redis_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """Row 48: waiting would not help, so the process ends with one clear line and changes nothing."""
    migrated(database)
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    settings = Service(database, fresh_redis_server().url, tmp_path).environment
    done = toolbelay("serve", cwd=tmp_path, environment=settings, timeout=60)
    assert done.returncode != 0
    assert "9999" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_used_port_is_an_error(tmp_path: Path, fresh_redis_server: Callable[..., RedisServer]) -> None:
    """Row 56: a second replica on the same port is no second listener."""
    database = migrated(f"sqlite+aiosqlite:///{tmp_path / 'one.sqlite'}")
    redis = fresh_redis_server()
    with ExitStack() as stack:
        first = Service(database, redis.url, tmp_path)
        stack.callback(first.close)
        first.start()
        second = Service(database, redis.url, tmp_path, TOOLBELAY_LISTEN=f"127.0.0.1:{first.port}")
        stack.callback(second.close)
        second.start(wait=False)
        assert second.process.wait(30) != 0
        assert first.health() == 1
