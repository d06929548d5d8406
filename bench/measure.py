"""One row: the case and its limit in turns, so that what else the machine does strikes both; medians of the ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from bench import generator
from bench.cases import Case
from bench.generator import Load, Record, write_records
from bench.limits import METHOD
from bench.stage import Stage, select
from toolbelay.v1 import selection_pb2 as pb


@dataclass(frozen=True, slots=True)
class Reference:
    """The limit beside which a row stands: its port and its requests."""

    port: int
    records: Path
    pid: int = 0

    def cpu(self) -> float:
        """Seconds of processor time that its process has used."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


@dataclass(frozen=True, slots=True)
class Shape:
    """How long and how often a row is measured. `seconds`: of one run of the case; of the limit, half of it."""

    seconds: float = 1.6
    repeats: int = 3
    connections: int = 4
    streams: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """A measured row. CPU in microseconds of the workers' processor time; `trips`: reads of Redis from its clients."""

    name: str
    ratio: float
    ratios: tuple[float, ...]
    rate: float
    limit_rate: float
    p50_ms: float
    p99_ms: float
    limit_p99_ms: float
    cpu_us: float
    limit_cpu_us: float
    trips: float
    commands: float
    must: float | None
    goal: float | None
    remark: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Desk:
    """Measures cases on one stage."""

    def __init__(self, stage: Stage, reference: Reference, shape: Shape) -> None:
        self._stage = stage
        self._reference = reference
        self._shape = shape

    def measure(self, case: Case) -> Row:
        """Prepare, check the answers, measure."""
        self.prepare(case)
        path = self._file("records", case.records())
        self.check(case)
        pairs, counted = [], (0, 0)
        used = limit_used = 0.0
        parts = [path] if case.wraps else self._parts(case)
        for repeat in range(self._shape.repeats):
            before = self._reference.cpu()
            limit = self._limit()
            limit_used += self._reference.cpu() - before
            cpu, redis = self._stage.cpu(), self._stage.redis_counts()
            load = self._load(case, parts[repeat % len(parts)])
            used += self._stage.cpu() - cpu
            after = self._stage.redis_counts()
            counted = (counted[0] + after[0] - redis[0], counted[1] + after[1] - redis[1])
            pairs.append((limit, load))
        limited, done = (sum(pair[which].answered for pair in pairs) for which in (0, 1))
        cpu_us = (used / done * 1e6, limit_used / limited * 1e6)
        return _row(case, pairs, cpu_us, (counted[0] / done, counted[1] / done))

    def prepare(self, case: Case) -> None:
        """Send what the case needs to have been sent."""
        for step in case.prepare:
            path = self._file("prepare", step())
            generator.run(self._stage.service.port, METHOD, path, seconds=60, wrap=False)

    def check(self, case: Case) -> None:
        """Look at one answer. Raises AssertionError when the row would not measure what it says."""
        if case.method != METHOD:
            return
        record = next(case.records())
        answer = select(self._stage.service.port, record)
        found = pb.Outcome.Name(answer.receipt.outcome).removeprefix("OUTCOME_")
        seen = (found, answer.receipt.added, len(answer.tools))
        assert seen == (case.outcome, case.added, case.tools), f"{case.name}: answered {seen}"

    def saturated(self, case: Case) -> tuple[Load, Load]:
        """(limit, case) at full rate, in one go."""
        return self._limit(), self._load(case, self._file("records", case.records()))

    def at_rate(self, case: Case, limit_rate: float, case_rate: float, seconds: float) -> tuple[Load, Load]:
        """(limit, case), each at its own rate."""
        path = self._file("records", case.records())
        reference, port = self._reference, self._stage.service.port
        limit = generator.run(reference.port, METHOD, reference.records, seconds=seconds, rate=limit_rate)
        return limit, generator.run(port, case.method, path, seconds=seconds, rate=case_rate)

    def _limit(self) -> Load:
        shape, reference = self._shape, self._reference
        return generator.run(
            reference.port,
            METHOD,
            reference.records,
            seconds=shape.seconds / 2,
            connections=shape.connections,
            streams=shape.streams,
        )

    def _load(self, case: Case, path: Path) -> Load:
        shape = self._shape
        return generator.run(
            self._stage.service.port,
            case.method,
            path,
            seconds=shape.seconds,
            connections=shape.connections,
            streams=shape.streams,
            wrap=case.wraps,
        )

    def _parts(self, case: Case) -> list[Path]:
        """The records that can be sent once, split among the repeats. The first one was used up by the check."""
        records = list(case.records())[1:]
        size = len(records) // self._shape.repeats
        return [self._file(f"part-{n}", iter(records[n * size : (n + 1) * size])) for n in range(self._shape.repeats)]

    def _file(self, name: str, records: Iterator[Record]) -> Path:
        return write_records(self._stage.folder / f"{name}.bin", records)


def _row(case: Case, pairs: list[tuple[Load, Load]], cpu_us: tuple[float, float], counted: tuple[float, float]) -> Row:
    def middle(value: Callable[[Load], float], which: int) -> float:
        return statistics.median(value(pair[which]) for pair in pairs)

    ratios = tuple(load.rate / limit.rate for limit, load in pairs)
    return Row(
        name=case.name,
        ratio=statistics.median(ratios),
        ratios=ratios,
        rate=middle(lambda load: load.rate, 1),
        limit_rate=middle(lambda load: load.rate, 0),
        p50_ms=middle(lambda load: load.p50_ms, 1),
        p99_ms=middle(lambda load: load.p99_ms, 1),
        limit_p99_ms=middle(lambda load: load.p99_ms, 0),
        cpu_us=cpu_us[0],
        limit_cpu_us=cpu_us[1],
        trips=counted[0],
        commands=counted[1],
        must=case.must,
        goal=case.goal,
        remark=case.remark,
    )
