"""A few seconds of what `make soak` plays for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.chaos import Chaos
from tests.support.fault_world import fault_world


@pytest.mark.faults
def test_random_faults_under_load(tmp_path: Path) -> None:
    with fault_world(tmp_path, replicas=2) as world:
        run = Chaos(world, seed=7)
        run.play(8.0, pause=0.5)
        assert run.faults.total() >= 3
