"""Run one worker: bind, build the application, answer, and stop in order on a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from typing import Any, Final, Protocol

import structlog
import uvloop
from prometheus_client import start_http_server

from toolbelay.api import process
from toolbelay.api.interceptor import Gate, Verifier
from toolbelay.api.server import ListenError, Server, listen_options
from toolbelay.settings import Settings
from toolbelay.settings_check import parse_address, require_serving
from toolbelay.telemetry import logs
from toolbelay.telemetry.metrics import Metrics

_TICK: Final = 0.2  # seconds between looks at readiness

_log = structlog.get_logger(__name__)


class Application(Protocol):
    """What a worker serves."""

    @property
    def verifier(self) -> Verifier:
        """Checks tokens."""

    @property
    def servicers(self) -> Mapping[str, object]:
        """Servicer by full service name; see Gate.handlers."""

    def ready(self) -> bool:
        """Whether schema, catalog and policy are loaded and in force."""

    def settled(self) -> bool:
        """Whether all that is made behind the start is there, too."""

    async def close(self) -> None:
        """Release connections and tasks."""


Build = Callable[[Settings, Metrics], Awaitable[Application]]


def run(settings: Settings, *, build: Build | None = None, worker: bool = False) -> None:
    """Serve until SIGTERM or SIGINT.

    `worker`: one of several under a supervisor: shares the port, leaves metrics to the supervisor, and
    stops when standard input ends. Raises InvalidSettingsError and ListenError.
    """
    require_serving(settings)
    logs.configure(level=settings.log_level, format=settings.log_format)
    process.share_interpreter()
    uvloop.run(_serve(settings, build or _build, worker=worker))


async def _serve(settings: Settings, build: Build, *, worker: bool) -> None:
    stop = _stop_signal()
    server = Server(listen_options(settings, shared=worker))
    port = server.bind()
    metrics = Metrics()
    close_metrics = _open_metrics(settings, metrics) if settings.metrics_listen and not worker else _nothing
    if worker:
        _stop_at_end_of_input(stop)
    try:
        application = await build(settings, metrics)
        process.spare_what_stays(collect=True)
        try:
            gate = Gate(application.verifier, metrics, max_concurrent=settings.max_concurrent)
            await server.start(gate, application.servicers)
            _log.info("listening", address=settings.listen, port=port, pid=os.getpid())
            async with AsyncExitStack() as beside:
                await beside.enter_async_context(_ext_proc(settings, application, metrics, shared=worker))
                await _until(stop, application, server, gate, metrics)
                _log.info("stopping", grace_seconds=settings.grace_seconds, in_flight=gate.in_flight)
                await asyncio.gather(server.stop(settings.grace_seconds), beside.aclose())  # one grace time for both
        finally:
            await application.close()
    finally:
        close_metrics()
    _log.info("stopped")


async def _until(stop: asyncio.Event, application: Application, server: Server, gate: Gate, metrics: Metrics) -> None:
    """Show readiness as it changes, until `stop`."""
    shown = settled = False
    while not stop.is_set():
        if not settled and application.settled():
            process.spare_what_stays(collect=False)
            settled = True
        ready = application.ready()
        if ready != shown:
            await server.set_ready(ready=ready)
            _log.info("ready" if ready else "not_ready")
            shown = ready
        metrics.ready(ready=ready)
        metrics.in_flight(gate.in_flight)
        metrics.sample()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _TICK)


def _stop_signal() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; a second one ends the process at once."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    """A supervisor that died, however, closes our standard input."""
    descriptor = sys.stdin.fileno()

    def on_readable() -> None:
        if not os.read(descriptor, 4096):
            asyncio.get_running_loop().remove_reader(descriptor)
            stop.set()

    asyncio.get_running_loop().add_reader(descriptor, on_readable)


def _open_metrics(settings: Settings, metrics: Metrics) -> Callable[[], None]:
    address = parse_address(settings.metrics_listen)
    try:
        server, _thread = start_http_server(address.port, address.host, registry=metrics.registry)
    except OSError as error:
        raise ListenError(
            f"cannot serve metrics on {settings.metrics_listen}: {error.strerror}; set TOOLBELAY_METRICS_LISTEN"
        ) from None

    def close() -> None:
        server.shutdown()
        server.server_close()

    return close


def _nothing() -> None:
    """Nothing to close."""


def _ext_proc(
    settings: Settings, application: Any, metrics: Metrics, *, shared: bool
) -> AbstractAsyncContextManager[object]:
    """Envoy's external processor beside the API, where it is asked for."""
    if not settings.ext_proc_listen:
        return nullcontext()
    from toolbelay.ext_proc.attach import serving_ext_proc

    return serving_ext_proc(settings, application, metrics, shared=shared)


async def _build(settings: Settings, metrics: Metrics) -> Application:
    from toolbelay.application.runtime import build

    return await build(settings, metrics)
