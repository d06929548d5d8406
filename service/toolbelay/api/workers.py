"""The supervisor of `serve --workers N`: holds the port, keeps N workers running, one metrics endpoint.

Workers are fresh processes, never forks: gRPC's threads do not survive a fork. Each binds the port with
SO_REUSEPORT beside the supervisor's own bound, never listening socket, so that no other program can take
the port between two workers' lives.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog

from toolbelay.api.server import ListenError
from toolbelay.api.worker import INVALID
from toolbelay.settings import Settings, environment_of
from toolbelay.settings_check import Address, parse_address, require_serving
from toolbelay.telemetry import logs

CRASHES_ALLOWED: Final = 5  # in CRASH_WINDOW, all workers together
CRASH_WINDOW: Final = 60.0  # seconds
_TICK: Final = 0.1
_EXTRA_GRACE: Final = 5.0  # seconds beyond the workers' own grace before they are killed

_log = structlog.get_logger(__name__)


class CrashLoopError(Exception):
    """Workers keep dying. The message says how often and what to do."""


@dataclass(slots=True)
class _Worker:
    index: int
    process: subprocess.Popen[bytes]


class Supervisor:
    """Keeps `settings.workers` workers running until told to stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers: list[_Worker] = []
        self._crashes: deque[float] = deque(maxlen=CRASHES_ALLOWED + 1)
        self._stopping = False
        self._metrics_dir = tempfile.mkdtemp(prefix="toolbelay-metrics-")

    def run(self) -> None:
        """Run until SIGTERM or SIGINT. Raises ListenError, CrashLoopError, InvalidSettingsError."""
        require_serving(self._settings)
        logs.configure(level=self._settings.log_level, format=self._settings.log_format)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        close_metrics = _nothing
        try:
            with ExitStack() as held:
                environment = self._environment(held)
                close_metrics = self._open_metrics()
                try:
                    self._keep_running(environment)
                finally:
                    self._end_workers()
        finally:
            close_metrics()
            shutil.rmtree(self._metrics_dir, ignore_errors=True)

    def _keep_running(self, environment: dict[str, str]) -> None:
        for index in range(self._settings.workers):
            self._workers.append(_Worker(index, self._spawn(environment)))
        _log.info("supervising", workers=len(self._workers), address=self._settings.listen)
        while not self._stopping:
            for worker in self._workers:
                code = worker.process.poll()
                if code is not None and not self._stopping:
                    self._note_death(worker, code)
                    worker.process = self._spawn(environment)
            time.sleep(_TICK)

    def _note_death(self, worker: _Worker, code: int) -> None:
        self._forget_metrics(worker.process.pid)
        now = time.monotonic()
        self._crashes.append(now)
        recent = sum(1 for moment in self._crashes if now - moment < CRASH_WINDOW)
        _log.error("worker_died", worker=worker.index, pid=worker.process.pid, code=code, recent=recent)
        if code == INVALID:
            raise CrashLoopError("a worker refused its settings; see the lines above")
        if recent > CRASHES_ALLOWED:
            raise CrashLoopError(
                f"workers died {recent} times within {CRASH_WINDOW:.0f} s (last exit code {code});"
                " giving up: see the workers' lines above, or run one with --workers 1"
            )
        time.sleep(min(2.0, 0.05 * 2**recent))

    def _spawn(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # Standard input is a pipe that ends with this process, however it ends.
        return subprocess.Popen([sys.executable, "-m", "toolbelay.api.worker"], env=environment, stdin=subprocess.PIPE)

    def _environment(self, held: ExitStack) -> dict[str, str]:
        """The workers' variables; the ports in them are ours while `held` is open."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOOLBELAY_")}
        mine = environment_of(self._settings) | {
            "TOOLBELAY_WORKERS": "1",
            "PROMETHEUS_MULTIPROC_DIR": self._metrics_dir,
        }
        for name, text in (("LISTEN", self._settings.listen), ("EXT_PROC_LISTEN", self._settings.ext_proc_listen)):
            if text:
                address = parse_address(text)
                port = held.enter_context(hold_port(address, name)).getsockname()[1]
                mine[f"TOOLBELAY_{name}"] = Address(address.host, port).target
        return inherited | mine

    def _end_workers(self) -> None:
        """SIGTERM to all, wait for their grace, then SIGKILL. No worker outlives this."""
        for worker in self._workers:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGTERM)
        limit = time.monotonic() + self._settings.grace_seconds + _EXTRA_GRACE
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                _log.error("worker_killed", worker=worker.index, pid=worker.process.pid)
                worker.process.kill()
                worker.process.wait()
            if worker.process.stdin is not None:
                worker.process.stdin.close()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _open_metrics(self) -> Callable[[], None]:
        if not self._settings.metrics_listen:
            return _nothing
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.multiprocess import MultiProcessCollector

        address = parse_address(self._settings.metrics_listen)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=self._metrics_dir)  # type: ignore[no-untyped-call]
        try:
            server, _thread = start_http_server(address.port, address.host, registry=registry)
        except OSError as error:
            raise ListenError(
                f"cannot serve metrics on {self._settings.metrics_listen}: {error.strerror};"
                " set TOOLBELAY_METRICS_LISTEN"
            ) from None
        return server.shutdown

    def _forget_metrics(self, pid: int) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid, self._metrics_dir)  # type: ignore[no-untyped-call]


def hold_port(address: Address, setting: str = "LISTEN") -> socket.socket:
    """A bound, never listening socket that keeps the port for workers. Raises ListenError when it is used."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:  # refuses any other listener, also one that would share
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
            probe.listen(1)
            port = probe.getsockname()[1]
        return _shared_socket(family, address.host, port)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {address.target}: {error.strerror}; stop the other program or set TOOLBELAY_{setting}"
        ) from None


def _shared_socket(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    held = socket.socket(family)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
    except OSError:
        held.close()
        raise
    return held


def _nothing() -> None:
    """Nothing to close."""
