"""The server shell: health, reflection, limits, TLS, ports, and a stop that loses no call."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.command import toolbelay
from tests.support.edge import USER, StubSelection, raw, running_edge
from tests.support.waiting import wait_until_async
from toolbelay.api.methods import ADMIN_SERVICE, SELECTION_SERVICE
from toolbelay.api.server import LIVENESS, ListenError, ListenOptions, Server
from toolbelay.api.workers import hold_port
from toolbelay.settings_check import Address
from toolbelay.v1 import selection_pb2

SELECT = f"/{SELECTION_SERVICE}/SelectTools"
LOOPBACK = Address("127.0.0.1", 0)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(channel: grpc.aio.Channel, service: str = "") -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def test_health_follows_readiness_and_needs_no_token() -> None:
    async with running_edge(ready=False) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        for service in ("", SELECTION_SERVICE, ADMIN_SERVICE):
            assert await health(channel, service) == NOT_SERVING
        assert await health(channel, LIVENESS) == SERVING
        await edge.server.set_ready(ready=True)
        for service in ("", SELECTION_SERVICE, ADMIN_SERVICE):
            assert await health(channel, service) == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health(channel, "nobody")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("enabled", [False, True])
async def test_reflection_is_a_setting(enabled: bool) -> None:
    options = ListenOptions(LOOPBACK, reflection=enabled)
    async with running_edge(options=options) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        if not enabled:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.ServerReflectionInfo(asked).read()
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            return
        answer = await stub.ServerReflectionInfo(asked).read()
    names = {service.name for service in answer.list_services_response.service}
    assert {SELECTION_SERVICE, ADMIN_SERVICE} <= names


async def test_a_used_port_is_an_error() -> None:
    async with running_edge() as edge:
        port = int(edge.target.rpartition(":")[2])
        for shared in (False, True):
            with pytest.raises(ListenError, match="in use"):
                Server(ListenOptions(Address("127.0.0.1", port), shared=shared)).bind()
        with pytest.raises(ListenError, match="TOOLBELAY_LISTEN"):
            hold_port(Address("127.0.0.1", port))


async def test_a_port_of_another_program_is_an_error() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ListenError):
            Server(ListenOptions(Address("127.0.0.1", other.getsockname()[1]))).bind()


async def test_workers_share_a_held_port_on_purpose() -> None:
    with hold_port(LOOPBACK) as held:
        address = Address("127.0.0.1", held.getsockname()[1])
        servers = [Server(ListenOptions(address, shared=True)) for _ in range(2)]
        assert [server.bind() for server in servers] == [address.port] * 2
        with pytest.raises(ListenError):
            Server(ListenOptions(address)).bind()
        for server in servers:
            await server.stop(0)


async def test_a_unix_socket_in_use_is_not_taken_over(tmp_path: Path) -> None:
    options = ListenOptions(Address("", 0, str(tmp_path / "s")))
    async with running_edge(options=options):
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
            assert await health(channel) == SERVING
        with pytest.raises(ListenError, match="another program"):
            Server(options).bind()


@pytest.mark.parametrize(("size", "accepted"), [(5_000_000, True), (8 * 1024 * 1024 + 1000, False)])
async def test_row_53_requests_up_to_8_mib(size: int, accepted: bool) -> None:
    request = selection_pb2.SelectToolsRequest(query="x" * size).SerializeToString()
    async with running_edge() as edge, grpc.aio.insecure_channel(edge.target) as channel:
        call = raw(channel).unary_unary(SELECT)
        if accepted:
            await call(request, metadata=USER)
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(request, metadata=USER)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await call(b"", metadata=USER)  # the connection is still good


async def test_row_53_answers_up_to_24_mib() -> None:
    stub = StubSelection(answer=bytes(23 * 1024 * 1024))
    options = [("grpc.max_receive_message_length", 24 * 1024 * 1024)]
    async with running_edge(stub) as edge, grpc.aio.insecure_channel(edge.target, options=options) as channel:
        assert len(await raw(channel).unary_unary(SELECT)(b"", metadata=USER)) == 23 * 1024 * 1024


@pytest.mark.parametrize(("size", "code"), [(40_000, "UNAUTHENTICATED"), (70_000, "RESOURCE_EXHAUSTED")])
async def test_metadata_up_to_64_kib(size: int, code: str) -> None:
    async with running_edge() as edge, grpc.aio.insecure_channel(edge.target) as channel:
        for _ in range(10):  # never at random
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw(channel).unary_unary(SELECT)(b"", metadata=(("authorization", "Bearer " + "x" * size),))
            assert caught.value.code().name == code


async def test_stop_says_not_serving_first_and_finishes_running_calls() -> None:
    stub = StubSelection(hold=asyncio.Event())
    assert stub.hold is not None
    async with running_edge(stub) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        running = asyncio.ensure_future(raw(channel).unary_unary(SELECT)(b"", metadata=USER))
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        await asyncio.wait_for(stub.entered.wait(), 10)
        stopping = asyncio.ensure_future(edge.server.stop(30))
        assert (await watch.read()).status == NOT_SERVING
        assert not running.done()
        stub.hold.set()
        assert await asyncio.wait_for(running, 10) == b""
        await asyncio.wait_for(stopping, 10)  # the open watch does not cost the whole grace time
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw(channel).unary_unary(SELECT)(b"", metadata=USER)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_calls_over_the_grace_time_end_unavailable() -> None:
    stub = StubSelection(hold=asyncio.Event())
    async with running_edge(stub) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        running = asyncio.ensure_future(raw(channel).unary_unary(SELECT)(b"", metadata=USER))
        await asyncio.wait_for(stub.entered.wait(), 10)
        await asyncio.wait_for(edge.server.stop(0.2), 10)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(running, 10)
        await asyncio.wait_for(stub.cancelled.wait(), 10)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_row_54_an_aged_connection_lets_its_calls_finish() -> None:
    options = ListenOptions(LOOPBACK, max_connection_age_seconds=1)
    stub = StubSelection(hold=asyncio.Event())
    assert stub.hold is not None
    async with running_edge(stub, options=options) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        running = asyncio.ensure_future(raw(channel).unary_unary(SELECT)(b"", metadata=USER))
        await asyncio.wait_for(stub.entered.wait(), 10)

        async def reconnected() -> bool:
            return channel.get_state() is not grpc.ChannelConnectivity.READY

        await wait_until_async(reconnected, timeout=20)
        stub.hold.set()
        assert await asyncio.wait_for(running, 10) == b""
        assert await raw(channel).unary_unary(SELECT)(b"", metadata=USER) == b""


@pytest.mark.parametrize(("least_ms", "welcome"), [(500, True), (5_000, False)])
async def test_row_54_pings_at_the_gateways_pace_are_no_flood(least_ms: int, welcome: bool) -> None:
    pinging = [
        ("grpc.keepalive_time_ms", 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    options = ListenOptions(LOOPBACK, min_ping_interval_ms=least_ms)
    async with (
        running_edge(options=options) as edge,
        grpc.aio.insecure_channel(edge.target, options=pinging) as channel,
    ):
        await raw(channel).unary_unary(SELECT)(b"", metadata=USER)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        change = asyncio.ensure_future(channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
        done, _ = await asyncio.wait({change}, timeout=8)  # the third early ping ends a connection
        change.cancel()
        assert bool(done) is not welcome
        await raw(channel).unary_unary(SELECT)(b"", metadata=USER)


def test_row_54_pings_of_the_usual_gateways_are_welcome() -> None:
    assert ListenOptions(LOOPBACK).min_ping_interval_ms < 10_000


@dataclass
class Certificates:
    """An authority and what it signed, as PEM files."""

    folder: Path

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._write("ca.pem", self._signed(self._name, self._key, authority=True))

    def make(self, name: str) -> tuple[bytes, bytes]:
        """Key and certificate for 127.0.0.1; also written as name.key and name.pem."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        pem = self._signed(subject, key, authority=False)
        raw = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._write(f"{name}.pem", pem)
        self._write(f"{name}.key", raw)
        return raw, pem

    def authority(self) -> bytes:
        return (self.folder / "ca.pem").read_bytes()

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def _write(self, name: str, raw: bytes) -> None:
        (self.folder / name).write_bytes(raw)

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool) -> bytes:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def secured(certificates: Certificates) -> Callable[..., ListenOptions]:
    certificates.make("server")

    def options(*, mutual: bool) -> ListenOptions:
        return ListenOptions(
            LOOPBACK,
            tls_cert=certificates.path("server.pem"),
            tls_key=certificates.path("server.key"),
            tls_client_ca=certificates.path("ca.pem") if mutual else "",
        )

    return options


async def test_tls(certificates: Certificates, secured: Callable[..., ListenOptions]) -> None:
    trust = grpc.ssl_channel_credentials(certificates.authority())
    async with running_edge(options=secured(mutual=False)) as edge:
        async with grpc.aio.secure_channel(edge.target, trust) as channel:
            assert await health(channel) == SERVING
        async with grpc.aio.insecure_channel(edge.target) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await health(channel)


async def test_mutual_tls(
    certificates: Certificates, secured: Callable[..., ListenOptions], tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = certificates.authority()
    key, certificate = certificates.make("gateway")
    other_key, other_certificate = Certificates(tmp_path_factory.mktemp("other")).make("stranger")
    async with running_edge(options=secured(mutual=True)) as edge:
        known = grpc.ssl_channel_credentials(authority, key, certificate)
        async with grpc.aio.secure_channel(edge.target, known) as channel:
            assert await health(channel) == SERVING
        for pair in ((None, None), (other_key, other_certificate)):
            stranger = grpc.ssl_channel_credentials(authority, *pair)
            async with grpc.aio.secure_channel(edge.target, stranger) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await health(channel)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_commands_speak_mutual_tls(
    certificates: Certificates, secured: Callable[..., ListenOptions], tmp_path: Path
) -> None:
    certificates.make("gateway")
    tls = {
        "TOOLBELAY_CA": certificates.path("ca.pem"),
        "TOOLBELAY_CLIENT_CERT": certificates.path("gateway.pem"),
        "TOOLBELAY_CLIENT_KEY": certificates.path("gateway.key"),
    }
    async with running_edge(options=secured(mutual=True)) as edge:
        probe = ("health", "--address", edge.target)
        good = await asyncio.to_thread(toolbelay, *probe, cwd=tmp_path, environment=tls)
        renamed = await asyncio.to_thread(
            toolbelay, *probe, cwd=tmp_path, environment=tls | {"TOOLBELAY_SERVER_NAME": "elsewhere.example"}
        )
        plain = await asyncio.to_thread(toolbelay, *probe, cwd=tmp_path)
    assert (good.returncode, good.stdout) == (0, "ready\n"), good.stderr
    assert renamed.returncode == plain.returncode == 4


async def test_unusable_tls_files_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("not a certificate")
    options = ListenOptions(LOOPBACK, tls_cert=str(tmp_path / "x"), tls_key=str(tmp_path / "x"))
    with pytest.raises(ListenError, match="TOOLBELAY_TLS_CERT"):
        Server(options).bind()
