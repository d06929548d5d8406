"""Speed, side by side with what Python's gRPC can do at most: `python -m bench.bench`, or `make bench`.

One run, one table; the same as JSON in bench/out/bench.json. Ratios to the limit of the same run are the result. It
takes six minutes, wants nothing else to run, and needs h2load and a C compiler (it says how to get them).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import generator, machine, rows, table, world
from bench.cases import Case, Turns
from bench.change import measure_change
from bench.ext_proc import ext_proc_case
from bench.generator import OUT, MissingToolError, Record, write_records
from bench.limits import METHOD, Limit
from bench.loop_stall import measure_stall
from bench.measure import Desk, Reference, Row, Shape
from bench.stage import Stage, call, port, staged
from tests.support.servers import RedisServer

Fact = tuple[str, str, str]
LARGE, HUGE = 10_000, 100_000
HALF_RATE_RUNS = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """The two limits' processes, and the request and answer that they were made from."""

    empty: Limit
    script: Limit
    record: Record
    records: Path

    @property
    def reference(self) -> Reference:
        return Reference(self.script.port, self.records, self.script.process.pid)


class Run:
    """Collects what one run measures."""

    def __init__(self, only: str, shape: Shape) -> None:
        self._only = only
        self.shape = shape
        self.rows: list[Row] = []
        self.limits: dict[str, float] = {}
        self.facts: list[Fact] = []
        self.failed = False

    def wants(self, name: str) -> bool:
        return self._only in name

    def measure(self, stage: Stage, reference: Reference, cases: Iterator[Case], shape: Shape | None = None) -> None:
        desk = Desk(stage, reference, shape or self.shape)
        for case in cases:
            if self.wants(case.name):
                try:
                    row = desk.measure(case)
                except AssertionError as wrong:
                    # The others are worth having; the run as a whole still fails.
                    self.failed = True
                    self.fact(case.name, "not measured", str(wrong))
                    continue
                self.rows.append(row)
                print(table.short(row), flush=True)

    def fact(self, what: str, figure: str, wanted: str = "") -> None:
        self.facts.append((what, figure, wanted))
        print(f"{what}: {figure} {f'({wanted})' if wanted else ''}", flush=True)


@contextmanager
def limits(redis: RedisServer, stage: Stage, folder: Path) -> Iterator[Limits]:
    """The limits, answering the bytes of an unchanged turn with 16 tools."""
    case = rows.unchanged_caller(Turns(stage.ids))
    Desk(stage, Reference(0, folder), Shape()).prepare(case)
    record = next(case.records())
    body = folder / "answer"
    body.write_bytes(call(stage.service.port, record))
    records = write_records(folder / "reference.bin", [record])
    with Limit(port(), body) as empty, Limit(port(), body, redis.url) as script:
        yield Limits(empty, script, record, records)


@contextmanager
def other_redis() -> Iterator[RedisServer]:
    """A server of its own for a stage with another catalog: sessions and generations of one are nothing to the other."""
    redis = RedisServer("valkey")
    try:
        yield redis.start()
    finally:
        redis.close()


def _small(run: Run, stage: Stage, limit: Limits, folder: Path) -> None:
    """Everything at 1,241 tools."""
    unchanged = rows.unchanged_caller(Turns(stage.ids))
    for name, at in (("empty handler", limit.empty.port), ("handler + one script call", limit.script.port)):
        run.limits[name] = generator.run(at, METHOD, limit.records, seconds=run.shape.seconds).rate
        run.limits[f"{name}, by h2load"] = generator.h2load(at, METHOD, limit.record, folder, requests=4_000)
    h2load = generator.h2load(stage.service.port, METHOD, limit.record, folder, requests=4_000)
    run.limits[f"{unchanged.name}, one body, by h2load"] = h2load
    run.measure(stage, limit.reference, rows.at_1241(stage.ids))
    if run.wants("p99"):
        _half_rate(run, Desk(stage, limit.reference, run.shape), unchanged)
    if run.wants("ext_proc"):
        run.measure(stage, limit.reference, iter([ext_proc_case(stage.ext_proc_port)]))


def _half_rate(run: Run, desk: Desk, case: Case) -> None:
    limit, full = desk.saturated(case)
    pairs = [desk.at_rate(case, limit.rate / 2, full.rate / 2, seconds=2) for _ in range(HALF_RATE_RUNS)]
    pairs.sort(key=lambda pair: pair[1].p99_ms / pair[0].p99_ms)
    slow, own = pairs[len(pairs) // 2]
    ratios = " ".join(f"{own.p99_ms / slow.p99_ms:.2f}" for slow, own in pairs)
    told = (
        f"{own.p99_ms / slow.p99_ms:.2f} ({own.p99_ms:.2f} ms at {full.rate / 2:,.0f}/s; the limit {slow.p99_ms:.2f} ms"
        f" at {limit.rate / 2:,.0f}/s; the runs in order: {ratios})"
    )
    run.fact("p99 at half of the saturated rate, against the limit's at its half", told, "must 2.5, goal 1.5")


def _large(run: Run, limit: Limits, folder: Path) -> None:
    tools = world.catalog(LARGE)
    with other_redis() as redis, staged(redis, folder / "large", tools, {"bench": world.policies(1, tools)}) as stage:
        stage.await_index()
        run.measure(stage, limit.reference, rows.by_size(stage.ids, "10,000", must_hybrid=None))
        run.fact("memory of a worker, 10,000 tools", f"{stage.memory():.0f} MB resident", "must 300, goal 150")
        change = measure_change(stage, tools)
        run.fact(
            "change of 1 tool of 10,000 until the first answer of the new generation",
            f"{change.first_answer_ms:.0f} ms after the acknowledgement, longest call {change.longest_call_ms:.0f} ms"
            f" (median of {change.repeats}); the apply itself {change.apply_ms:.0f} ms",
            "must 250, goal 50",
        )
    run.fact("hold of the event loop by a reload, 10,000 tools", str(measure_stall(LARGE)), "must 5 ms")


def _huge(run: Run, limit: Limits, folder: Path) -> None:
    tools = world.catalog(HUGE)
    with other_redis() as redis, staged(redis, folder / "huge", tools, {"bench": world.policies(1, tools)}) as stage:
        stage.await_index()
        run.measure(stage, limit.reference, rows.by_size(stage.ids, "100,000", must_hybrid=(0.03, 0.15)))
        run.fact("memory of a worker, 100,000 tools", f"{stage.memory():.0f} MB resident")


def _workers(run: Run, redis: RedisServer, limit: Limits, folder: Path) -> None:
    tools = world.catalog(1_241)
    many = Shape(run.shape.seconds, run.shape.repeats, connections=16, streams=2)  # spread over the workers
    for workers in (1, 2):
        name = f"workers-{workers}"
        with staged(redis, folder / name, tools, {"bench": world.policies(1, tools)}, workers=workers) as stage:
            run.measure(stage, limit.reference, rows.of_workers(stage.ids, workers), many)
    one, two = run.rows[-2:]
    run.fact("2 workers against 1", f"{two.rate / one.rate:.2f} times the throughput", "goal 1.8 on 4 cores or more")


def run_all(run: Run, redis: RedisServer, folder: Path) -> None:
    """Measure."""
    tools = world.catalog(1_241)
    with ExitStack() as stack:
        stage = stack.enter_context(staged(redis, folder / "small", tools, rows.tenants(tools), ext_proc=True))
        limit = stack.enter_context(limits(redis, stage, folder))
        stage.await_index()
        _small(run, stage, limit, folder)
        if run.wants("workers"):
            _workers(run, redis, limit, folder)
        if run.wants("100 tools"):
            few = world.catalog(100)
            policies = {"bench": world.policies(1, few)}
            with other_redis() as redis_of_few, staged(redis_of_few, folder / "few", few, policies) as small:
                small.await_index()
                run.measure(small, limit.reference, rows.by_size(small.ids, "100", must_hybrid=None))
        if run.wants("10,000"):
            _large(run, limit, folder)
        if run.wants("100,000"):
            _huge(run, limit, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--seconds", type=float, default=1.6, help="of one run of a row")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    run, about = Run(arguments.only, Shape(arguments.seconds, arguments.repeats)), machine.describe()
    redis = RedisServer("valkey")
    try:
        generator.require()
        redis.start()
        with tempfile.TemporaryDirectory(prefix="toolbelay-bench-") as folder:
            run_all(run, redis, Path(folder))
    except MissingToolError as missing:
        print(f"bench: {missing}", file=sys.stderr)
        return 2
    finally:
        redis.close()
    print("\n" + "\n".join(f"{name}: {value}" for name, value in about.items()) + "\n")
    print(table.table(run.limits, run.rows, run.facts))
    table.write(OUT / "bench.json", about, run.limits, run.rows, run.facts)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
