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

PROBES = 120  # requests that are sent one after another, to count trips


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
    """A measured row.

    CPU: microseconds of the workers' processor time a request. `trips`: reads of Redis from its clients, and
    `commands` there, those inside scripts counted, both a request.
    """

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
        self.check(case)
        *parts, probe = self.parts(case)
        pairs = []
        used = limit_used = 0.0
        for repeat in range(self._shape.repeats):
            before = self._reference.cpu()
            limit = self._limit()
            limit_used += self._reference.cpu() - before
            cpu = self._stage.cpu()
            load = self._load(case, parts[repeat % len(parts)])
            used += self._stage.cpu() - cpu
            pairs.append((limit, load))
        limited, done = (sum(pair[which].answered for pair in pairs) for which in (0, 1))
        cpu_us = (used / done * 1e6, limit_used / limited * 1e6)
        return _row(case, pairs, cpu_us, self._trips(case, probe))

    def _trips(self, case: Case, path: Path) -> tuple[float, float]:
        """(trips to Redis, commands there) for each of a few calls, one after another: calls at once share trips."""
        before, port = self._stage.redis_counts(), self.port(case)
        load = generator.run(port, case.method, path, seconds=0.3, connections=1, streams=1, wrap=False)
        after = self._stage.redis_counts()
        return (after[0] - before[0]) / load.answered, (after[1] - before[1]) / load.answered

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
        """(limit, case) at full rate."""
        return self._limit(), self._load(case, self._file("records", case.records()))

    def at_rate(self, case: Case, limit_rate: float, case_rate: float, seconds: float) -> tuple[Load, Load]:
        """(limit, case), each at its own rate."""
        path = self._file("records", case.records())
        reference, port = self._reference, self.port(case)
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
            self.port(case),
            case.method,
            path,
            seconds=shape.seconds,
            connections=shape.connections,
            streams=shape.streams,
            wrap=case.wraps,
        )

    def port(self, case: Case) -> int:
        return case.port or self._stage.service.port

    def parts(self, case: Case) -> list[Path]:
        """Files of records: one for each repeat, where a record can be sent only once, and a short one at the end."""
        records = list(case.records())[1:]  # the first one was used up by the check
        if case.wraps:
            return [self._file("records", iter(records)), self._file("probe", iter(records[:PROBES]))]
        size = (len(records) - PROBES) // self._shape.repeats
        starts = range(0, size * self._shape.repeats, size)
        parts = [self._file(f"part-{n}", iter(records[at : at + size])) for n, at in enumerate(starts)]
        return [*parts, self._file("probe", iter(records[-PROBES:]))]

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
