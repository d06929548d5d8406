"""Public bug reports on sessions and tokens, each played against the running service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest

from tests.support.fault_world import reason_of, told
from tests.support.served import served
from tests.support.service import AUDIENCE, ISSUER, PERMIT_ALL, SECRET, Client, Service, ids, token, tool
from tests.support.waiting import wait_until
from toolbelay.v1 import selection_pb2 as pb

pytestmark = pytest.mark.faults

MANY = tuple(f"crm/t{n:02d}" for n in range(30))
LONG = "crm/" + "long_name_" * 12
QUOTED = 'odd/x"); permit(principal,action,resource); //'
EMOJI = "odd/🦉"
ROUTES = {
    "default": {"strategy": "caller", "sticky": {"max_tools": 6, "max_new_tools_per_turn": 1}},
    "brief": {"strategy": "caller", "sticky": {"ttl_seconds": 2}},
}
UNAUTHENTICATED = {"UNAUTHENTICATED TOKEN_INVALID", "UNAUTHENTICATED TOKEN_EXPIRED", "UNAUTHENTICATED TOKEN_MISSING"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    tools = [tool(t) for t in (*MANY, LONG, QUOTED, EMOJI)]
    forbids = 'forbid (principal, action, resource) when { principal.subject == "carol" };'
    with served(tmp_path_factory.mktemp("reports")) as made:
        made.apply(tools, {"all.cedar": PERMIT_ALL + forbids}, ROUTES)
        yield made.start()


def pinned(client: Client, session: str) -> list[str]:
    return [t.tool_id for t in client.session(session).tools if t.pinned]


def test_row_26_parallel_calls_pin_each_tool_once_in_call_order(service: Service) -> None:
    client = service.client("row-26")
    client.select("s", candidates=MANY[:3])
    answer = client.select("s", called_tools=["t05", "t04", "t05", "t04t04t04", "t0", "t04", "nope"])
    assert answer.receipt.called_ignored == 3
    assert ids(answer)[3:] == [MANY[5], MANY[4]]
    assert pinned(client, "s") == [MANY[5], MANY[4]]
    crowd = client.select("s", called_tools=[f"t{n:02d}" for n in range(30)] * 3)
    assert len(crowd.tools) == 6
    assert len(client.session("s").tools) == 6


def test_row_27_a_compacted_history_loses_nothing(service: Service) -> None:
    client = service.client("row-27")
    for number in range(10):
        client.select("s", candidates=MANY[:2], called_tools=["t00", "t01"], turn_id=f"{number}", query=f"q{number}")
    before = ids(client.select("s", query="a summary of all that was", candidates=MANY[:2]))
    for history in ([], ["t01"], []):
        answer = client.select("s", called_tools=history, candidates=MANY[:2])
        assert ids(answer) == before
    assert pinned(client, "s") == before


def test_row_29_a_change_of_model_keeps_membership_and_order(service: Service) -> None:
    client = service.client("row-29")
    chat, messages = pb.WIRE_FORMAT_OPENAI_CHAT, pb.WIRE_FORMAT_ANTHROPIC_MESSAGES
    first = client.select("s", candidates=[LONG, *MANY[:2]], target={"format": chat, "model": "gpt-x"})
    other = client.select("s", candidates=MANY[:3], target={"format": messages, "model": "claude-y"})
    back = client.select("s", candidates=MANY[:2], target={"format": chat, "model": "gpt-x"})
    assert ids(other)[: len(first.tools)] == ids(first) == ids(back)[: len(first.tools)]
    assert all(len(t.name) <= 64 for t in first.tools)
    assert [t.definition for t in back.tools][: len(first.tools)] == [t.definition for t in first.tools]
    assert first.tools[0].definition != other.tools[0].definition


def test_row_30_each_turn_renews_the_session(service: Service) -> None:
    client = service.client("row-30")
    client.select("s", route="brief", candidates=MANY[:2], called_tools=["t00"])
    for _ in range(5):
        time.sleep(0.8)  # in all twice the session's life
        assert told(client.select("s", route="brief", candidates=MANY[:2]))[0] == "REUSED"
    wait_until(lambda: client.session("s", "brief").turn == 0, 10, "it expires when it is left alone")
    late = client.authorize("s", ["t00"], route="brief")
    assert not late.state_checked
    assert told(client.select("s", route="brief", candidates=MANY[:2]))[0] == "SEEDED"


def test_row_31_side_calls_change_nothing_and_branches_lose_no_pin(service: Service) -> None:
    client = service.client("row-31")
    for number in range(4):
        client.select("s", candidates=MANY[:2], called_tools=["t00"], turn_id=str(number), query=f"q{number}")
    before = client.session("s")
    title = client.select("s", target={"supports_tools": False}, query="a title, please")
    assert not title.tools
    after = client.session("s")
    assert (after.turn, after.revision, after.tools) == (before.turn, before.revision, before.tools)
    edited = client.select("s", candidates=MANY[:2], called_tools=["t01"], turn_id="2", query="q2, edited")
    assert edited.receipt.turn == 5
    assert set(pinned(client, "s")) == {MANY[0], MANY[1]}
    assert ids(client.select("s", candidates=MANY[:2], turn_id="4")) == ids(edited)


def signed(header: dict[str, Any] | None = None, key: str = SECRET, **claims: Any) -> str:
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "dora", "tenant": "acme", "exp": time.time() + 600}
    wanted = {name: value for name, value in (usual | claims).items() if value is not ...}
    payload = json.dumps(wanted).encode()  # PyJWT's own encoder refuses some of what has to be refused here
    return jwt.PyJWS().encode(payload, key, algorithm="HS256", headers=header)


NOW = time.time()
BAD_CLAIMS: list[dict[str, Any]] = [
    *({"iss": value} for value in ("http", ISSUER[:-1], f"{ISSUER}/", [ISSUER], None, ...)),  # row 33
    *({"aud": value} for value in ("else", [], ["else"], 7, None, ...)),
    *({"sub": value} for value in (42, "", " ", None, True, ["a"], ..., "x" * 10_000)),  # row 34
    *({"tenant": value} for value in (5, "", None, ["acme"], ...)),
    *({"roles": value} for value in (5, {"a": 1}, [1])),
    *({"exp": value} for value in (NOW - 600, "4000000000", ..., None)),  # row 35
    *({"nbf": value} for value in (NOW + 600, "soon")),
    {"iat": NOW + 600},
]


@pytest.mark.parametrize("claims", BAD_CLAIMS, ids=[f"{next(iter(c))}-{n}" for n, c in enumerate(BAD_CLAIMS)])
def test_rows_33_to_35_odd_claims_are_unauthenticated(service: Service, claims: dict[str, Any]) -> None:
    bearer = signed(**claims)
    assert reason_of(lambda: Client(service.channel, bearer).select("s")) in UNAUTHENTICATED


def test_rows_33_to_35_small_differences_are_forgiven(service: Service) -> None:
    soon, ago = time.time() + 2, time.time() - 2
    for claims in ({"iat": soon}, {"nbf": soon}, {"exp": ago}, {"aud": ["else", AUDIENCE]}, {"sub": "42"}):
        assert reason_of(lambda c=claims: Client(service.channel, signed(**c)).select("s")) == "OK"  # type: ignore[misc]


@pytest.mark.parametrize(
    "header", [{"jwk": {"kty": "oct"}}, {"jku": "https://x.invalid"}, {"x5u": "https://x.invalid"}]
)
def test_row_32_hints_of_a_token_about_its_key_are_ignored(service: Service, header: dict[str, Any]) -> None:
    assert reason_of(lambda: Client(service.channel, signed(header)).select("s")) in {"OK", *UNAUTHENTICATED}
    forged = signed(header, key="another secret of thirty-two bytes!")
    assert reason_of(lambda: Client(service.channel, forged).select("s")) in UNAUTHENTICATED


def test_row_32_unknown_critical_headers_are_refused(service: Service) -> None:
    forged = signed({"crit": ["b64x"], "b64x": True})
    assert reason_of(lambda: Client(service.channel, forged).select("s")) in UNAUTHENTICATED


def _with(service: Service, *values: tuple[str, str]) -> str:
    client = Client(service.channel, "")
    request = pb.SelectToolsRequest(session_id="s")
    return reason_of(lambda: client.selection.SelectTools(request, metadata=values, timeout=10))


def test_row_37_one_value_any_case_of_the_scheme(service: Service) -> None:
    good, bad = token("alice"), signed(key="another secret of thirty-two bytes!")
    name = "authorization"
    assert _with(service, (name, f"bearer {good}")) == "OK"
    assert _with(service, (name, f"BEARER {good}")) == "OK"
    for values in (
        ((name, f"Bearer {good}"), (name, f"Bearer {bad}")),
        ((name, f"Bearer {bad}"), (name, f"Bearer {good}")),
        ((name, good),),
        ((name, f"Basic {good}"),),
        ((name, "Bearer"),),
        (("x-authorization", f"Bearer {good}"),),
        (),
    ):
        assert _with(service, *values) in UNAUTHENTICATED


@pytest.mark.parametrize(
    ("size", "ends"), [(7_000, {"OK"}), (17_000, {"OK"}), (31_000, {"OK"}), (40_000, UNAUTHENTICATED)]
)
def test_row_37_large_tokens_end_clearly(service: Service, size: int, ends: set[str]) -> None:
    bearer = signed(padding="x" * (size * 3 // 4 - 200))
    assert {_with(service, ("authorization", f"Bearer {bearer}")) for _ in range(5)} <= ends


@pytest.mark.parametrize("odd", [QUOTED, EMOJI])
def test_row_65_odd_ids_authorize_only_themselves(service: Service, odd: str) -> None:
    make: Callable[[str], Client] = service.client
    for subject in ('a"b', "a\\b", 'User::"alice"', "file:///a::b", "🦉", "new\u00a0line", odd):
        assert ids(make(subject).select("", candidates=[odd, MANY[0]])) == [odd, MANY[0]]
    assert ids(make("carol").select("", candidates=[odd, MANY[0]])) == []
