"""How long a changed catalog takes to be what calls are answered from, and what calls wait meanwhile."""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from bench.stage import TENANT, Stage

REPEATS = 7
CALLERS = 4


@dataclass(frozen=True, slots=True)
class Change:
    """Medians over the repeats, in milliseconds.

    `first_answer_ms`: from the acknowledgement to the end of the first answer of the new generation, 0 where one came
    before. `longest_call_ms`: of the calls under way or begun in that time. `apply_ms`: of the apply itself.
    """

    first_answer_ms: float
    longest_call_ms: float
    apply_ms: float
    repeats: int


@dataclass(slots=True)
class _Caller:
    """Calls again and again; (begun, ended, generation) of each call."""

    stage: Stage
    name: str
    calls: list[tuple[float, float, int]] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        client = self.stage.service.client(self.name, TENANT, roles=["staff"])
        while not stop.is_set():
            begun = time.monotonic()
            answer = client.select(f"change-{self.name}", route="caller", candidates=self.stage.ids[:4])
            self.calls.append((begun, time.monotonic(), answer.receipt.generation))
            time.sleep(0.002)  # the other processes need the machine too


def measure_change(stage: Stage, tools: list[dict[str, Any]]) -> Change:
    """Change one tool at a time, while clients call."""
    stop = threading.Event()
    callers = [_Caller(stage, f"caller-{number}") for number in range(CALLERS)]
    threads = [threading.Thread(target=caller.run, args=(stop,)) for caller in callers]
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.5)
        seen = [
            _one(stage, {**tools[number], "description": f"changed {number}"}, callers) for number in range(REPEATS)
        ]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    first, longest, applied = (statistics.median(values) for values in zip(*seen, strict=True))
    return Change(first, longest, applied, REPEATS)


def _one(stage: Stage, tool: dict[str, Any], callers: list[_Caller]) -> tuple[float, float, float]:
    begun = time.monotonic()
    generation = stage.service.apply([tool], tenant=TENANT).generation
    acknowledged = time.monotonic()
    time.sleep(0.5)
    calls = [call for caller in callers for call in caller.calls]
    late = [call for call in calls if call[0] > acknowledged and call[2] < generation]
    assert not late, "a call that began after the acknowledgement was answered from an older generation"
    first = min(ended for _, ended, seen in calls if seen >= generation)
    around = [ended - start for start, ended, _ in calls if ended > begun and start < first]
    return max(first - acknowledged, 0) * 1000, max(around) * 1000, (acknowledged - begun) * 1000
