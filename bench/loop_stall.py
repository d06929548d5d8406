"""How long the event loop is held while a snapshot is loaded: `python -m bench.loop_stall [--tools 10000]`.

A worker's application runs here, with a task that wants to run every millisecond; another process changes tools.
What the task waits beyond its time is what a call would wait. The same without changes is told beside it. A machine
that runs something else meanwhile holds the loop too: a wait counts as ours at most by the processor time that this
process had in it, and the longest wait of all is told as well.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import world
from bench.stage import TENANT
from tests.support.servers import RedisServer
from tests.support.service import Service, apply_config, bundle, migrated
from tests.support.waiting import wait_until_async
from toolbelay.api import process
from toolbelay.application.runtime import build
from toolbelay.settings import load
from toolbelay.telemetry.metrics import Metrics

PERIOD = 0.001
CHANGES = 5


@dataclass(frozen=True, slots=True)
class Stall:
    """Milliseconds that the loop was held at most, and at the 99th percentile: quiet, and while loading.

    `loading_waited`: the longest wait, whoever ran.
    """

    quiet_most: float
    quiet_p99: float
    loading_most: float
    loading_p99: float
    loading_waited: float
    reloads: int

    def __str__(self) -> str:
        return (
            f"{self.loading_most:.1f} ms at most in {self.reloads} reloads (p99 {self.loading_p99:.2f} ms,"
            f" longest wait whoever ran {self.loading_waited:.1f} ms);"
            f" without reloads {self.quiet_most:.1f} ms (p99 {self.quiet_p99:.2f} ms)"
        )


async def _held(until: asyncio.Event) -> tuple[list[float], float]:
    """What a task waits beyond its period while this process runs, in milliseconds, sorted; and the longest wait."""
    holds, longest = [], 0.0
    while not until.is_set():
        due, ran = time.perf_counter() + PERIOD, time.process_time()
        await asyncio.sleep(PERIOD)
        waited = (time.perf_counter() - due) * 1000
        holds.append(min(waited, (time.process_time() - ran) * 1000))
        longest = max(longest, waited)
    return sorted(holds), longest


async def _measure(service: Service, tools: int) -> Stall:
    await apply_config(service.environment, TENANT, bundle(world.catalog(tools), world.policies(1, []), world.routes()))
    process.share_interpreter()
    runtime = await build(load(service.environment), Metrics())
    try:
        await wait_until_async(runtime.settled, 120)
        process.spare_what_stays(collect=True)
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(2, done.set)
        quiet, _ = await _held(done)
        held = runtime.ports.freshness.held(TENANT)
        assert held is not None
        first, done = held.generation, asyncio.Event()
        waiting = asyncio.create_task(_held(done))
        await asyncio.to_thread(_change_elsewhere, service, tools)
        await asyncio.sleep(2)  # the last change is polled and indexed
        done.set()
        loading, waited = await waiting
        held = runtime.ports.freshness.held(TENANT)
        assert held is not None
        return Stall(quiet[-1], _p99(quiet), loading[-1], _p99(loading), waited, held.generation - first)
    finally:
        await runtime.close()


def _p99(ordered: list[float]) -> float:
    return ordered[int(len(ordered) * 0.99)]


def _change_elsewhere(service: Service, tools: int) -> None:
    environment = {**os.environ, **service.environment}
    subprocess.run(
        [sys.executable, "-m", "bench.loop_stall", "--change", "--tools", str(tools)], env=environment, check=True
    )


async def _change(tools: int) -> None:
    """The other process: one tool a second."""
    environment = {name: value for name, value in os.environ.items() if name.startswith("TOOLBELAY_")}
    catalog = world.catalog(tools)
    for number in range(CHANGES):
        await apply_config(environment, TENANT, bundle([{**catalog[number], "description": f"changed {time.time()}"}]))
        await asyncio.sleep(1.2)


def measure_stall(tools: int) -> Stall:
    """Measure with servers of its own."""
    redis = RedisServer("valkey")
    try:
        redis.start()
        with tempfile.TemporaryDirectory(prefix="toolbelay-stall-") as folder:
            url = migrated(f"sqlite+aiosqlite:///{folder}/catalog.db")
            service = Service(url, redis.url, Path(folder), TOOLBELAY_LOG_LEVEL="warning")
            return uvloop.run(_measure(service, tools))
    finally:
        redis.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--change", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.change:
        uvloop.run(_change(arguments.tools))
    else:
        print(measure_stall(arguments.tools))


if __name__ == "__main__":
    main()
