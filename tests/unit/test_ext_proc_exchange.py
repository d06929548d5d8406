"""One HTTP exchange, message by message."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import grpc
import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode as Mode

from tests.support.ext_proc import JWT, FakeApplication, FakeVerifier, chat_body
from tests.support.ext_proc_stream import (
    ANTHROPIC,
    CHAT,
    RENDERED,
    RESPONSES,
    Stream,
    denied,
    new_body,
    sent,
    untouched,
)
from tests.support.waiting import wait_until_async
from toolbelay.application.turn import ChoiceMode, ToolChoice
from toolbelay.catalog.formats import WireFormat
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.ext_proc.exchange import Exchange
from toolbelay.ext_proc.faults import OutageError
from toolbelay.ext_proc.options import ExtProcOptions


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES, ANTHROPIC])
async def test_tools_are_put_in_and_every_other_byte_stays(wire_format: WireFormat) -> None:
    body = chat_body(wire_format)
    reply = await sent(body, wire_format)
    tools = b',"tools":[%b]' % RENDERED[wire_format]
    assert new_body(reply) == body.replace(b'\\/"\n}', b'\\/"' + tools + b"\n}")


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES, ANTHROPIC])
async def test_the_callers_items_keep_their_bytes(wire_format: WireFormat) -> None:
    own = {CHAT: b'{ "type":"function", "function":{"name":"own"} }', RESPONSES: b'{"type":"web_search" }'}
    item = own.get(wire_format, b'{"name" : "own","input_schema":{"type":"object"}}')
    body = chat_body(wire_format).replace(b' "temperature"', b' "tools" : [ ' + item + b' ] , "temperature"')
    reply = await sent(body, wire_format)
    assert new_body(reply) == body.replace(b"[ " + item + b" ]", b"[" + item + b"," + RENDERED[wire_format] + b"]")


async def test_an_answer_that_changes_nothing_leaves_the_body() -> None:
    app = FakeApplication(adds=False)
    body = chat_body(CHAT, tools=[{"type": "function", "function": {"name": "own"}}], tool_choice="auto")
    assert untouched(await sent(body, stream=Stream(app)))
    assert untouched(await sent(chat_body(CHAT), stream=Stream(app)))
    assert untouched(await sent(chat_body(CHAT, tools=[]), stream=Stream(app)))


async def test_row_4_no_tools_and_no_choice_leave_together() -> None:
    app = FakeApplication(adds=False, keeps=False, choice=ToolChoice())
    body = chat_body(CHAT, tools=[{"type": "function", "function": {"name": "own"}}], tool_choice="required")
    found = json.loads(new_body(await sent(body, stream=Stream(app))))
    assert not {"tools", "tool_choice"} & set(found)


async def test_allowed_tools_come_back_in_the_formats_form() -> None:
    app = FakeApplication(choice=ToolChoice(ChoiceMode.ALLOWED, ("find",)))
    found = json.loads(new_body(await sent(chat_body(CHAT), stream=Stream(app))))
    entry = {"type": "function", "function": {"name": "find"}}
    assert found["tool_choice"] == {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [entry]}}
    found = json.loads(new_body(await sent(chat_body(RESPONSES), RESPONSES, Stream(app))))
    entry = {"type": "function", "name": "find"}
    assert found["tool_choice"] == {"type": "allowed_tools", "mode": "auto", "tools": [entry]}


async def test_the_turn_is_read_from_body_and_headers() -> None:
    stream = Stream(options=ExtProcOptions(route_header="x-route"))
    body = chat_body(ANTHROPIC, "weather?", tool_choice={"type": "any"})
    await sent(body, ANTHROPIC, stream, x_session_id="s1", x_toolbelay_turn_id="t1", x_route="eu")
    (request,) = stream.app.requests
    assert (request.session_id, request.turn_id, request.route, request.query) == ("s1", "t1", "eu", "weather?")
    assert (request.target.format, request.target.model) == (ANTHROPIC, "m")
    assert request.choice == ToolChoice(ChoiceMode.REQUIRED)


async def test_the_route_is_envoys_to_choose() -> None:
    stream = Stream()
    metadata = {"toolbelay": {"route": "eu", "capabilities": ["vision"]}}
    await sent(chat_body(CHAT), CHAT, stream, metadata=metadata, x_toolbelay_route="us")
    assert stream.app.requests[0].route == "eu"
    assert set(stream.app.requests[0].target.capabilities) == {"vision"}
    stream = Stream()
    await sent(chat_body(CHAT), CHAT, stream, x_toolbelay_route="us")
    assert stream.app.requests[0].route == ""


@pytest.mark.parametrize(
    ("wire_format", "body", "headers"),
    [
        (None, b'{"model":"m","messages":[]}', {}),
        (CHAT, b'{"model":"m","messages":[]}', {"method": "PUT"}),
        (CHAT, b'{"model":"m","messages":[]}', {"content_type": "text/plain"}),
        (CHAT, b'{"messages":[]}', {}),
        (CHAT, b'{"model":"m","input":"x"}', {}),
        (CHAT, b"hello", {}),
        (CHAT, b"", {}),
        (CHAT, b"\xff\xfe{}", {}),
        (CHAT, b'["model"]', {}),
        (CHAT, b'{"model":"m","messages":[', {}),
    ],
)
async def test_what_is_no_chat_request_is_untouched_without_a_token(
    wire_format: WireFormat | None, body: bytes, headers: dict[str, str]
) -> None:
    stream = Stream()
    reply = await sent(body, wire_format, stream, more=(), **headers)  # type: ignore[arg-type]
    assert untouched(reply)
    assert not stream.app.requests


async def test_other_requests_ask_envoy_for_no_body() -> None:
    (reply,) = await Stream().headers(None)
    assert reply.mode_override.request_body_mode == Mode.NONE
    (reply,) = await Stream().headers(CHAT)
    assert (reply.mode_override.request_body_mode, reply.mode_override.response_body_mode) == (Mode.BUFFERED, Mode.NONE)


async def test_the_token_header_is_removed() -> None:
    for wire_format in (None, CHAT):
        (reply,) = await Stream().headers(wire_format)
        assert list(reply.request_headers.response.header_mutation.remove_headers) == ["x-toolbelay-token"]


async def test_row_61_headers_are_read_from_either_field_in_any_case() -> None:
    verifier = FakeVerifier()
    stream = Stream(verifier=verifier)
    await stream.headers(more=(("X-Toolbelay-Token", JWT.encode()), ("X-Session-Id", b"s9")))
    await stream.body(chat_body(CHAT))
    assert stream.app.requests[0].session_id == "s9"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ((), 401),
        ((("x-toolbelay-token", b"wrong"),), 401),
        ((("x-toolbelay-token", b"\xff\xfe"),), 401),
        ((("x-toolbelay-token", JWT.encode()), ("x-toolbelay-token", b"other")), 401),
        ((("authorization", b"Bearer " + JWT.encode()),), 401),
        ((("x-toolbelay-token", JWT.encode()), ("x-session-id", b"\xff")), 400),
        ((("x-toolbelay-token", JWT.encode()), ("x-session-id", b"a"), ("x-session-id", b"b")), 400),
        ((("x-toolbelay-token", JWT.encode()), ("x-session-id", b"s" * 129)), 400),
    ],
)
async def test_a_request_without_a_good_token_or_id_ends_here(more: tuple[tuple[str, bytes], ...], status: int) -> None:
    for wire_format in (CHAT, ANTHROPIC):
        found, error = denied(await sent(chat_body(wire_format), wire_format, more=more))
        assert found == status
        assert ("type" in error) is (wire_format is ANTHROPIC)
        assert JWT not in json.dumps(error)


async def test_a_bearer_prefix_in_the_token_header_is_fine() -> None:
    new_body(await sent(chat_body(CHAT), more=(("x-toolbelay-token", b"Bearer " + JWT.encode()),)))


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (f"Bearer {JWT}", True),
        (f"bearer {JWT}", True),
        ("Bearer sk-abc", False),
        ("Basic eyJ.a.b", False),
        ("Bearer a.b.c", False),
    ],
)
async def test_a_providers_key_is_never_taken_for_ours(value: str, taken: bool) -> None:
    verifier = FakeVerifier()
    stream = Stream(options=ExtProcOptions(use_authorization=True), verifier=verifier)
    await sent(chat_body(CHAT), CHAT, stream, more=(("Authorization", value.encode()),))
    assert bool(verifier.seen) is taken


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"model":"m","messages":[],"tools":[],"tools":[]}', "tools"),
        (b'{"model":"m","messages":[],"Tools":[]}', "tools"),
        (b'{"model":"m","messages":[],"tools":{}}', "tools"),
        (b'{"model":"m","messages":[],"tools":[5]}', "offered_tools[0]"),
        (b'{"model":"m","messages":[],"tools":[{"name":"a","name":"b"}]}', "tools[0].name"),
        (b'{"model":"m","messages":[],"tool_choice":"always"}', "tool_choice"),
        (b'{"model":"m","messages":[],"x":NaN}', "x"),
        (b'{"model":"' + b"m" * 300 + b'","messages":[]}', "model"),
    ],
)
async def test_what_two_parsers_read_in_two_ways_ends_here(body: bytes, field: str) -> None:
    status, error = denied(await sent(body))
    assert status == 400
    assert error["error"]["code"] == "invalid_request"
    assert error["error"]["message"].startswith(field)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (ErrorReason.REQUIRED_TOOL_UNAVAILABLE, 403),
        (ErrorReason.SESSION_MISMATCH, 403),
        (ErrorReason.ROUTE_NOT_FOUND, 404),
        (ErrorReason.TOKEN_EXPIRED, 401),
    ],
)
async def test_row_60_denials_are_immediate_responses(reason: ErrorReason, status: int) -> None:
    app = FakeApplication(error=ToolbelayError(reason, "no"))
    for wire_format in (CHAT, RESPONSES, ANTHROPIC):
        found, error = denied(await sent(chat_body(wire_format), wire_format, Stream(app)))
        assert found == status
        assert reason.value.lower() in json.dumps(error).lower()


@pytest.mark.parametrize(
    ("app", "code"),
    [
        (FakeApplication(error=ToolbelayError(ErrorReason.AUTHORITY_UNVERIFIABLE, "no")), grpc.StatusCode.UNAVAILABLE),
        (FakeApplication(error=ToolbelayError(ErrorReason.OVERLOADED, "no")), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (FakeApplication(delay=60), grpc.StatusCode.DEADLINE_EXCEEDED),
    ],
)
async def test_row_60_outages_are_grpc_errors(app: FakeApplication, code: grpc.StatusCode) -> None:
    with pytest.raises(OutageError) as caught:
        await sent(chat_body(CHAT), stream=Stream(app, ExtProcOptions(deadline=0.05)))
    assert caught.value.code is code


async def test_the_work_at_once_is_bounded() -> None:
    stream = Stream(FakeApplication(delay=60), ExtProcOptions(max_concurrent=1, deadline=30))
    await stream.headers()
    first = asyncio.ensure_future(stream.body(chat_body(CHAT)))
    await wait_until_async(lambda: bool(stream.app.requests))
    other = Stream(stream.app)
    other.exchange = Exchange(stream.exchange._processor)
    await other.headers()
    with pytest.raises(OutageError) as caught:
        await other.body(chat_body(CHAT))
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    stream.app.delay = 0
    third = Stream(stream.app)
    third.exchange = Exchange(stream.exchange._processor)
    await third.headers()
    new_body(*await third.body(chat_body(CHAT)))


async def test_row_60_an_error_inside_is_an_outage_without_its_text() -> None:
    with pytest.raises(OutageError) as caught:
        await sent(chat_body(CHAT), stream=Stream(FakeApplication(error=RuntimeError("secret"))))
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert "secret" not in caught.value.message


async def test_row_62_a_compressed_body_goes_on_in_its_coding() -> None:
    body = chat_body(CHAT)
    plain = new_body(await sent(body))
    assert gzip.decompress(new_body(await sent(gzip.compress(body), content_encoding="gzip"))) == plain


@pytest.mark.parametrize(("coding", "body"), [("gzip", chat_body(CHAT)), ("compress", b"x"), ("gzip, br", b"x")])
async def test_row_62_a_coding_that_cannot_be_read(coding: str, body: bytes) -> None:
    assert untouched(await sent(body, content_encoding=coding))
    stream = Stream(options=ExtProcOptions(on_unknown_encoding="reject"))
    status, error = denied(await sent(body, CHAT, stream, content_encoding=coding))
    assert status == 415
    assert "find" not in json.dumps(error)


async def test_a_byte_order_mark_stays() -> None:
    body = b"\xef\xbb\xbf" + chat_body(CHAT)
    assert new_body(await sent(body)) == b"\xef\xbb\xbf" + new_body(await sent(chat_body(CHAT)))


async def test_a_breakpoint_at_the_stable_prefix_where_envoys_route_wants_one() -> None:
    app = FakeApplication(stable_prefix=1)
    own = {"name": "own", "input_schema": {"type": "object"}}
    body = chat_body(ANTHROPIC, tools=[own])
    metadata = {"toolbelay": {"cache_breakpoint": True}}
    tools = json.loads(new_body(await sent(body, ANTHROPIC, Stream(app), metadata=metadata)))["tools"]
    assert ["cache_control" in item for item in tools] == [True, False]
    tools = json.loads(new_body(await sent(body, ANTHROPIC, Stream(app))))["tools"]
    assert not any("cache_control" in item for item in tools)
    marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    full = chat_body(ANTHROPIC, tools=[own], system=[marked] * 4)
    tools = json.loads(new_body(await sent(full, ANTHROPIC, Stream(app), metadata=metadata)))["tools"]
    assert not any("cache_control" in item for item in tools)


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES])
async def test_a_breakpoint_in_openais_shape_moves_too(wire_format: WireFormat) -> None:
    own: dict[str, Any] = {"type": "function", "name": "own", "cache_control": {"type": "ephemeral"}}
    if wire_format is CHAT:
        own = {"type": "function", "function": {"name": "own"}, "cache_control": {"type": "ephemeral"}}
    tools = json.loads(new_body(await sent(chat_body(wire_format, tools=[own]), wire_format)))["tools"]
    assert ["cache_control" in item for item in tools] == [False, True]


async def test_the_callers_breakpoint_moves_to_the_last_tool() -> None:
    own = {"name": "own", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}
    tools = json.loads(new_body(await sent(chat_body(ANTHROPIC, tools=[own]), ANTHROPIC)))["tools"]
    assert ["cache_control" in item for item in tools] == [False, True]


async def test_functions_of_the_older_form_are_refused() -> None:
    """They would go on unseen by policy, and OpenAI refuses them beside tools."""
    status, error = denied(await sent(chat_body(CHAT, functions=[{"name": "drop"}])))
    assert (status, error["error"]["code"]) == (400, "invalid_request")
    assert "functions" in error["error"]["message"]
    new_body(await sent(chat_body(CHAT, functions=[])))


@pytest.mark.parametrize(
    ("own", "more", "removed"),
    [
        (True, (), ["x-toolbelay-token", "authorization"]),
        (True, (("x-toolbelay-token", JWT.encode()),), ["x-toolbelay-token"]),
        (False, (), ["x-toolbelay-token"]),
    ],
)
async def test_our_token_never_reaches_the_upstream(
    own: bool, more: tuple[tuple[str, bytes], ...], removed: list[str]
) -> None:
    stream = Stream(options=ExtProcOptions(use_authorization=own))
    (reply,) = await stream.headers(more=more, authorization=f"Bearer {JWT}")
    assert list(reply.request_headers.response.header_mutation.remove_headers) == removed
    stream = Stream(options=ExtProcOptions(use_authorization=own))
    (reply,) = await stream.headers(more=more, authorization="Bearer sk-a-providers-key")
    assert list(reply.request_headers.response.header_mutation.remove_headers) == ["x-toolbelay-token"]


async def test_a_cancelled_stream_is_cancelled() -> None:
    stream = Stream(FakeApplication(delay=60), ExtProcOptions(deadline=30))
    task = asyncio.ensure_future(sent(chat_body(CHAT), stream=stream))
    await wait_until_async(lambda: bool(stream.app.requests))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
