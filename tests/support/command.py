"""The `toolbelay` command as a real process, away from anybody's settings."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from tests.support.waiting import wait_until
from toolbelay.cli.main import run

COMMAND = [sys.executable, "-m", "toolbelay.cli.main"]


def clean_environment(more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The environment without settings, plus `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOOLBELAY_")}
    return kept | {"NO_COLOR": "1", "COLUMNS": "160"} | dict(more)


def toolbelay(
    *arguments: str, cwd: Path, environment: Mapping[str, str] = MappingProxyType({}), timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as a process of its own."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
    )


def in_process(
    *arguments: str, cwd: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """As `toolbelay`, without the cost of a process."""
    out, err = io.StringIO(), io.StringIO()
    kept = Path.cwd()
    surroundings = patch.dict(os.environ, clean_environment(environment), clear=True)
    with surroundings, redirect_stdout(out), redirect_stderr(err):
        os.chdir(cwd)
        try:
            code = run(arguments)
        finally:
            os.chdir(kept)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def printed_json(*arguments: str, cwd: Path) -> Any:
    """Run a command that must succeed, in this process; its JSON."""
    done = in_process(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Serving:
    """A running `toolbelay serve`."""

    def __init__(self, process: subprocess.Popen[bytes], cwd: Path, log: Path) -> None:
        self.process = process
        self.cwd = cwd
        self._log = log

    @property
    def said(self) -> str:
        """All that it printed."""
        return self._log.read_text()

    def terminate(self, timeout: float = 30) -> int:
        """SIGTERM and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


@contextmanager
def serving(
    *arguments: str, cwd: Path, environment: Mapping[str, str] = MappingProxyType({}), ready: bool = True
) -> Iterator[Serving]:
    """`toolbelay serve …`, ended whatever happens. `ready`: wait until it logs that it is."""
    log = cwd / f"serve-{len(list(cwd.glob('serve-*.log')))}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, "serve", *arguments],
            cwd=cwd,
            env=clean_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    found = Serving(process, cwd, log)
    try:
        if ready:
            wait_until(lambda: process.poll() is not None or " ready" in found.said or '"ready"' in found.said, 60)
            assert process.poll() is None, found.said
        yield found
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
