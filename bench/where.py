"""Where the time of a turn goes: `python -m bench.where [--only "unchanged turn, caller, 1,241"] [--svg FILE]`.

py-spy samples the worker under full load, only what holds the interpreter. A stage's share of the samples times the
wall time of a call is what the stage costs a call. `--svg` writes the flame graph of the same load instead.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import generator, rows, world
from bench.cases import Case
from bench.generator import MissingToolError
from bench.measure import Desk, Reference, Shape
from bench.stage import Stage, staged
from tests.support.servers import RedisServer

SECONDS = 8
HERTZ = 500
BAR = 100  # µs of one step of a bar

# A sample belongs to the first stage, from the innermost frame outwards, that has its function.
STAGES: dict[str, tuple[str, ...]] = {
    "token": ("TokenVerifier.verify",),
    "gate, metrics": ("Gate._admit", "Metrics.call_recorder.<locals>.record"),
    "request: parse, bounds": ("select_request", "authorize_request", "_decoded"),
    "Redis: write, read": ("Wire._send", "Wire.data_received"),
    "Redis: call, state": ("RedisSessionStore.open", "RedisSessionStore.save"),
    "freshness, route": ("Door.enter",),
    "permissions": ("Eligibility.view", "EligibilityView.permits"),
    "ranking": ("CatalogIndex.rank", "rank_without_index", "rank_turn"),
    "plan, state": ("TurnRun.settle", "TurnRun.__init__"),
    "answer": ("answer_of", "SelectTools._report"),
    "answer: encode": ("ResponseWriter.write",),
    "use case, rest": ("SelectTools.__call__", "SelectionServicer.SelectTools", "Gate._answering.<locals>.serve"),
}
REST = "gRPC, event loop"
_OF_FUNCTION = {function: stage for stage, functions in STAGES.items() for function in functions}


def profiler() -> str:
    """The program. Raises MissingToolError."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        raise MissingToolError("py-spy is missing: pip install py-spy")
    return program


def by_stage(stacks: Iterable[str]) -> Counter[str]:
    """Samples by stage, of py-spy's raw lines: `frame;frame;frame count`, a frame being `function (file:line)`."""
    found: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        functions = (frame.partition(" (")[0] for frame in reversed(stack.split(";")))
        found[next((_OF_FUNCTION[f] for f in functions if f in _OF_FUNCTION), REST)] += int(count)
    return found


def _load(desk: Desk, case: Case, parts: Sequence[Path], seconds: float) -> generator.Load:
    return generator.run(desk.port(case), case.method, parts[0], seconds=seconds, wrap=case.wraps)


def profile(stage: Stage, case: Case, svg: Path | None) -> str:
    """One case's picture, or the note of where its flame graph is."""
    desk = Desk(stage, Reference(0, stage.folder), Shape(repeats=1))
    desk.prepare(case)
    desk.check(case)
    parts = desk.parts(case)
    out = svg or stage.folder / "samples"
    shape = "flamegraph" if svg else "raw"
    seconds = SECONDS if case.wraps else 4
    command = [profiler(), "record", "--gil", "-r", str(HERTZ), "-d", str(seconds), "-f", shape, "-o", str(out)]
    pid = str(stage.processes()[0].pid)
    with subprocess.Popen([*command, "-p", pid], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as spy:
        load = _load(desk, case, parts, seconds)
        spy.wait(60)
    if svg is not None:
        return f"{case.name}: {svg}"
    return "\n".join(_picture(case.name, by_stage(out.read_text().splitlines()), 1e6 / load.rate))


def _picture(name: str, samples: Counter[str], wall_us: float) -> Iterator[str]:
    total = sum(samples.values())
    yield f"{name}: {wall_us:.0f} µs a call while sampled ({total} samples)"
    for stage in (*STAGES, REST):
        if samples[stage]:
            cost = samples[stage] / total * wall_us
            yield f"  {stage:24}{cost:6.0f}  {'█' * round(cost / BAR * 10)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="unchanged turn, caller, 1,241", help="rows whose name holds this")
    parser.add_argument("--svg", type=Path, help="write the first such row's flame graph here")
    arguments = parser.parse_args()
    tools = world.catalog(1_241)
    try:
        generator.require()
        profiler()
    except MissingToolError as missing:
        print(f"where: {missing}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="toolbelay-where-") as folder, ExitStack() as stack:
        redis = RedisServer("valkey")
        stack.callback(redis.close)
        redis.start()
        stage = stack.enter_context(staged(redis, Path(folder) / "small", tools, rows.tenants(tools)))
        stage.await_index()
        cases = [case for case in rows.at_1241(stage.ids) if arguments.only in case.name]
        for case in cases[:1] if arguments.svg else cases:
            print(profile(stage, case, arguments.svg), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
