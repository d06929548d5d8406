"""A request dict to a call, and the answer back into the dict."""

from __future__ import annotations

import copy
from typing import Any

import grpc
import jwt
import pytest

from toolbelay.authority.minting import SigningKey
from toolbelay.catalog.formats import WireFormat
from toolbelay.client import Tls, TokenMinter, ToolbelayCallError, calling
from toolbelay.client.prepared import Question, answered, ask, guess_format, without_answer
from toolbelay.v1 import selection_pb2 as pb

OWN: dict[str, Any] = {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}}
ADDED = b'{"type":"function","function":{"name":"find","parameters":{"type":"object"}}}'
CLAUDE: dict[str, Any] = {"name": "own", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}


def question(body: dict[str, Any], **more: Any) -> Question:
    return ask(body, "own", **{"session_id": "s1", **more})


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi é"}], **more}


def test_a_turn_without_an_id_gets_the_calls_own_where_there_is_a_session() -> None:
    assert question(chat()).message.turn_id == "own"
    assert question(chat(), turn_id="t").message.turn_id == "t"
    assert question(chat(), session_id="").message.turn_id == ""


def test_a_format_that_is_given_is_not_guessed() -> None:
    assert question(chat(), format="anthropic_messages").message.target.format == pb.WIRE_FORMAT_ANTHROPIC_MESSAGES


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (chat(), WireFormat.OPENAI_CHAT),
        (chat(tools=[OWN], tool_choice={"type": "function", "function": {"name": "own"}}), WireFormat.OPENAI_CHAT),
        (chat(tools=[CLAUDE]), WireFormat.ANTHROPIC_MESSAGES),
        (chat(system="x"), WireFormat.ANTHROPIC_MESSAGES),
        (chat(tool_choice={"type": "any"}), WireFormat.ANTHROPIC_MESSAGES),
        ({"model": "m", "input": "hi"}, WireFormat.OPENAI_RESPONSES),
    ],
)
def test_the_format_is_guessed(body: dict[str, Any], expected: WireFormat) -> None:
    assert guess_format(body) is expected
    assert question(body).message.target.format == pb.WireFormat.Value(f"WIRE_FORMAT_{expected.value}")


def test_the_call_says_what_the_request_says() -> None:
    calls = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "find"}}]}
    body = chat(tools=[OWN], tool_choice="required")
    body["messages"] = [calls, *body["messages"]]
    message = question(body, turn_id="t", route="r", max_tools=9, min_generation=7, capabilities=["vision"]).message
    assert (message.session_id, message.turn_id, message.route, message.query) == ("s1", "t", "r", "hi é")
    assert list(message.called_tools) == ["find"]
    assert message.offered_tools[0].definition.startswith(b'{"type":"function","function":{"name":"own"')
    assert message.tool_choice.mode == pb.ToolChoice.MODE_REQUIRED
    assert (message.target.model, message.target.max_tools, message.min_generation) == ("m", 9, 7)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, ""),
        ({"model": "m"}, ""),
        ({"messages": []}, ""),
        (chat(tools={}), "tools"),
        (chat(tool_choice="x"), "tool_choice"),
        (chat(tools=[{"type": "function", "function": {"name": "x", "parameters": {"maximum": float("nan")}}}]), ""),
        (chat(messages=object()), ""),
        (chat(functions=[{"name": "own"}]), "functions"),
    ],
)
def test_what_is_no_request(body: dict[str, Any], field: str) -> None:
    if body == {"model": "m"}:
        assert question(body).message.query == ""  # Responses may continue a stored one
        return
    with pytest.raises(ToolbelayCallError) as caught:
        question(body)
    assert (caught.value.code, caught.value.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    assert not caught.value.is_outage


def reply(
    *tools: pb.SelectedTool, mode: int = pb.ToolChoice.MODE_AUTO, names: tuple[str, ...] = ()
) -> pb.SelectToolsResponse:
    return pb.SelectToolsResponse(tools=tools, tool_choice=pb.ToolChoice(mode=mode, names=names))  # type: ignore[arg-type]


def test_the_answer_replaces_tools_and_nothing_else() -> None:
    body = chat(tools=[OWN], metadata={"a": 1})
    before = copy.deepcopy(body)
    asked = question(body)
    own = pb.SelectedTool(
        name="own", definition=asked.message.offered_tools[0].definition, origin="ORIGIN_CALLER_OWNED"
    )
    prepared = answered(
        asked, reply(own, pb.SelectedTool(tool_id="crm/find", name="find", definition=ADDED)), cache_breakpoint=False
    )
    assert body == before
    assert [t["function"]["name"] for t in prepared.body["tools"]] == ["own", "find"]
    assert {k: v for k, v in prepared.body.items() if k != "tools"} == {k: v for k, v in body.items() if k != "tools"}
    assert prepared.caller_tools == ["own"]


def test_what_else_a_request_holds_is_not_looked_at() -> None:
    """Keyword arguments for a provider's SDK: time limits, callbacks."""
    limit = object()
    prepared = answered(question(chat(timeout=limit, temperature=float("nan"))), reply(), cache_breakpoint=False)
    assert prepared.body["timeout"] is limit


def test_no_tools_take_the_choice_along() -> None:
    prepared = answered(question(chat(tools=[OWN], tool_choice="required")), reply(), cache_breakpoint=False)
    assert prepared.body == chat()


def test_an_allowed_choice_is_written() -> None:
    answer = reply(
        pb.SelectedTool(tool_id="crm/find", name="find", definition=ADDED),
        mode=pb.ToolChoice.MODE_ALLOWED,
        names=("find",),
    )
    prepared = answered(question(chat()), answer, cache_breakpoint=False)
    assert prepared.body["tool_choice"]["allowed_tools"]["tools"] == [
        {"type": "function", "function": {"name": "find"}}
    ]


def test_on_error() -> None:
    body = chat(tools=[OWN], tool_choice="auto")
    outage = ToolbelayCallError(grpc.StatusCode.UNAVAILABLE, "down")
    with pytest.raises(ToolbelayCallError):
        without_answer(body, outage, "raise")
    assert without_answer(body, outage, "no_tools").body == chat()
    kept = without_answer(body, outage, "caller_tools")
    assert (kept.body, kept.error, kept.answer) == (body, outage, None)
    refusal = ToolbelayCallError(grpc.StatusCode.FAILED_PRECONDITION, "no", "REQUIRED_TOOL_UNAVAILABLE")
    for choice in ("no_tools", "caller_tools"):
        with pytest.raises(ToolbelayCallError):
            without_answer(body, refusal, choice)


@pytest.mark.parametrize(
    ("code", "reason", "outage"),
    [
        ("UNAVAILABLE", "AUTHORITY_UNVERIFIABLE", True),
        ("DEADLINE_EXCEEDED", "", True),
        ("INTERNAL", "", True),
        ("RESOURCE_EXHAUSTED", "OVERLOADED", True),
        ("RESOURCE_EXHAUSTED", "", False),  # a message over the limit: size must not get past a policy
        ("PERMISSION_DENIED", "SESSION_MISMATCH", False),
        ("UNAUTHENTICATED", "TOKEN_EXPIRED", False),
        ("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE", False),
        ("INVALID_ARGUMENT", "INVALID_REQUEST", False),
        ("NOT_FOUND", "ROUTE_NOT_FOUND", False),
        ("UNIMPLEMENTED", "", False),
    ],
)
def test_what_is_an_outage(code: str, reason: str, outage: bool) -> None:
    assert ToolbelayCallError(grpc.StatusCode[code], "", reason).is_outage is outage


def test_an_overloaded_service_has_done_nothing_and_may_be_asked_again() -> None:
    busy = ToolbelayCallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "", "OVERLOADED")
    message = pb.SelectToolsRequest(session_id="s")
    assert calling.pause_before_retry(calling.SELECT, message, busy, 1, 10) is not None
    assert calling.pause_before_retry(calling.SELECT, message, busy, 4, 10) is None


def test_the_generation_asked_for_only_rises() -> None:
    floor = calling.Floor()
    request = pb.SelectToolsRequest(query="q", min_generation=3)
    assert floor.apply(request) is request
    floor.raise_to(5)
    floor.raise_to(4)
    assert floor.apply(request) == pb.SelectToolsRequest(query="q", min_generation=5)
    assert request.min_generation == 3
    assert floor.apply(pb.SelectToolsRequest(min_generation=7)).min_generation == 7


def test_channel_options() -> None:
    options = dict(calling.channel_options(Tls(server_name="toolbelay.internal"), 30, [("grpc.keepalive_time_ms", 9)]))
    assert options["grpc.ssl_target_name_override"] == "toolbelay.internal"
    assert options["grpc.keepalive_time_ms"] == 9  # the caller's own come last
    with pytest.raises(ValueError, match="keepalive"):
        calling.channel_options(None, 1, [])
    with pytest.raises(ValueError, match="mutual"):
        Tls(private_key=b"x").credentials()
    assert "PRIVATE" not in repr(Tls(private_key=b"PRIVATE", certificate_chain=b"c"))


@pytest.mark.parametrize(
    ("message", "safe"),
    [
        (pb.SelectToolsRequest(session_id="s", turn_id="t"), True),
        (pb.SelectToolsRequest(session_id="s"), False),
        (pb.SelectToolsRequest(), True),
    ],
)
def test_what_is_tried_again(message: pb.SelectToolsRequest, safe: bool) -> None:
    down = ToolbelayCallError(grpc.StatusCode.UNAVAILABLE, "down")
    assert (calling.pause_before_retry(calling.SELECT, message, down, 1, 10) is not None) is safe
    assert calling.pause_before_retry(calling.SELECT, message, down, 1, 0.001) is None
    assert calling.pause_before_retry(calling.SELECT, message, down, 4, 10) is None
    for code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL):
        assert calling.pause_before_retry(calling.AUTHORIZE, message, ToolbelayCallError(code, ""), 1, 10) is None


def test_the_minter_hands_a_token_out_until_shortly_before_its_end() -> None:
    now = [1_000_000.0]
    key = SigningKey.from_secret(b"s" * 32)
    minter = TokenMinter(key, issuer="i", audience="a", ttl_seconds=60, clock=lambda: now[0])
    first = minter.mint("alice", session_id="c1")
    now[0] += 54
    assert minter.mint("alice", session_id="c1") == first
    others = {
        minter.mint("alice", session_id="c2"),
        minter.mint("alice"),
        minter.mint("bob", session_id="c1"),
        minter.mint("alice", tenant="t", session_id="c1"),
        minter.mint("alice", roles=["r"], session_id="c1"),
        minter.mint("alice", scopes=["r"], session_id="c1"),
    }
    assert len(others | {first}) == 7
    now[0] += 2
    renewed = minter.mint("alice", session_id="c1")
    assert renewed != first
    assert jwt.decode(renewed, options={"verify_signature": False})["exp"] == 1_000_116


def test_the_minter_binds_a_token_to_its_session() -> None:
    secret = b"s" * 32
    minter = TokenMinter.hs256(secret, issuer="https://i", audience="toolbelay", ttl_seconds=30)
    token = minter.for_user("alice", tenant="acme", roles=["support"])("chat-1")
    claims = jwt.decode(token, secret, algorithms=["HS256"], audience="toolbelay", issuer="https://i")
    assert (claims["sub"], claims["tenant"], claims["toolbelay_session"]) == ("alice", "acme", "chat-1")
    assert claims["exp"] - claims["iat"] == 30
    assert "toolbelay_session" not in jwt.decode(minter.mint("bob"), options={"verify_signature": False})
    key = SigningKey.generate("k1")
    signed = TokenMinter.eddsa(key.pem(), kid="k1", issuer="https://i", audience="a").mint("alice")
    assert jwt.get_unverified_header(signed) == {"alg": "EdDSA", "kid": "k1", "typ": "JWT"}
    assert secret.decode() not in repr(minter)
    for ttl in (0, 3601):
        with pytest.raises(ValueError, match="life"):
            TokenMinter.hs256(secret, issuer="i", audience="a", ttl_seconds=ttl)
    with pytest.raises(ValueError, match="32"):
        TokenMinter.hs256(b"short", issuer="i", audience="a")
