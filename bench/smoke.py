"""The bench in under a minute, for CI: prints the ratios, fails only where one collapsed to under half of its *must*.

`python -m bench.smoke`, or `make bench-smoke`. It needs a C compiler; without one it says so and passes.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import generator, rows, table, world
from bench.bench import limits
from bench.generator import MissingToolError
from bench.measure import Desk, Row, Shape
from bench.stage import staged
from tests.support.servers import RedisServer

COLLAPSED = 0.5  # of the must
SHAPE = Shape(seconds=0.8, repeats=3)


def measured(folder: Path, redis: RedisServer) -> list[Row]:
    """The rows that have a *must* and do not take long."""
    tools = world.catalog(1_241)
    with ExitStack() as stack:
        stage = stack.enter_context(staged(redis, folder / "smoke", tools, rows.tenants(tools)))
        limit = stack.enter_context(limits(redis, stage, folder))
        stage.await_index()
        desk = Desk(stage, limit.reference, SHAPE)
        found = []
        for case in rows.at_1241(stage.ids):
            if case.must is not None:
                found.append(desk.measure(case))
                print(table.short(found[-1]), flush=True)
        return found


def main() -> int:
    try:
        generator.build()
    except MissingToolError as missing:
        print(f"bench-smoke: not measured: {missing}", file=sys.stderr)
        return 0
    redis = RedisServer("valkey")
    try:
        redis.start()
        with tempfile.TemporaryDirectory(prefix="toolbelay-smoke-") as folder:
            found = measured(Path(folder), redis)
    finally:
        redis.close()
    fallen = [row for row in found if row.must is not None and row.ratio < COLLAPSED * row.must]
    for row in fallen:
        print(f"collapsed: {row.name}: {row.ratio:.2f}, less than half of {row.must:.2f}", file=sys.stderr)
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
