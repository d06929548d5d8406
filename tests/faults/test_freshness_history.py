"""F1 on two replicas, PostgreSQL and Valkey; and that the checker catches a build that breaks it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.broken import plain_set
from tests.support.history import Answer, Change, judge
from tests.support.history_run import GRANTED, Run, summary
from tests.support.servers import PostgresServer, RedisServer
from tests.support.service import Service, apply_config, in_thread, migrated
from toolbelay.sessions import lua

SECONDS = float(os.environ.get("SOAK_HISTORY_SECONDS", "10"))
END_IDLE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolbelay' AND state = 'idle'
"""
MOST_SECONDS = 20.0  # until a broken build is caught; it takes about one

pytestmark = pytest.mark.faults

Replicas = Callable[..., list[Service]]


@contextmanager
def _replicas(database: str, redis: RedisServer, folder: Path) -> Iterator[Replicas]:
    with ExitStack() as stack:

        def start(count: int = 2, **more: str) -> list[Service]:
            services = [Service(migrated(database), redis.url, folder, **more) for _ in range(count)]
            in_thread(apply_config(services[0].environment, "acme", GRANTED))
            for service in services:
                stack.callback(service.close)
                service.start(wait=False)
            return [service.wait() for service in services]

        yield start


@pytest.fixture
def redis(fresh_redis_server: Callable[..., RedisServer]) -> RedisServer:
    return fresh_redis_server()


@pytest.fixture
def replicas(postgres_url: str, redis: RedisServer, tmp_path: Path) -> Iterator[Replicas]:
    with _replicas(postgres_url, redis, tmp_path) as start:
        yield start


def test_no_stale_answer_on_two_replicas(replicas: Replicas) -> None:
    run = Run(replicas())
    verdict = run.play(SECONDS)
    assert not verdict.violations, summary(run, verdict)
    assert verdict.judged > len(run.changes), summary(run, verdict)
    assert len(run.changes) > 5 * SECONDS, summary(run, verdict)


def test_no_stale_answer_while_connections_die(
    postgres_server: PostgresServer, replicas: Replicas, redis: RedisServer
) -> None:
    """Every connection to Redis and to SQL is new again and again: each is checked before it is believed."""
    services, over = replicas(), threading.Event()

    def cut() -> None:
        while not over.wait(0.1):
            redis.command("CLIENT", "KILL", "TYPE", "normal")
            postgres_server.execute(END_IDLE)

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        run = Run(services, may_refuse=True)
        verdict = run.play(SECONDS / 2)
    finally:
        over.set()
        cutting.join()
    assert not verdict.violations, summary(run, verdict)
    assert verdict.judged > len(run.changes) / 4, summary(run, verdict)
    assert run.refused < len(run.answers) / 20, summary(run, verdict)


@pytest.mark.parametrize("fault", ["unchecked", "set", "torn"])
def test_a_broken_build_is_caught(replicas: Replicas, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "set":  # the admin's side of it
        monkeypatch.setattr(lua, "RAISE_GENERATION", plain_set())
    run = Run(replicas(count=1, entry=f"tests.support.broken_{fault}"))
    verdict = run.play(MOST_SECONDS, until_violated=True)
    assert verdict.violations, summary(run, verdict)


CHANGES = (
    Change(1, True, 0.0, 1.0),
    Change(2, False, 10.0, 11.0),
    Change(3, True, 20.0, 21.0),
)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answer("a", 11.0, 12.0, 2, shows=False), ""),
        (Answer("a", 11.0, 12.0, 2, shows=True), "shows what 2 had revoked"),
        (Answer("a", 10.9, 12.0, 1, shows=True), ""),  # began before the acknowledgement
        (Answer("a", 11.0, 20.5, 2, shows=True), ""),  # the grant had begun
        (Answer("a", 11.0, 20.5, 1, shows=True), "older than 2"),
        (Answer("a", 12.0, 13.0, 1, shows=False), "older than 2"),
        (Answer("a", 22.0, 23.0, 3, shows=False), "lacks what 3 had granted"),
        (Answer("a", 0.5, 0.6, 0, shows=False, torn=True), "two generations"),
    ],
)
def test_the_checker(answer: Answer, fault: str) -> None:
    found = judge(CHANGES, [answer]).violations
    assert bool(found) == bool(fault)
    assert not fault or fault in found[0]
