"""Item 12: each fallback, conflict, retry, breaker change, refused token and removed tool is counted and logged."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fault_world import TOOLS, FaultWorld, fault_world, reason_of, works
from tests.support.service import Client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

A, B = TOOLS[:2]
MOST_LABELS = 40  # values of one label of any metric


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultWorld]:
    with fault_world(tmp_path_factory.mktemp("telemetry")) as made:
        yield made
        # Last of all: nothing that was played is in the lines, and no label runs wild.
        log = made.service.log.read_text()
        for word in ("telemetry-subject", "telemetry-session", "telemetry-turn", "telemetry-query", "crm/a"):
            assert word not in log
        _assert_bounded(made)


def _assert_bounded(world: FaultWorld) -> None:
    values: dict[tuple[str, str], set[str]] = {}
    with urlopen(f"http://{world.service.environment['TOOLBELAY_METRICS_LISTEN']}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault((family.name, label), set()).add(value)
    assert values
    assert max(map(len, values.values())) <= MOST_LABELS
    assert "telemetry-" not in text


def counted(world: FaultWorld, name: str, event: str, /, **labels: str) -> bool:
    """Whether both the metric and the log line are there."""
    return world.metric(f"toolbelay_{name}_total", 0, **labels) > 0 and bool(world.logged(event))


def turn(world: FaultWorld, session: str = "telemetry-session", **more: Any) -> None:
    fields: dict[str, Any] = {"candidates": [A, B], "query": "telemetry-query", "called_tools": ["a"], **more}
    world.client("telemetry-subject").select(session, **fields)


def test_removed_tools(world: FaultWorld) -> None:
    turn(world)
    world.apply(denied=[A])
    turn(world, called_tools=[])
    assert counted(world, "tools_removed", "tools_removed", kind="unauthorized")
    world.apply(without=[B])
    turn(world, called_tools=[])
    assert counted(world, "tools_removed", "tools_removed", kind="unavailable")
    assert {line["kind"] for line in world.logged("tools_removed")} >= {"unauthorized", "unavailable"}
    world.apply()


def test_replays_and_reused_keys(world: FaultWorld) -> None:
    for query in ("telemetry-query", "telemetry-query", "telemetry-query 2"):
        turn(world, turn_id="telemetry-turn", query=query)
    assert counted(world, "replays", "turn_replayed")
    assert counted(world, "turn_keys_reused", "turn_key_reused")


def test_conflicts_and_retries(world: FaultWorld) -> None:
    world.wire.delay(0.005)
    barrier = threading.Barrier(4)

    def one(number: int) -> None:
        barrier.wait(10)
        turn(world, "telemetry-session-2", called_tools=["abcd"[number]])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, range(4)))
    world.wire.forward()
    assert counted(world, "state_conflicts", "state_conflict")
    assert counted(world, "state_retries", "state_retry")


def test_refused_tokens(world: FaultWorld) -> None:
    stranger = Client(world.service.channel, "no.token.at-all")
    assert reason_of(lambda: stranger.select("s")) == "UNAUTHENTICATED TOKEN_INVALID"
    assert counted(world, "tokens_refused", "token_refused", reason="TOKEN_INVALID")


def test_denied_calls(world: FaultWorld) -> None:
    world.client("telemetry-subject").authorize("", ["nothing-of-that-name"])
    assert counted(world, "tool_calls", "tool_call_denied", verdict="DENIED")


def test_state_that_cannot_be_read(world: FaultWorld) -> None:
    """Row 47."""
    turn(world, "telemetry-session-3")
    with world.redis.client() as client:
        for key in client.scan_iter("tb:*:s:*"):
            client.set(key, b"\x00damage", ex=600)
    turn(world, "telemetry-session-3")
    assert counted(world, "state_damaged", "turn_degraded")
    assert counted(world, "state_events", "state_event", event="damaged")


def test_degraded_turns_and_the_breaker(world: FaultWorld) -> None:
    world.wire.refuse()
    for _ in range(8):
        turn(world)
    world.wire.forward()
    wait_until(lambda: works(world.client("mending")), 10)
    for state in ("open", "half_open", "closed"):
        assert counted(world, "redis_breaker_changes", "redis_breaker", state=state)
    assert {line["phase"] for line in world.logged("redis_breaker")} >= {"open", "half_open", "closed"}
    assert counted(world, "turns", "turn_degraded", reason="STATE_UNAVAILABLE")
    assert counted(world, "redis_failures", "turn_degraded", cause="connection")


def test_closed_calls_and_failed_polls(world: FaultWorld) -> None:
    world.sql.refuse()
    world.wire.refuse()
    assert reason_of(lambda: turn(world)) == "UNAVAILABLE AUTHORITY_UNVERIFIABLE"
    wait_until(lambda: counted(world, "storage_failures", "authority_poll_failed"), 10)
    world.sql.forward()
    world.wire.forward()
    assert counted(world, "authority_unverifiable", "authority_unverifiable")
    wait_until(lambda: reason_of(lambda: turn(world)) == "OK", 10)


def test_what_cannot_be_loaded(world: FaultWorld) -> None:
    """Row 64: rows that make no snapshot close the tenant, visibly, and the last good set is not shown as newer."""
    with psycopg.connect(world.postgres.database_url(world.database), autocommit=True) as sql:
        sql.execute("UPDATE policies SET text = 'permit ('")
        sql.execute("UPDATE tenants SET generation = generation + 1")
    wait_until(lambda: counted(world, "reloads", "snapshot_refused", result="failed"), 10)
    assert reason_of(lambda: turn(world)) == "UNAVAILABLE AUTHORITY_UNVERIFIABLE"
    wait_until(lambda: world.metric("toolbelay_tenants_closed") == 1, 10)
    world.apply()  # the repair; a changed policy, hence a new generation
    wait_until(lambda: reason_of(lambda: turn(world)) == "OK", 10)
    wait_until(lambda: world.metric("toolbelay_tenants_closed") == 0, 10)


def test_lines_are_json(world: FaultWorld) -> None:
    lines = [line for line in world.service.log.read_text().splitlines() if line]
    assert lines
    assert all({"event", "level", "timestamp"} <= json.loads(line).keys() for line in lines)
