"""The Makefile's own promises; what its targets run is tested where it lives."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Makefile").read_text()


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Not as a sub-make of `make test`: its variables and its chatter stay out.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_make_alone_lists_what_a_person_may_call() -> None:
    listed = set(re.findall(r"make ([a-z0-9-]+)", make().stdout))
    declared = set(re.findall(r"^\.PHONY: (.*)$", TEXT, re.MULTILINE)[0].split())
    parts_of_check = {"lint", "types", "modules"}
    assert listed == declared - parts_of_check


def test_a_long_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "fits.py").write_text("x = 1\n" * 400)
    (tmp_path / "made_pb2.py").write_text("x = 1\n" * 999)
    assert make("modules", f"SOURCE_DIRS={tmp_path}").returncode == 0
    (tmp_path / "long.py").write_text("x = 1\n" * 401)
    done = make("modules", f"SOURCE_DIRS={tmp_path}")
    assert done.returncode != 0
    assert done.stdout.strip() == f"{tmp_path / 'long.py'}: more than 400 lines; split it"


def test_an_interpreter_that_is_too_old_is_told(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for name in ("python3.11", "python3.12", "python3.13", "python3.14", "python"):
        (tmp_path / name).symlink_to(old)
    done = make("venv", f"VENV={tmp_path / 'venv'}", f"PATH={tmp_path}:/usr/bin:/bin")
    assert done.returncode != 0
    assert "No Python of version 3.11 or newer" in done.stderr


def test_ci_checks_and_then_ends_with_the_tests() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "set -euo pipefail" in lines
    assert "make check" in lines
    assert lines[-1] == "make test"
