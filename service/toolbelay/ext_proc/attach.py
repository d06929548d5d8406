"""Attaches the external processor to a running application: `serve --ext-proc` and `toolbelay ext-proc`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final, Protocol

import structlog

from toolbelay.api.server import ListenOptions, listen_options
from toolbelay.application.runtime import token_config
from toolbelay.ext_proc.identity import Identity, Verifier
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.ext_proc.processor import Authorize, Processor, Select
from toolbelay.ext_proc.server import ExtProcServer
from toolbelay.settings import Settings
from toolbelay.settings_check import parse_address
from toolbelay.telemetry.metrics import Metrics

_TICK: Final = 0.2  # seconds between looks at readiness
_log = structlog.get_logger(__name__)


class Application(Protocol):
    """The use cases that the processor calls in this process."""

    @property
    def verifier(self) -> Verifier:
        """Checks tokens."""

    @property
    def select(self) -> Select:
        """SelectTools."""

    @property
    def authorize(self) -> Authorize:
        """AuthorizeToolCalls."""

    def ready(self) -> bool:
        """Whether catalog, policy and keys are loaded."""


def options_from(settings: Settings) -> ExtProcOptions:
    """The processor's options as the settings want them."""
    return ExtProcOptions(
        token_header=settings.ext_proc_token_header.lower(),
        use_authorization=settings.ext_proc_use_authorization,
        trust_jwt_metadata=settings.ext_proc_trust_jwt_metadata,
        jwt_namespace=settings.ext_proc_jwt_namespace,
        metadata_namespace=settings.ext_proc_metadata_namespace,
        session_header=settings.ext_proc_session_header.lower(),
        turn_header=settings.ext_proc_turn_header.lower(),
        route_header=settings.ext_proc_route_header.lower(),
        deadline=settings.ext_proc_deadline_ms / 1000,
        max_concurrent=settings.max_concurrent,
        max_body_bytes=settings.ext_proc_max_body_bytes,
        on_large_body=settings.ext_proc_on_large_body,
        on_unknown_encoding=settings.ext_proc_on_unknown_encoding,
        allow_streamed=settings.ext_proc_allow_streamed,
        receipt_header=settings.ext_proc_receipt_header,
        authorize_calls=settings.ext_proc_authorize_calls,
        cache_breakpoint=settings.ext_proc_cache_breakpoint,
    )


def ext_proc_listen_options(settings: Settings, *, shared: bool) -> ListenOptions:
    """The processor's listener: its own address, the main listener's TLS."""
    return replace(listen_options(settings, shared=shared), address=parse_address(settings.ext_proc_listen))


@asynccontextmanager
async def serving_ext_proc(
    settings: Settings, application: Application, metrics: Metrics, *, shared: bool = False
) -> AsyncIterator[ExtProcServer | None]:
    """Serve Envoy for as long as the block runs; `None` where EXT_PROC_LISTEN is empty. Raises ListenError."""
    if not settings.ext_proc_listen:
        yield None
        return
    options = options_from(settings)
    identity = Identity(options, application.verifier, token_config(settings))
    processor = Processor(options, identity, application.select, application.authorize, metrics)
    server = ExtProcServer(ext_proc_listen_options(settings, shared=shared), processor)
    port = server.bind()
    await server.start()
    _log.info("ext_proc_listening", address=settings.ext_proc_listen, port=port)
    mirror = asyncio.create_task(_mirror(server, application))
    try:
        yield server
    finally:
        mirror.cancel()
        with suppress(asyncio.CancelledError):
            await mirror
        await server.stop(settings.grace_seconds)


async def _mirror(server: ExtProcServer, application: Application) -> None:
    """Show the application's readiness to Envoy as it changes."""
    shown = False
    while True:
        if application.ready() != shown:
            shown = not shown
            await server.set_ready(ready=shown)
        await asyncio.sleep(_TICK)
