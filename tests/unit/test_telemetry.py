"""Logs hold no content and no secret; metrics have bounded labels and add up over processes."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from toolbelay.planner.model import Outcome, Reason
from toolbelay.sessions.breaker import Phase
from toolbelay.sessions.observer import StoreEvent
from toolbelay.telemetry import logs
from toolbelay.telemetry.metrics import Metrics
from toolbelay.telemetry.store import StoreTelemetry


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """A function that returns what was logged, parsed."""
    root, ours, stream = logging.getLogger(), logging.getLogger("toolbelay"), io.StringIO()
    kept = root.handlers[:], root.level, ours.level, structlog.get_config()
    logs.configure(level="debug", format="json", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = kept[0]
    root.setLevel(kept[1])
    ours.setLevel(kept[2])
    structlog.configure(**kept[3])


def test_a_line_is_json_with_level_and_time(lines: Any) -> None:
    structlog.get_logger("toolbelay.x").info("ready", generation=3)
    (line,) = lines()
    assert line["event"] == "ready"
    assert line["level"] == "info"
    assert line["logger"] == "toolbelay.x"
    assert line["generation"] == 3
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    "key",
    ["authorization", "token", "query", "definition", "description", "session_id", "subject", "claims", "Authorization",
     "state_secret", "redis_password", "my_api_key", "bearer_value", "arguments", "content"],
)  # fmt: skip
def test_forbidden_keys_lose_their_value(lines: Any, key: str) -> None:
    structlog.get_logger("toolbelay.x").warning("event", **{key: "hunter2"}, nested={"deep": {key: "hunter2"}})
    text = json.dumps(lines())
    assert "hunter2" not in text
    assert text.count(logs.DROPPED) == 2


def test_bytes_and_long_text_are_cut(lines: Any) -> None:
    structlog.get_logger("toolbelay.x").info("event", raw=b"hunter2", long="x" * 10_000)
    (line,) = lines()
    assert line["raw"] == "<7 bytes>"
    assert len(line["long"]) == logs.MAX_TEXT + 1


def test_a_librarys_traceback_stays_out(lines: Any) -> None:
    try:
        int("hunter2 from a request")
    except ValueError:
        logging.getLogger("grpc._cython").exception("Unexpected error in RPC handling")
    text = json.dumps(lines())
    assert "hunter2" not in text
    assert "ValueError" in text


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"toolbelay_{name}", labels)


def test_calls_are_counted_by_method_and_code() -> None:
    metrics = Metrics()
    record = metrics.call_recorder("SelectTools")
    record("OK", 0.001)
    record("OK", 0.002)
    record("UNAVAILABLE", 0.5)
    assert sample(metrics, "calls_total", method="SelectTools", code="OK") == 2
    assert sample(metrics, "calls_total", method="SelectTools", code="UNAVAILABLE") == 1
    assert sample(metrics, "call_seconds_count", method="SelectTools") == 3


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for n in range(50):
        metrics.redis_failure(f"cause {n}")
        metrics.removed(f"kind {n}", 1)
        metrics.ranking_fallback(f"wanted {n}", f"used {n}")
        metrics.breaker_changed(f"state {n}")
    text = generate_latest(metrics.registry).decode()
    assert sum(line.startswith("toolbelay_redis_failures_total{") for line in text.splitlines()) == 1
    assert sum(line.startswith("toolbelay_tools_removed_total{") for line in text.splitlines()) == 1
    assert sum(line.startswith("toolbelay_ranking_fallbacks_total{") for line in text.splitlines()) == 1
    assert sum(line.startswith("toolbelay_redis_breaker_changes_total{") for line in text.splitlines()) == 1


def test_every_cause_of_the_store_has_its_own_label() -> None:
    from toolbelay.sessions import faults
    from toolbelay.telemetry.metrics import REDIS_CAUSES

    assert frozenset(faults.CAUSES) <= REDIS_CAUSES


def test_everything_that_can_happen_to_a_turn_is_counted() -> None:
    metrics = Metrics()
    for outcome in Outcome:
        metrics.turn(outcome.value)
    for reason in Reason:
        metrics.turn("RESET", reason.value)
    metrics.replayed()
    metrics.turn_key_reused()
    metrics.state_conflict()
    metrics.state_retry()
    metrics.state_damaged()
    metrics.tool_call("DENIED", "NOT_AUTHORIZED")
    metrics.overloaded()
    metrics.storage_failure()
    metrics.reloaded(ok=False, seconds=1)
    metrics.authority(lag=2, unverified_seconds=3, tenants=4, closed=1)
    assert sample(metrics, "turns_total", outcome="SEEDED", reason="none") == 1
    assert sample(metrics, "turns_total", outcome="RESET", reason="COLD") == 1
    assert sample(metrics, "generation_lag") == 2
    assert sample(metrics, "reloads_total", result="failed") == 1


def test_what_the_store_reports_is_counted_and_the_breaker_logged() -> None:
    metrics = Metrics()
    telemetry = StoreTelemetry(metrics)
    with structlog.testing.capture_logs() as logged:
        telemetry.failed("timeout")
        telemetry.breaker_changed(Phase.OPEN)
        for event in StoreEvent:
            telemetry.happened(event, 2)
    assert sample(metrics, "redis_failures_total", cause="timeout") == 1
    assert sample(metrics, "redis_breaker_changes_total", state="open") == 1
    assert all(sample(metrics, "state_events_total", event=event.value) == 2 for event in StoreEvent)
    assert {line["event"] for line in logged} == {"redis_breaker", "state_event"}


class CountingCache:
    hits = 3
    misses = 1

    def __len__(self) -> int:
        return 7


def test_caches_are_sampled_by_difference() -> None:
    metrics, cache = Metrics(), CountingCache()
    metrics.watch_cache("tokens", cache)
    metrics.sample()
    cache.hits += 2
    metrics.sample()
    assert sample(metrics, "cache_hits_total", cache="tokens") == 5
    assert sample(metrics, "cache_misses_total", cache="tokens") == 1
    assert sample(metrics, "cache_entries", cache="tokens") == 7


def test_processes_add_up_and_dead_ones_leave_the_gauges(tmp_path: Path) -> None:
    program = (
        "import os; from toolbelay.telemetry.metrics import Metrics; m = Metrics();"
        "m.overloaded(); m.in_flight(2); print(os.getpid())"
    )
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    pids = [
        int(subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout)
        for _ in range(2)
    ]
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call]
    assert registry.get_sample_value("toolbelay_overloads_total") == 2
    assert registry.get_sample_value("toolbelay_in_flight") == 4
    mark_process_dead(pids[0], str(tmp_path))  # type: ignore[no-untyped-call]
    assert registry.get_sample_value("toolbelay_in_flight") == 2
    assert registry.get_sample_value("toolbelay_overloads_total") == 2
