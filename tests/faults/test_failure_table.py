"""The failure table of the design over the real service: outcome, reason, in time, and back without a restart.

Rows 41 (read-only, cut off, loading), 44 (full, evicting) and 46 (hung, silent) among them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final

import grpc
import psycopg
import pytest

from tests.support.fault_world import POLL_SECONDS, TOOLS, FaultWorld, fault_world, reason_of, soon, told
from tests.support.service import ids
from tests.support.waiting import wait_until
from toolbelay.v1 import selection_pb2 as pb

pytestmark = pytest.mark.faults

A, B, C = TOOLS[:3]
Fault = Callable[[FaultWorld], Callable[[], object]]  # breaks something, and gives back how to mend it
SECONDS = 0.8  # deadline of a client's call; a call that misses it fails with DEADLINE_EXCEEDED
SHORT = 0.3
ROUTE_SECONDS = 1.0  # the default of a route's deadline_ms
DEGRADED = ("STATELESS", "STATE_UNAVAILABLE")
CLOSED = "UNAVAILABLE AUTHORITY_UNVERIFIABLE"
END_SERVICE: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'toolbelay'"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultWorld]:
    with fault_world(tmp_path_factory.mktemp("table")) as made:
        yield made


@pytest.fixture
def world(shared: FaultWorld) -> Iterator[FaultWorld]:
    shared.apply()
    for number in range(3):  # proven connections, a session with a pin
        shared.client().select("kept", candidates=[A, B], called_tools=["a"], turn_id=str(number))
    yield shared
    shared.cure()


def turn(world: FaultWorld, session: str = "kept", timeout: float | None = SECONDS) -> pb.SelectToolsResponse:
    return world.client().select(session, candidates=[A, B, C], timeout=timeout)


# Redis away, SQL up: ordinary and stateless.


def killed(world: FaultWorld) -> Callable[[], object]:
    world.redis.kill()
    return world.redis.start


def hung(world: FaultWorld) -> Callable[[], object]:
    world.redis.suspend()
    return world.redis.resume


def slow(world: FaultWorld) -> Callable[[], object]:
    world.wire.delay(1.0)
    return world.wire.forward


def black_holed(world: FaultWorld) -> Callable[[], object]:
    world.wire.black_hole()
    return world.wire.forward


def refused(world: FaultWorld) -> Callable[[], object]:
    world.wire.refuse()
    return world.wire.forward


def cut(world: FaultWorld) -> Callable[[], object]:
    world.wire.cut_replies_after(7)
    return world.wire.forward


def full(world: FaultWorld) -> Callable[[], object]:
    world.redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    world.redis.command("CONFIG", "SET", "maxmemory", "1")
    return partial(world.redis.command, "CONFIG", "SET", "maxmemory", "0")


def read_only(world: FaultWorld) -> Callable[[], object]:
    world.redis.command("REPLICAOF", "127.0.0.1", "1")
    return partial(world.redis.command, "REPLICAOF", "NO", "ONE")


def cut_off(world: FaultWorld) -> Callable[[], object]:
    """A replica that lost its primary and then answers MASTERDOWN."""
    world.redis.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    read_only(world)

    def promoted() -> None:
        world.redis.command("REPLICAOF", "NO", "ONE")
        world.redis.command("CONFIG", "SET", "replica-serve-stale-data", "yes")

    return promoted


def loading(world: FaultWorld) -> Callable[[], object]:
    with world.redis.client() as client:
        client.mset({f"filler:{index}": "x" for index in range(400)})
        for index in range(400):
            client.expire(f"filler:{index}", 600)
        client.save()
    world.redis.stop()
    kept = world.redis._args
    world.redis._args = (*kept, "--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
    starting = threading.Thread(target=world.redis.start)
    starting.start()

    def loaded() -> None:
        starting.join(30)
        world.redis._args = kept
        (world.redis.directory / "dump.rdb").unlink()

    return loaded


REDIS_FAULTS = [killed, hung, slow, black_holed, refused, cut, full, read_only, cut_off, loading]
TOTAL = [killed, hung, slow, black_holed, refused]  # after a while the breaker is open


@pytest.mark.parametrize("fault", REDIS_FAULTS)
def test_without_redis_selection_is_ordinary_and_stateless(world: FaultWorld, fault: Fault) -> None:
    generation = turn(world).receipt.generation
    mend = fault(world)
    try:
        answers = [turn(world) for _ in range(8)]
        assert {told(answer) for answer in answers} == {DEGRADED}
        assert {tuple(ids(answer)) for answer in answers} == {(A, B, C)}
        assert {answer.receipt.generation for answer in answers} == {generation}
        # Policy goes on to decide, from SQL's generation.
        world.commit(denied=[B])
        assert ids(turn(world)) == [A, C]
        decided = world.client().authorize("kept", ["a", "b"], timeout=SECONDS)
        assert not decided.state_checked
        assert [d.verdict for d in decided.decisions] == [pb.VERDICT_ALLOWED, pb.VERDICT_DENIED]
        if fault is not full and fault is not read_only:  # a full or read-only server still reads
            assert reason_of(lambda: world.client().session("kept")) == "UNAVAILABLE STATE_UNAVAILABLE"
        assert reason_of(lambda: world.client().end("kept")) == "UNAVAILABLE STATE_UNAVAILABLE"
    finally:
        mend()
    wait_until(lambda: told(turn(world))[0] != "STATELESS", 10, "state is kept again")


@pytest.mark.parametrize("timeout", [SHORT, None])
@pytest.mark.parametrize("fault", [hung, slow, black_holed])
def test_short_deadlines_and_none_are_kept_without_redis(
    world: FaultWorld, fault: Fault, timeout: float | None
) -> None:
    """Row 46: a call without a deadline has the route's; a silent Redis makes no replica unready."""
    mend = fault(world)
    answers = [told(turn(world, timeout=timeout)) for _ in range(10)]
    health = world.service.health()
    mend()
    assert set(answers) == {DEGRADED}
    assert health == 1


@pytest.mark.parametrize("fault", TOTAL)
def test_a_dead_redis_does_not_cost_each_call_a_timeout(world: FaultWorld, fault: Fault) -> None:
    mend = fault(world)
    try:
        for _ in range(10):
            assert told(turn(world)) == DEGRADED
        opened, timeouts = (_failures(world, cause) for cause in ("breaker_open", "timeout"))
        for _ in range(100):
            assert told(turn(world)) == DEGRADED
        refused_at_once = _failures(world, "breaker_open") - opened
        waited = _failures(world, "timeout") - timeouts
    finally:
        mend()
    assert world.metric("toolbelay_redis_breaker_changes_total", state="open") >= 1
    assert refused_at_once >= 80
    assert waited <= 10  # one probe at a time, further and further apart
    assert world.logged("redis_breaker")


def _failures(world: FaultWorld, cause: str) -> float:
    return world.metric("toolbelay_redis_failures_total", cause=cause)


def test_a_restarted_empty_redis_is_a_fresh_start(world: FaultWorld) -> None:
    world.redis.kill()
    world.redis.start()
    wait_until(lambda: told(turn(world))[0] != "STATELESS", 10)
    session = world.client().session("kept")
    assert session.turn >= 1
    assert not any(t.pinned for t in session.tools)


def test_an_evicting_redis_never_leaves_half_a_state(world: FaultWorld) -> None:
    """Row 44: sessions go as a whole; a call of one that went is a fresh start."""
    client = world.client("evicted")
    world.redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    used = world.redis.command("INFO", "memory")
    assert isinstance(used, dict)
    world.redis.command("CONFIG", "SET", "maxmemory", int(used["used_memory"]) + 400_000)
    try:
        outcomes = set()
        for number in range(600):
            answer = client.select(f"e{number % 300}", candidates=TOOLS, called_tools=["a", "b"], turn_id="x" * 100)
            outcomes.add(told(answer))
            assert set(ids(answer)) >= {A, B}
        assert outcomes <= {("SEEDED", "UNSPECIFIED"), ("REUSED", "UNSPECIFIED"), ("UPDATED", "UNSPECIFIED"), DEGRADED}
        assert ("SEEDED", "UNSPECIFIED") in outcomes
    finally:
        world.redis.command("CONFIG", "SET", "maxmemory", "0")
        world.redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")


def test_script_flush_in_traffic_loses_nothing(world: FaultWorld) -> None:
    """Row 42."""
    over = threading.Event()

    def flush() -> None:
        while not over.wait(0.05):
            world.redis.command("SCRIPT", "FLUSH")

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        client = world.client("flushed")
        for number in range(150):
            answer = client.select("f", candidates=[A, B], called_tools=["ab"[number % 2]], turn_id=str(number))
            assert told(answer)[0] != "STATELESS"
            assert answer.receipt.turn == number + 1  # applied exactly once
    finally:
        over.set()
        flushing.join()
    assert world.metric("toolbelay_state_events_total", event="script_reloaded") > 0


# SQL away, Redis up: normal.


def sql_killed(world: FaultWorld) -> Callable[[], object]:
    world.postgres.kill()
    return world.postgres.start


def sql_hung(world: FaultWorld) -> Callable[[], object]:
    world.postgres.suspend()
    return world.postgres.resume


def sql_black_holed(world: FaultWorld) -> Callable[[], object]:
    world.sql.black_hole()
    return world.sql.forward


def sql_refused(world: FaultWorld) -> Callable[[], object]:
    world.sql.refuse()
    return world.sql.forward


def sql_full(world: FaultWorld) -> Callable[[], object]:
    """Every connection is taken, and the service's own were ended."""
    stack = ExitStack()
    address = world.postgres.database_url(world.database)
    control = stack.enter_context(psycopg.connect(address, autocommit=True))
    for _ in range(20):  # the poller may be quicker than we are, but not again and again
        with suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(psycopg.connect(address, connect_timeout=5))
        if not control.execute(END_SERVICE).fetchall():
            return stack.close
    raise AssertionError("the service keeps a connection")


SQL_FAULTS = [sql_killed, sql_hung, sql_black_holed, sql_refused, sql_full]


def _end_sessions(world: FaultWorld) -> None:
    world.postgres.execute(END_SERVICE)


@pytest.mark.parametrize("fault", SQL_FAULTS)
def test_without_sql_calls_go_on(world: FaultWorld, fault: Fault) -> None:
    mend = fault(world)
    try:
        for _ in range(10):
            answer = turn(world, timeout=SECONDS)
            assert told(answer)[0] in {"REUSED", "UPDATED"}
        assert world.client().authorize("kept", ["a"], timeout=SECONDS).state_checked
        assert world.service.health() == 1
        soon(lambda: world.logged("authority_poll_failed"), POLL_SECONDS + 2)
    finally:
        mend()
    polled = world.metric("toolbelay_storage_failures_total")
    assert polled > 0
    wait_until(lambda: not _unverified(world), 15, "the poller reaches SQL again")
    generation = world.apply(denied=[C]).generation
    assert turn(world).receipt.generation == generation


def _unverified(world: FaultWorld) -> bool:
    return world.metric("toolbelay_authority_unverified_seconds") > 2 * POLL_SECONDS


@pytest.mark.parametrize("fault", SQL_FAULTS)
@pytest.mark.parametrize("state_fault", [refused, black_holed])
def test_without_both_calls_are_closed_in_time(
    world: FaultWorld,
    fault: Fault,
    state_fault: Fault,
) -> None:
    with both(world, fault, state_fault):
        for timeout in (SECONDS, SECONDS, SHORT, SHORT):
            assert _reason_in_time(world, timeout) == CLOSED
        assert reason_of(lambda: world.client().authorize("kept", ["a"], timeout=SECONDS)) == CLOSED
        # A caller without a deadline has the route's.
        began = time.monotonic()
        assert reason_of(lambda: turn(world, timeout=None)) == CLOSED
        assert time.monotonic() - began < 2 * ROUTE_SECONDS
    wait_until(lambda: reason_of(lambda: turn(world)) == "OK", 20)
    assert world.metric("toolbelay_authority_unverifiable_total") > 0


def _reason_in_time(world: FaultWorld, timeout: float) -> str:
    """A machine with more to do than cores makes one call late, not three in a row."""
    reasons = (reason_of(lambda: turn(world, timeout=timeout)) for _ in range(3))
    return next((reason for reason in reasons if reason != "DEADLINE_EXCEEDED"), "DEADLINE_EXCEEDED")


@contextmanager
def both(
    world: FaultWorld,
    first: Fault,
    second: Fault,
) -> Iterator[None]:
    with ExitStack() as stack:
        stack.callback(first(world))
        stack.callback(second(world))
        yield


def test_sessions_ended_by_sql_in_traffic_cost_no_call(world: FaultWorld) -> None:
    """Row 51: the calls go on; nothing but the poller asks SQL, and its pool stays usable."""
    over = threading.Event()

    def end() -> None:
        while not over.wait(0.02):
            _end_sessions(world)

    ending = threading.Thread(target=end)
    ending.start()
    try:
        with ThreadPoolExecutor(4) as threads:
            outcomes = set(threads.map(lambda n: told(turn(world, f"t{n % 8}", 5))[0], range(200)))
    finally:
        over.set()
        ending.join()
    assert "STATELESS" not in outcomes
    generation = world.apply(denied=[C]).generation
    assert turn(world).receipt.generation == generation


def test_a_newer_generation_that_sql_cannot_bring_is_closed(world: FaultWorld) -> None:
    """Redis up, SQL away, and the snapshot older than Redis says."""
    turn(world)
    world.sql.refuse()
    world.apply(denied=[A])
    for _ in range(5):
        assert reason_of(lambda: turn(world)) == CLOSED
    world.sql.forward()
    wait_until(lambda: reason_of(lambda: turn(world)) == "OK", 10)
    assert A not in ids(turn(world))


def test_a_full_pool_of_redis_connections_is_told_in_time(world: FaultWorld) -> None:
    """Row 45: 200 calls at once over a delayed wire; each is answered, none is lost or hangs."""
    world.wire.delay(0.05)

    def call(number: int) -> str:
        try:
            return told(turn(world, f"p{number}", 5))[0]
        except grpc.RpcError as error:
            return str(error.code())

    with ThreadPoolExecutor(64) as threads:
        outcomes = set(threads.map(call, range(200)))
    assert outcomes <= {"SEEDED", "STATELESS"}
