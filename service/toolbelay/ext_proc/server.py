"""The external processor's gRPC listener."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import structlog
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from toolbelay.api.server import ListenError, ListenOptions
from toolbelay.ext_proc.exchange import Exchange
from toolbelay.ext_proc.faults import OutageError
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.ext_proc.processor import Processor

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
MAX_MESSAGE_BYTES = 72 * 1024 * 1024  # bodies over `max_body_bytes` must arrive, to be passed or refused
_log = structlog.get_logger(__name__)


class ExternalProcessor(external_processor_pb2_grpc.ExternalProcessorServicer):  # type: ignore[misc]  # untyped
    """One stream is one HTTP request; its messages are answered in order."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def Process(  # noqa: N802 - the RPC's name
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Answer each message; an outage ends the stream with a gRPC error."""
        exchange = Exchange(self._processor)
        async for message in request_iterator:
            try:
                answered = await exchange.answer(message)
            except OutageError as outage:
                await context.abort(outage.code, outage.message)
            except Exception as error:  # noqa: BLE001 - whatever it is, the stream ends with one status
                incident = uuid.uuid4().hex
                # The error's text could hold a part of the body: only its kind is logged.
                _log.error("ext_proc_failed", incident=incident, error=type(error).__name__)
                await context.abort(grpc.StatusCode.INTERNAL, f"incident {incident}")
            for reply in answered:
                yield reply


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
        external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(ExternalProcessor(processor), self._server)
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
        """Say NOT_SERVING, let running streams finish for `grace` seconds, then cancel them."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)

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
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
