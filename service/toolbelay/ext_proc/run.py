"""Run the external processor alone: the application, and no listener but Envoy's."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Final

import structlog
import uvloop
from prometheus_client import start_http_server

from toolbelay.api.server import ListenError
from toolbelay.application.runtime import build
from toolbelay.ext_proc.attach import serving_ext_proc
from toolbelay.settings import InvalidSettingsError, Settings
from toolbelay.settings_check import parse_address, require_serving
from toolbelay.telemetry import logs
from toolbelay.telemetry.metrics import Metrics

_TICK: Final = 0.2  # seconds between looks at readiness and caches
_log = structlog.get_logger(__name__)


def run(settings: Settings) -> None:
    """Serve Envoy until SIGTERM or SIGINT. Raises InvalidSettingsError and ListenError."""
    if not settings.ext_proc_listen:
        raise InvalidSettingsError(["TOOLBELAY_EXT_PROC_LISTEN: set it, or give --listen"])
    require_serving(settings)
    logs.configure(level=settings.log_level, format=settings.log_format)
    uvloop.run(_run(settings))


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = Metrics()
    if settings.metrics_listen:
        _open_metrics(settings, metrics)
    application = await build(settings, metrics)
    try:
        async with serving_ext_proc(settings, application, metrics):
            _log.info("serving_envoy_only", pid=os.getpid())
            while not stop.is_set():
                metrics.ready(ready=application.ready())
                metrics.sample()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _TICK)
    finally:
        await application.close()


def _open_metrics(settings: Settings, metrics: Metrics) -> None:
    address = parse_address(settings.metrics_listen)
    try:
        start_http_server(address.port, address.host, registry=metrics.registry)
    except OSError as error:
        raise ListenError(
            f"cannot serve metrics on {settings.metrics_listen}: {error.strerror}; set TOOLBELAY_METRICS_LISTEN"
        ) from None
