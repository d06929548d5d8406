"""The gRPC server: listener, limits, TLS, health, reflection, and a stop that loses no call."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from toolbelay.api.health import HealthService
from toolbelay.api.interceptor import MAX_ANSWER_BYTES, Gate
from toolbelay.api.methods import ADMIN_SERVICE, SELECTION_SERVICE
from toolbelay.settings import Settings
from toolbelay.settings_check import Address, parse_address

MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
MAX_METADATA_BYTES: Final = 64 * 1024
LIVENESS: Final = "toolbelay.live"  # a health service name: SERVING while the process runs
_READINESS: Final = ("", SELECTION_SERVICE, ADMIN_SERVICE)
_REFUSE_AFTER: Final = 0.5  # seconds between NOT_SERVING and the end of the listener, for watching balancers
_PARK_FOR: Final = 0.1  # seconds for which new calls are held before gRPC shuts down


class ListenError(Exception):
    """The listener cannot be opened. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """How one listener is opened. `shared`: other workers of this service bind the same port.

    `min_ping_interval_ms`: keep-alive pings at least so far apart are welcome, also without calls (gateways
    ping every 10 to 30 s); a flood is answered GOAWAY.
    """

    address: Address
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    reflection: bool = False
    shared: bool = False
    max_connection_age_seconds: int = 0
    grace_seconds: float = 10.0
    min_ping_interval_ms: int = 5_000


def listen_options(settings: Settings, *, shared: bool = False) -> ListenOptions:
    """The main listener as the settings want it."""
    return ListenOptions(
        address=parse_address(settings.listen),
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        tls_client_ca=settings.tls_client_ca,
        reflection=settings.reflection,
        shared=shared,
        max_connection_age_seconds=settings.max_connection_age_seconds,
        grace_seconds=settings.grace_seconds,
    )


class Server:
    """Opened by `bind`, answers from `start` on, ends with `stop`."""

    def __init__(self, options: ListenOptions) -> None:
        self._options = options
        self._server = grpc.aio.server(options=channel_options(options))
        self._health = HealthService()
        self._gate: Gate | None = None
        self.port = 0

    def bind(self) -> int:
        """Take the port; returns its number. Raises ListenError when it is in use or TLS files are wrong."""
        address = self._options.address
        if address.path:
            _refuse_used_socket(address.path)
        try:
            self.port = self._add_port(address.target)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise ListenError(
                f"cannot listen on {address.target}: the address is in use or not this machine's;"
                " stop the other program or set TOOLBELAY_LISTEN"
            )
        return self.port

    async def start(self, gate: Gate, servicers: Mapping[str, object]) -> None:
        """Answer calls; not ready until `set_ready`."""
        self._gate = gate
        self._server.add_generic_rpc_handlers(tuple(gate.handlers(servicers)))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        await self._set_health(serving=False)
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        if self._options.reflection:
            names = (SELECTION_SERVICE, ADMIN_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)
        await self._server.start()

    async def set_ready(self, *, ready: bool) -> None:
        """Show readiness to probes. The first time also opens the gate for good: later faults have reasons."""
        if ready and self._gate is not None:
            self._gate.ready = True
        await self._set_health(serving=ready)

    async def stop(self, grace: float) -> None:
        """Say NOT_SERVING, refuse new calls, let running ones finish for `grace` seconds, then cancel them."""
        await self._health.enter_graceful_shutdown()
        await asyncio.sleep(min(_REFUSE_AFTER, grace))
        self._health.end_watches()
        if self._gate is not None:
            self._gate.park()
            await asyncio.sleep(min(_PARK_FOR, grace))
        stopping = asyncio.ensure_future(self._server.stop(grace))
        await asyncio.sleep(0)  # the shutdown begins
        if self._gate is not None:
            self._gate.release()
        await stopping

    def _add_port(self, target: str) -> int:
        if not self._options.tls_cert:
            return self._server.add_insecure_port(target)
        try:
            credentials = _credentials(self._options)
        except (OSError, ValueError, RuntimeError) as error:
            raise ListenError(f"TLS files cannot be used: {error}; check TOOLBELAY_TLS_CERT and _KEY") from None
        return self._server.add_secure_port(target, credentials)

    async def _set_health(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in _READINESS:
            await self._health.set(name, status)


def channel_options(options: ListenOptions) -> list[tuple[str, Any]]:
    """Limits and keep-alive of the listener."""
    found: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
        ("grpc.max_send_message_length", MAX_ANSWER_BYTES),
        # Soft limit = hard limit: without this, metadata between the two is refused at random.
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.so_reuseport", 1 if options.shared else 0),
        ("grpc.http2.min_ping_interval_without_data_ms", options.min_ping_interval_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 120_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
    if options.max_connection_age_seconds:
        found += [
            ("grpc.max_connection_age_ms", options.max_connection_age_seconds * 1000),
            ("grpc.max_connection_age_grace_ms", max(1000, int(options.grace_seconds * 1000))),
        ]
    return found


def _credentials(options: ListenOptions) -> grpc.ServerCredentials:
    # gRPC would report unusable files as a port that cannot be had; OpenSSL says what is wrong.
    check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    check.load_cert_chain(options.tls_cert, options.tls_key)
    if options.tls_client_ca:
        check.load_verify_locations(options.tls_client_ca)
    key, certificate = Path(options.tls_key).read_bytes(), Path(options.tls_cert).read_bytes()
    authority = Path(options.tls_client_ca).read_bytes() if options.tls_client_ca else None
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority, require_client_auth=authority is not None
    )


def _refuse_used_socket(path: str) -> None:
    """Otherwise gRPC would silently take a UNIX socket over from a running server."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except OSError:
            return
    raise ListenError(f"cannot listen on unix:{path}: another program answers there; stop it first")
