"""`python -m tests.soak [--minutes N]`: histories, random faults and fuzzing, each for a third of the time."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.chaos import Chaos
from tests.support.fault_world import fault_world
from tests.support.servers import reaper

EXAMPLES_A_SECOND = 25  # of each method, on two cores
GROWTH = 1.5  # the most that memory may grow from the first quarter of a run to its last


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    share = given.minutes * 60 / 3
    codes = [
        _pytest("tests/faults/test_freshness_history.py", SOAK_HISTORY_SECONDS=str(share)),
        _chaos(share, given.seed),
        _pytest("tests/faults/test_fuzz_rpcs.py", SOAK_FUZZ_EXAMPLES=str(int(share * EXAMPLES_A_SECOND / 8) + 50)),
    ]
    reaper().close()
    return max(codes)


def _pytest(path: str, **environment: str) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=0", path]
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


def _chaos(seconds: float, seed: int) -> int:
    sys.stdout.write(f"chaos for {seconds:.0f} s, --seed {seed}\n")
    with tempfile.TemporaryDirectory() as folder, fault_world(Path(folder), replicas=2) as world:
        run = Chaos(world, seed)
        try:
            run.play(seconds)
        except AssertionError as failure:
            sys.stdout.write(f"FAILED: {failure}\n")
            return 1
    quarter = max(1, len(run.memory) // 4)
    before, after = max(run.memory[:quarter]), max(run.memory[-quarter:])
    sys.stdout.write(f"endings {dict(run.endings)}\noutcomes {dict(run.outcomes)}\nfaults {dict(run.faults)}\n")
    sys.stdout.write(f"memory of both replicas: {before >> 20} MiB, then {after >> 20} MiB\n")
    return int(after > before * GROWTH)


if __name__ == "__main__":
    sys.exit(main())
