"""Ends the servers and removes the directories of a test run that could not do so itself.

The test process starts this script with a pipe as its standard input and writes one line per resource:
`pid PID CREATED` or `dir PATH`. However the test process ends (SIGKILL included), the pipe closes, and what is left is
cleaned up. Process ids are compared with their creation time, so a reused id is never touched.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import psutil


class Reaper:
    """The test process's end of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C at the terminal is for the tests
        )

    def watch_process(self, pid: int) -> None:
        self._write(f"pid {pid} {psutil.Process(pid).create_time()}")

    def watch_directory(self, path: Path) -> None:
        self._write(f"dir {path}")

    def close(self) -> None:
        """Clean up what is left and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def kill_tree(process: psutil.Process) -> None:
    """SIGKILL the process and all below it, stopped ones too."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [process, *process.children(recursive=True)]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()


def _reap(lines: list[str]) -> None:
    directories = []
    for line in lines:
        kind, _, rest = line.rstrip("\n").partition(" ")
        if kind == "dir":
            directories.append(rest)
            continue
        pid, created = rest.split()
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(pid))
            if process.create_time() == float(created):
                kill_tree(process)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _reap(list(sys.stdin))
