"""TLS and mutual TLS of the whole service, the admin role, and no token in anything that the service says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import jwt
import pytest

from tests.support.certificates import Authority
from tests.support.fault_world import TOOLS, reason_of
from tests.support.servers import RedisServer
from tests.support.service import (
    AUDIENCE,
    ISSUER,
    PERMIT_ALL,
    SECRET,
    Client,
    Service,
    free_port,
    ids,
    migrated,
    token,
    tool,
)
from tests.support.waiting import wait_until
from toolbelay.v1 import admin_pb2

pytestmark = pytest.mark.faults

A = TOOLS[0]


@pytest.fixture
def serve(tmp_path: Path, fresh_redis_server: Callable[..., RedisServer]) -> Iterator[Callable[..., Service]]:
    """A factory of one configured service: settings to a service that runs."""
    started: list[Service] = []

    def start(*, wait: bool = True, **environment: str) -> Service:
        database = migrated(f"sqlite+aiosqlite:///{tmp_path / 'tls.sqlite'}")
        service = Service(database, fresh_redis_server().url, tmp_path, **environment)
        started.append(service)
        service.apply([tool(t) for t in TOOLS], {"all.cedar": PERMIT_ALL}, {"default": {"strategy": "caller"}})
        return service.start(wait=wait)

    yield start
    for service in started:
        service.close()


def secure(service: Service, root: bytes, *own: str) -> grpc.Channel:
    """A channel that trusts `root`; `own`: certificate and key of the client."""
    certificate, key = (Path(path).read_bytes() for path in own) if own else (None, None)
    credentials = grpc.ssl_channel_credentials(root, key, certificate)
    return grpc.secure_channel(f"127.0.0.1:{service.port}", credentials)


def answers(channel: grpc.Channel) -> str:
    """How a turn over the channel ends; a handshake that fails is UNAVAILABLE at once."""
    with channel:
        return reason_of(lambda: Client(channel, token()).select("s", candidates=[A]))


def ready(service: Service, root: bytes, *own: str) -> None:
    with secure(service, root, *own) as channel:
        grpc.channel_ready_future(channel).result(timeout=20)
        untyped: Any = channel
        check = untyped.unary_unary("/grpc.health.v1.Health/Check")
        wait_until(lambda: check(b"", timeout=5) == b"\x08\x01", 20)


def test_tls(tmp_path: Path, serve: Callable[..., Service]) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    certificate, key = ours.issue("server")
    service = serve(wait=False, TOOLBELAY_TLS_CERT=certificate, TOOLBELAY_TLS_KEY=key)
    ready(service, ours.pem)
    assert answers(secure(service, ours.pem)) == "OK"
    assert answers(secure(service, others.pem)) == "UNAVAILABLE"
    assert answers(grpc.insecure_channel(f"127.0.0.1:{service.port}")) == "UNAVAILABLE"


def test_mutual_tls(tmp_path: Path, serve: Callable[..., Service]) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    certificate, key = ours.issue("server")
    service = serve(
        wait=False, TOOLBELAY_TLS_CERT=certificate, TOOLBELAY_TLS_KEY=key, TOOLBELAY_TLS_CLIENT_CA=ours.path
    )
    known, stranger = ours.issue("gateway"), others.issue("stranger")
    ready(service, ours.pem, *known)
    assert answers(secure(service, ours.pem, *known)) == "OK"
    assert answers(secure(service, ours.pem)) == "UNAVAILABLE"
    assert answers(secure(service, ours.pem, *stranger)) == "UNAVAILABLE"
    # A certificate is no identity: the token is still asked for.
    with secure(service, ours.pem, *known) as channel:
        assert reason_of(lambda: Client(channel, "").select("s")) == "UNAUTHENTICATED TOKEN_INVALID"


def test_plaintext_beyond_loopback_is_refused_at_the_start(serve: Callable[..., Service]) -> None:
    service = serve(wait=False, TOOLBELAY_LISTEN=f"0.0.0.0:{free_port()}")
    assert service.process.wait(30) != 0
    assert "ALLOW_PLAINTEXT" in service.log.read_text()


ADMIN_CALLS: dict[str, Callable[[Client, Any], object]] = {
    "ApplyConfig": lambda c, m: c.admin.ApplyConfig(iter([admin_pb2.ApplyConfigRequest(header={})]), metadata=m),
    "GetConfig": lambda c, m: list(c.admin.GetConfig(admin_pb2.GetConfigRequest(), metadata=m)),
    "ExplainDecision": lambda c, m: c.admin.ExplainDecision(admin_pb2.ExplainDecisionRequest(subject="x"), metadata=m),
    "EndSessions": lambda c, m: c.admin.EndSessions(admin_pb2.EndSessionsRequest(whole_tenant=True), metadata=m),
}


def test_admin_calls_need_the_role_and_nothing_says_a_token(serve: Callable[..., Service]) -> None:
    """Rows 32 to 37: refused tokens of many kinds, and then every byte the service said is searched for them."""
    metrics = f"127.0.0.1:{free_port()}"
    service = serve(TOOLBELAY_METRICS_LISTEN=metrics, TOOLBELAY_LOG_LEVEL="debug")
    said: list[str] = []

    def refused(bearer: str, call: Callable[[Client, Any], object]) -> str:
        client, metadata = Client(service.channel, bearer), (("authorization", f"Bearer {bearer}"),)

        def work() -> object:
            try:
                return call(client, metadata)
            except grpc.RpcError as error:
                failed: Any = error
                said.append(f"{failed.details()} {failed.trailing_metadata()} {failed.debug_error_string()}")
                raise

        return reason_of(work)

    good, admin = token("alice"), token("root", roles=["toolbelay.admin"])
    for name, call in ADMIN_CALLS.items():
        assert refused(good, call) == "PERMISSION_DENIED ADMIN_ROLE_REQUIRED", name
        assert "ADMIN_ROLE" not in refused(admin, call), name
    select: Callable[[Client, Any], object] = lambda c, _: c.select("s", candidates=[A])  # noqa: E731
    bad = {
        jwt.encode(_claims(), "another secret of thirty-two bytes!", algorithm="HS256"): "TOKEN_INVALID",
        jwt.encode(_claims(), "", algorithm="none"): "TOKEN_INVALID",
        jwt.encode(_claims(exp=1_000_000_000), SECRET, algorithm="HS256"): "TOKEN_EXPIRED",
        jwt.encode(_claims(aud="somebody-else"), SECRET, algorithm="HS256"): "TOKEN_INVALID",
        jwt.encode(_claims(iss="http"), SECRET, algorithm="HS256"): "TOKEN_INVALID",
        jwt.encode(_claims(sub=["alice"]), SECRET, algorithm="HS256"): "TOKEN_INVALID",
        good[:-4]: "TOKEN_INVALID",
        "not.a.token-but-secret-all-the-same": "TOKEN_INVALID",
    }
    for bearer, reason in bad.items():
        assert refused(bearer, select) == f"UNAUTHENTICATED {reason}"
    assert ids(Client(service.channel, good).select("s", candidates=[A])) == [A]
    with urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        exported = answer.read().decode()
    log = service.log.read_text()
    everything = "\n".join([*said, exported, log])
    for bearer in (good, admin, *bad):
        for part in bearer.split("."):
            if len(part) > 20 and part not in good.split(".")[:1]:  # the header is the same in all of them
                assert part[:20] not in everything
    assert SECRET not in everything
    assert 'toolbelay_tokens_refused_total{reason="TOKEN_EXPIRED"} 1.0' in exported
    assert "token_refused" in log


def _claims(**more: Any) -> dict[str, Any]:
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "mallory", "tenant": "acme", "exp": 4_000_000_000}
    return usual | more
