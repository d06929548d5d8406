"""The external processor's gRPC listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from toolbelay.api.server import ListenError, ListenOptions
from toolbelay.ext_proc.exchange import Exchange
from toolbelay.ext_proc.faults import OutageError
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.ext_proc.processor import Processor

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
MAX_MESSAGE_BYTES = 72 * 1024 * 1024  # bodies over `max_body_bytes` must arrive, to be passed or refused
_LAST_BYTES = 0.05  # seconds: the last replies leave after their handlers returned


class ExternalProcessor(external_processor_pb2_grpc.ExternalProcessorServicer):  # type: ignore[misc]  # untyped
    """One stream is one HTTP request; its messages are answered in order."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._draining = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._streams = 0

    def drain(self) -> None:
        """End streams that only wait for the model's answer, which may take minutes."""
        self._draining.set()

    async def wait_idle(self) -> None:
        """Return once no stream runs."""
        await self._idle.wait()

    async def Process(  # noqa: N802 - the RPC's name
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Answer each message; an outage ends the stream with a gRPC error."""
        self._streams += 1
        self._idle.clear()
        try:
            async for reply in self._replies(request_iterator, context):
                yield reply
        finally:
            self._streams -= 1
            if not self._streams:
                self._idle.set()

    async def _replies(
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        exchange = Exchange(self._processor)
        messages = aiter(request_iterator)
        while (message := await self._next(messages, exchange)) is not None:
            try:
                answered = await exchange.answer(message)
            except OutageError as outage:
                await context.abort(outage.code, outage.message)
            for reply in answered:
                yield reply

    async def _next(self, messages: AsyncIterator[Any], exchange: Exchange) -> Any:
        """The next message; `None` at the stream's end."""
        if not exchange.may_end:
            return await anext(messages, None)
        coming = asyncio.ensure_future(_next_or_none(messages))
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((coming, draining), return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()
            draining.cancel()


async def _next_or_none(messages: AsyncIterator[Any]) -> Any:
    return await anext(messages, None)


def require_trusted_listener(options: ExtProcOptions, listen: ListenOptions) -> None:
    """Raise ListenError when claims without a signature could come from anybody who reaches the listener."""
    host, private = listen.address.host, listen.address.path
    trusted = bool(private) or host in ("127.0.0.1", "::1", "localhost") or bool(listen.tls_client_ca)
    if options.trust_jwt_metadata and not trusted:
        raise ListenError(
            "TOOLBELAY_EXT_PROC_TRUST_JWT_METADATA needs an ext_proc listener on loopback or a UNIX socket,"
            " or TOOLBELAY_TLS_CLIENT_CA"
        )


class ExtProcServer:
    """Opened by `bind`, answers from `start` on, ends with `stop`."""

    def __init__(self, listen: ListenOptions, processor: Processor) -> None:
        require_trusted_listener(processor.options, listen)
        self._listen = listen
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs lack it
        self._server = grpc.aio.server(options=_channel_options(listen))
        self._servicer = ExternalProcessor(processor)
        external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(self._servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.port = 0

    def bind(self) -> int:
        """Take the port; returns its number. Raises ListenError when it is in use."""
        target = self._listen.address.target
        try:
            self.port = self._add_port(target)
        except (RuntimeError, OSError, ValueError):
            self.port = 0
        if not self.port:
            raise ListenError(
                f"cannot listen on {target} for ext_proc: the address is in use, or the TLS files are wrong"
            )
        return self.port

    async def start(self) -> None:
        """Answer streams; not ready until `set_ready`."""
        await self.set_ready(ready=False)
        await self._server.start()

    async def set_ready(self, *, ready: bool) -> None:
        """Show readiness to Envoy's health checks."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", SERVICE):
            await self._health.set(name, status)

    async def stop(self, grace: float) -> None:
        """Say NOT_SERVING, let running streams finish for `grace` seconds, then cancel them.

        Streams whose request is done end at once, unless the model's answer is to be checked.
        """
        await self._health.enter_graceful_shutdown()
        self._servicer.drain()
        stopping = asyncio.ensure_future(self._server.stop(grace))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._servicer.wait_idle(), grace)
        await asyncio.sleep(_LAST_BYTES)
        await self._server.stop(0)  # open connections without a stream would hold the stop up for all of `grace`
        await stopping

    def _add_port(self, target: str) -> int:
        listen = self._listen
        if not listen.tls_cert:
            return self._server.add_insecure_port(target)
        key, certificate = Path(listen.tls_key).read_bytes(), Path(listen.tls_cert).read_bytes()
        authority = Path(listen.tls_client_ca).read_bytes() if listen.tls_client_ca else None
        credentials = grpc.ssl_server_credentials(
            [(key, certificate)], root_certificates=authority, require_client_auth=authority is not None
        )
        return self._server.add_secure_port(target, credentials)


def _channel_options(listen: ListenOptions) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.so_reuseport", 1 if listen.shared else 0),
        ("grpc.http2.min_ping_interval_without_data_ms", listen.min_ping_interval_ms),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
