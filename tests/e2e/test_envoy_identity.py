"""Who the request is from, through a real Envoy: TLS, mutual TLS and UNIX listeners, jwt_authn's metadata, header bytes."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.certificates import Authority
from tests.support.envoy import Envoy, Upstream
from tests.support.envoy_stack import CHAT, Stack, open_stack
from tests.support.ext_proc import PATHS, chat_body
from tests.support.routed import routed
from tests.support.service import AUDIENCE, ISSUER, SECRET, Service, free_port, token, tool
from toolbelay.api.server import ListenOptions
from toolbelay.authority.minting import SigningKey, mint
from toolbelay.settings_check import parse_address

pytestmark = pytest.mark.e2e

CLUSTER = "    - name: toolbelay\n      type: STRICT_DNS\n"
SOCKET = """      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2]
            validation_context: {{trusted_ca: {{filename: "{ca}"}}}}{own}
"""
OWN = """
            tls_certificates:
              - certificate_chain: {{filename: "{certificate}"}}
                private_key: {{filename: "{key}"}}"""


@pytest.fixture
def make() -> Iterator[Callable[..., Stack]]:
    with ExitStack() as stack:
        yield lambda *args, **options: open_stack(stack, *args, **options)


def tls(ca: str, certificate: str = "", key: str = "") -> dict[str, str]:
    own = OWN.format(certificate=certificate, key=key) if certificate else ""
    return {CLUSTER: CLUSTER + SOCKET.format(ca=ca, own=own)}


def test_tls_between_envoy_and_the_processor(make: Callable[..., Stack], tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    certificate, key = ours.issue("processor")
    listen = ListenOptions(parse_address("127.0.0.1:0"), tls_cert=certificate, tls_key=key)
    stack = make(tls(ours.path), listen=listen)
    assert b'"tools":[' in stack.forwarded(chat_body(CHAT)).body


def test_mutual_tls_lets_claims_without_a_signature_in(make: Callable[..., Stack], tmp_path: Path) -> None:
    """A listener that is not loopback would do as well; strangers are refused before anything is read."""
    ours, strangers = Authority(tmp_path, "ours"), Authority(tmp_path, "strangers")
    certificate, key = ours.issue("processor")
    listen = ListenOptions(parse_address("127.0.0.1:0"), tls_cert=certificate, tls_key=key, tls_client_ca=ours.path)
    stack = make(tls(ours.path, *ours.issue("envoy")), listen=listen)
    assert b'"tools":[' in stack.forwarded(chat_body(CHAT)).body
    for mine in ((), strangers.issue("stranger")):
        chain, secret = [Path(file).read_bytes() for file in mine] or (None, None)
        credentials = grpc.ssl_channel_credentials(ours.pem, secret, chain)
        with grpc.secure_channel(f"127.0.0.1:{stack.processor.port}", credentials) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            with pytest.raises(grpc.RpcError) as caught:
                check(health_pb2.HealthCheckRequest(), timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_unix_listener(make: Callable[..., Stack], tmp_path: Path) -> None:
    path = tmp_path / "toolbelay.sock"
    changes = {
        CLUSTER: CLUSTER.replace("STRICT_DNS", "STATIC"),
        "{socket_address: {address: 127.0.0.1, port_value: 1}}": f'{{pipe: {{path: "{path}"}}}}',
    }
    listen = ListenOptions(parse_address(f"unix:{path}"))
    stack = make(changes, listen=listen)
    assert b'"tools":[' in stack.forwarded(chat_body(CHAT)).body


JWKS = {"keys": [{"kty": "oct", "alg": "HS256", "k": base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("=")}]}
JWT_FILTER = """- name: jwt
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
                      providers:
                        ours:
                          issuer: {issuer}
                          payload_in_metadata: payload
                          local_jwks: {{inline_string: '{jwks}'}}
                      rules: [{{match: {{prefix: /}}, requires: {{provider_name: ours}}}}]
                  - name: strip"""
TOOLS = [tool("crm/find_account", "Finds a customer account by name"), tool("hr/pay", "Pays a salary")]
POLICY = """permit (principal, action, resource) when { resource in Toolset::"crm" };
permit (principal in Role::"payroll", action, resource);"""
ROUTES = {
    "default": {"strategy": "keyword", "on_no_match": "none", "narrow": "allowed_tools"},
    "eu": {"strategy": "keyword", "on_no_match": "all"},
}


class World:
    """The real service that trusts Envoy's metadata and `authorization`, Envoy with jwt_authn, and the upstream."""

    def __init__(self, service: Service, verified: Envoy, plain: Envoy, upstream: Upstream) -> None:
        self.service, self.verified, self.plain, self.upstream = service, verified, plain, upstream

    def post(self, envoy: Envoy, text: str, **headers: str) -> httpx.Response:
        self.upstream.received.clear()
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        return httpx.post(envoy.url + PATHS[CHAT], content=chat_body(CHAT, text), headers={**JSON, **given}, timeout=20)

    def names(self) -> list[str]:
        return [item["function"]["name"] for item in json.loads(self.upstream.last().body).get("tools", [])]


JSON = {"content-type": "application/json", "x-session-id": "s1"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    settings = {
        "TOOLBELAY_EXT_PROC_TRUST_JWT_METADATA": "true",
        "TOOLBELAY_EXT_PROC_USE_AUTHORIZATION": "true",
        "TOOLBELAY_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
    }
    jwt_filter = JWT_FILTER.format(issuer=ISSUER, jwks=json.dumps(JWKS))
    with (
        routed(tmp_path_factory.mktemp("identity"), **settings) as made,
        closing(Envoy(made.ext_proc_port, made.upstream.port, {"- name: strip": jwt_filter})) as verified,
    ):
        made.service.apply(TOOLS, {"all.cedar": POLICY}, ROUTES)
        made.start()
        verified.start()
        yield World(made.service, verified, made.envoy, made.upstream)


def test_claims_that_envoys_jwt_authn_verified(world: World) -> None:
    """Envoy has checked the signature and removed the token; roles and session come out of its metadata."""
    bearer = {"authorization": f"Bearer {token(roles=['payroll'])}"}
    answer = world.post(world.verified, "pay a salary", **bearer)
    assert answer.status_code == 200, answer.text
    assert world.names() == ["pay"]
    assert world.upstream.last().header("authorization") is None
    assert world.service.client(roles=["payroll"]).session("s1").tools[0].tool_id == "hr/pay"
    answer = world.post(world.verified, "pay a salary", authorization=f"Bearer {token('bob')}")
    assert (answer.status_code, world.names()) == (200, [])


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"audience": "another"}, 401),  # jwt_authn was told of no audience, Toolbelay was
        ({"session": "s1"}, 200),
        ({"session": "s2"}, 403),
    ],
)
def test_claims_are_checked_all_the_same(world: World, given: dict[str, str], status: int) -> None:
    signed: dict[str, Any] = {"audience": AUDIENCE, "subject": "carol", "tenant": "acme", **given}
    bearer = mint(SigningKey.from_secret(SECRET.encode()), issuer=ISSUER, **signed)
    assert world.post(world.verified, "find account", authorization=f"Bearer {bearer}").status_code == status


def test_claims_that_a_client_made_up_are_nobodys(world: World) -> None:
    """Dynamic metadata is not a header: nothing that a client sends becomes it."""
    forged = {"x-envoy-filters-http-jwt-authn": json.dumps({"payload": {"iss": ISSUER, "sub": "alice"}})}
    assert world.post(world.plain, "find account", **forged).status_code == 401
    assert not world.upstream.received


def test_our_jwt_in_authorization_stays_here_and_a_providers_key_goes_on(world: World) -> None:
    ours = f"Bearer {token()}"
    assert world.post(world.plain, "find account", authorization=ours).status_code == 200
    assert world.upstream.last().header("authorization") is None
    assert world.names() == ["find_account"]
    both = {"authorization": "Bearer sk-providers-key", "x_toolbelay_token": token()}
    assert world.post(world.plain, "find account", **both).status_code == 200
    assert world.upstream.last().header("authorization") == "Bearer sk-providers-key"
    assert world.post(world.plain, "find account", authorization="Bearer sk-providers-key").status_code == 401


def test_narrowing_comes_back_as_openais_allowed_tools(world: World) -> None:
    bearer = token("dora", roles=["payroll"])
    for text in ("find the account", "pay a salary"):
        assert world.post(world.plain, text, x_toolbelay_token=bearer).status_code == 200
    body = json.loads(world.upstream.last().body)
    assert world.names() == ["find_account", "pay"]
    assert body["tool_choice"]["type"] == "allowed_tools"
    allowed = body["tool_choice"]["allowed_tools"]
    assert (allowed["mode"], allowed["tools"]) == ("auto", [{"type": "function", "function": {"name": "pay"}}])


def test_the_metrics_tell_what_became_of_requests(world: World) -> None:
    world.post(world.plain, "find account", x_toolbelay_token=token())
    world.post(world.plain, "find account", x_toolbelay_token="x")
    httpx.post(world.plain.url + PATHS[CHAT], content=b"hello", headers=JSON, timeout=20)
    scrape = httpx.get(f"http://{world.service.environment['TOOLBELAY_METRICS_LISTEN']}/metrics", timeout=10).text
    for line in (
        'ext_proc_requests_total{outcome="rewritten"}',
        'ext_proc_requests_total{outcome="denied"}',
        'ext_proc_untouched_total{reason="not_json"}',
        'ext_proc_body_bytes_bucket{le="4096.0"}',
        "ext_proc_seconds_count",
        'tokens_refused_total{reason="TOKEN_INVALID"}',
    ):
        (found,) = (text for text in scrape.splitlines() if text.startswith(f"toolbelay_{line} "))
        assert float(found.split()[-1]) > 0


def test_row_61_bytes_of_headers(world: World) -> None:
    """Through a real Envoy, which sends `raw_value`: odd bytes end in an answer, not in an error of ours."""
    body = chat_body(CHAT)
    for name, value in (
        (b"x-session-id", b"\xff\xfe"),
        (b"x-toolbelay-token", b"\xff"),
        (b"x-toolbelay-turn-id", b"\xe9"),
    ):
        head = [b"POST %b HTTP/1.1" % PATHS[CHAT].encode(), b"host: x", b"connection: close"]
        head += [b"content-type: application/json", b"content-length: %d" % len(body), name + b": " + value]
        if name != b"x-toolbelay-token":
            head.append(b"X-Toolbelay-Token: " + token().encode())
        with socket.create_connection(("127.0.0.1", world.plain.port), timeout=20) as connection:
            connection.sendall(b"\r\n".join([*head, b"", body]))
            assert int(connection.recv(65536).split()[1]) in (400, 401)
