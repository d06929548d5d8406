"""Tenants, principals and crafted ids never meet, however warm the caches."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jwt
import pytest
import redis

from tests.support.fault_world import reason_of
from tests.support.served import served
from tests.support.service import AUDIENCE, ISSUER, SECRET, Client, Service, ids, tool
from toolbelay.v1 import selection_pb2 as pb

pytestmark = pytest.mark.faults

ROUTES = {"default": {"strategy": "hybrid"}, "mine": {"strategy": "caller"}}
TENANTS = ("aa", "bb")


def _tools(tenant: str) -> list[dict[str, object]]:
    secret = f"{tenant}-secret"
    schema = {"type": "object", "properties": {"x": {"type": "string", "description": secret}}}
    own = tool(f"ops/only_{tenant}", f"archive of {secret}")
    return [tool("ops/report", f"monthly report {secret}", schema), tool("ops/erase", "erase the archive"), own]


# In one tenant `erase` is for everybody, in the other for nobody.
POLICIES = {
    "aa": "permit (principal, action, resource);",
    "bb": 'permit (principal, action, resource); forbid (principal, action, resource == Tool::"ops/erase");',
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("isolation")) as made:
        for tenant in TENANTS:
            made.apply(_tools(tenant), {"all.cedar": POLICIES[tenant]}, ROUTES, tenant=tenant)
        yield made.start()


def signed(**claims: object) -> str:
    """A token with the right key and any claims."""
    usual = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600, "tenant": "aa"}
    wanted = {name: value for name, value in (usual | claims).items() if value is not None}
    return jwt.encode(wanted, SECRET, algorithm="HS256")


def texts(answer: pb.SelectToolsResponse) -> bytes:
    return b"".join(t.definition for t in answer.tools)


def test_alternate_calls_of_two_tenants_never_mix(service: Service) -> None:
    """Row 39: the same names, query, subject and session id, a hundred times by turns."""
    clients = {tenant: service.client("alice", tenant) for tenant in TENANTS}
    expected: dict[str, tuple[list[str], bytes]] = {}
    for number in range(100):
        for tenant, other in (TENANTS, TENANTS[::-1]):
            session = f"s{number % 3}" if number % 2 else ""
            answer = clients[tenant].select(session, query="monthly report archive erase", called_tools=["report"])
            found = (sorted(ids(answer)), texts(answer))
            assert f"{tenant}-secret".encode() in found[1]
            assert f"{other}-secret".encode() not in found[1]
            assert f"ops/only_{other}" not in found[0]
            assert ("ops/erase" in found[0]) == (tenant == "aa")
            if not session:
                assert expected.setdefault(tenant, found) == found
            decided = clients[tenant].authorize("", ["erase", f"only_{other}", "report"])
            verdicts = [d.verdict for d in decided.decisions]
            assert verdicts[1:] == [pb.VERDICT_DENIED, pb.VERDICT_ALLOWED]
            assert (verdicts[0] == pb.VERDICT_ALLOWED) == (tenant == "aa")


CRAFTED = [
    # (subject, session id) pairs whose parts run together to the same text
    (("a:b", "c"), ("a", "b:c")),
    (("a{b}", "c"), ("a", "{b}c")),
    (("a", "{b}"), ("a{b}", "x")),
    (("alice", "chat-1"), ("alice::chat", "1")),
    (("alice", "alice::chat-1"), ("alice::chat-1", "alice")),
    (("a/b", "c"), ("a", "b/c")),
    (("a|b", "c"), ("a", "b|c")),
    (("tb:{x}:s", "y"), ("tb", "{x}:s:y")),
    (("\u00e9", "s"), ("e\u0301", "s")),  # composed, decomposed
    (("A", "s"), ("a", "s")),
]


@pytest.mark.parametrize(("one", "other"), CRAFTED)
def test_crafted_ids_never_share(service: Service, one: tuple[str, str], other: tuple[str, str]) -> None:
    """Row 23."""
    first, second = (service.client(subject, "aa") for subject, _ in (one, other))
    first.select(one[1], route="mine", candidates=["ops/report"], called_tools=["report"])
    assert second.session(other[1], "mine").turn == 0
    second.end(other[1], "mine")
    assert first.session(one[1], "mine").turn == 1
    first.end(one[1], "mine")


def test_routes_tenants_and_issuers_part_sessions(service: Service) -> None:
    client = service.client("same", "aa")
    client.select("s", route="mine", candidates=["ops/report"])
    assert client.session("s", "mine").turn == 1
    assert client.session("s").turn == 0
    assert service.client("same", "bb").session("s", "mine").turn == 0
    other_issuer = Client(service.channel, signed(iss="https://issuer.test/", sub="same"))
    assert reason_of(lambda: other_issuer.session("s", "mine")) == "UNAUTHENTICATED TOKEN_INVALID"


def test_no_identity_or_session_is_never_a_shared_one(service: Service) -> None:
    """Row 23: empty session ids keep nothing; a token without a subject is nobody."""
    client = service.client("nobody", "aa")
    for _ in range(3):
        answer = client.select("", route="mine", candidates=["ops/report"], called_tools=["report"])
        assert answer.receipt.outcome == pb.OUTCOME_STATELESS
        assert answer.receipt.turn == 0
    for subject in ("", " ", None, 42):
        bad = Client(service.channel, signed(sub=subject))
        assert reason_of(lambda c=bad: c.select("s")) == "UNAUTHENTICATED TOKEN_INVALID"  # type: ignore[misc]


def test_a_bound_token_serves_no_other_session(service: Service) -> None:
    bound: Client = service.client("bound", "aa", session="mine-only")
    assert bound.select("mine-only", route="mine", candidates=["ops/report"]).receipt.turn == 1
    assert reason_of(lambda: bound.select("another", route="mine")) == "PERMISSION_DENIED SESSION_MISMATCH"
    assert reason_of(lambda: bound.session("another")) == "PERMISSION_DENIED SESSION_MISMATCH"
    assert reason_of(lambda: bound.end("another")) == "PERMISSION_DENIED SESSION_MISMATCH"
    assert reason_of(lambda: bound.authorize("another", ["report"])) == "PERMISSION_DENIED SESSION_MISMATCH"


def test_redis_holds_no_name_of_anybody(service: Service) -> None:
    client = service.client("visible-subject", "aa")
    client.select("visible-session", query="visible-query", turn_id="visible-turn", called_tools=["report"])
    with redis.Redis.from_url(service.environment["TOOLBELAY_REDIS_URL"]) as connection:
        keys = list(connection.scan_iter())
        held = b"".join(keys) + b"".join(connection.dump(key) or b"" for key in keys)
        values = b"".join(connection.get(key) or b"" for key in keys if connection.type(key) == b"string")
    for word in (b"visible", b"secret", b"issuer.test", b"monthly"):
        assert word not in held + values
