"""The model's answer through the processor: the receipt, and tool calls that are checked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode as Mode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tests.support.ext_proc import PRINCIPAL, FakeApplication, chat_body
from tests.support.ext_proc_stream import (
    ANTHROPIC,
    CHAT,
    RESPONSES,
    Stream,
    denied,
    denied_at_all,
    sent,
)
from toolbelay.catalog.formats import WireFormat
from toolbelay.ext_proc.faults import DenialError
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.ext_proc.processor import Turn
from toolbelay.planner.calls import Denial


async def test_the_receipt_is_a_response_header_by_setting() -> None:
    for wanted in (True, False):
        stream = Stream(options=ExtProcOptions(receipt_header=wanted))
        await sent(chat_body(CHAT), stream=stream)
        headers, _ = await stream.response(b"{}")
        found = {
            h.header.key: h.header.raw_value for h in headers.response_headers.response.header_mutation.set_headers
        }
        assert ("x-toolbelay-receipt" in found) is wanted
        if wanted:
            assert found["x-toolbelay-receipt"].startswith(b"outcome=SEEDED;turn=1;revision=1;generation=7;")


CALLS: dict[WireFormat, Callable[..., dict[str, Any]]] = {
    CHAT: lambda *names: {
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {
                    "content": None,
                    "tool_calls": [{"type": "function", "function": {"name": n}} for n in names],
                },
            }
        ]
    },
    RESPONSES: lambda *names: {"output": [{"type": "function_call", "call_id": n, "name": n} for n in names]},
    ANTHROPIC: lambda *names: {
        "stop_reason": "tool_use",
        "content": [{"type": "tool_use", "id": n, "name": n, "input": {}} for n in names],
    },
}


async def answered(wire_format: WireFormat, response: Any, app: FakeApplication, **headers: str) -> Any:
    stream = Stream(app, ExtProcOptions(authorize_calls=True), response_mode=Mode.BUFFERED)
    await sent(chat_body(wire_format), wire_format, stream, x_session_id="s1")
    first, reply = await stream.response(json.dumps(response).encode(), **headers)
    assert not first.HasField("mode_override")
    return reply


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES, ANTHROPIC])
async def test_denied_calls_never_reach_the_client(wire_format: WireFormat) -> None:
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    reply = await answered(wire_format, CALLS[wire_format]("find", "drop", "find"), app)
    assert (app.authorized[0].names, app.authorized[0].session_id) == (("find", "drop"), "s1")
    mutation = reply.response_body.response.body_mutation
    left = json.loads(mutation.body)
    assert json.dumps(left).count('"name": "find"') == 2
    assert '"name": "drop"' not in json.dumps(left)
    assert "NOT_AUTHORIZED" in json.dumps(left)
    (length,) = reply.response_body.response.header_mutation.set_headers
    assert length.header.raw_value == str(len(mutation.body)).encode()


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES, ANTHROPIC])
async def test_an_answer_of_denied_calls_only_is_an_error_in_the_callers_format(wire_format: WireFormat) -> None:
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    status, error = denied(await answered(wire_format, CALLS[wire_format]("drop"), app))
    assert status == 403
    assert "NOT_AUTHORIZED" in json.dumps(error)
    assert ("type" in error) is (wire_format is ANTHROPIC)


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES, ANTHROPIC])
async def test_text_beside_a_denied_call_stays(wire_format: WireFormat) -> None:
    response: Any = CALLS[wire_format]("drop")
    if wire_format is CHAT:
        response["choices"][0]["message"]["content"] = "Hello."
    elif wire_format is RESPONSES:
        response["output"].append({"type": "message", "content": [{"type": "output_text", "text": "Hello."}]})
    else:
        response["content"].insert(0, {"type": "text", "text": "Hello."})
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    reply = await answered(wire_format, response, app)
    left = json.loads(reply.response_body.response.body_mutation.body)
    assert "Hello." in json.dumps(left)
    assert "tool_use" not in json.dumps(left)
    assert "tool_calls" not in json.dumps(left)


async def test_parts_of_text_beside_a_denied_call_stay() -> None:
    response: Any = CALLS[CHAT]("drop")
    response["choices"][0]["message"]["content"] = [{"type": "text", "text": "Hello."}]
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    reply = await answered(CHAT, response, app)
    first, note = json.loads(reply.response_body.response.body_mutation.body)["choices"][0]["message"]["content"]
    assert first == {"type": "text", "text": "Hello."}
    assert "NOT_AUTHORIZED" in note["text"]


@pytest.mark.parametrize("response", [CALLS[CHAT]("find"), {"choices": []}, {}, [], "x", None])
async def test_an_answer_without_denied_calls_passes_untouched(response: Any) -> None:
    reply = await answered(CHAT, response, FakeApplication())
    assert reply == pb.ProcessingResponse(response_body=pb.BodyResponse(response=pb.CommonResponse()))


async def test_streaming_answers_are_not_held_back() -> None:
    app = FakeApplication(denied={"find": Denial.NOT_AUTHORIZED})
    stream = Stream(app, ExtProcOptions(authorize_calls=True), response_mode=Mode.BUFFERED)
    await sent(chat_body(CHAT), stream=stream)
    first, reply = await stream.response(b"data: {}\n\n", content_type="text/event-stream")
    assert first.mode_override.response_body_mode == Mode.NONE
    assert reply == pb.ProcessingResponse(response_body=pb.BodyResponse(response=pb.CommonResponse()))
    assert not stream.app.authorized


async def test_compressed_answers_are_read_too() -> None:
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    stream = Stream(app, ExtProcOptions(authorize_calls=True), response_mode=Mode.BUFFERED)
    await sent(chat_body(CHAT), stream=stream)
    body = gzip.compress(json.dumps(CALLS[CHAT]("find", "drop")).encode())
    _, reply = await stream.response(body, content_encoding="gzip")
    assert b'"drop"' not in gzip.decompress(reply.response_body.response.body_mutation.body)


@pytest.mark.parametrize(("coding", "limit"), [("gzip", 10_000), ("compress", 10_000), ("", 10)])
async def test_an_answer_that_cannot_be_read_does_not_pass(coding: str, limit: int) -> None:
    options = ExtProcOptions(authorize_calls=True, max_body_bytes=limit)
    turn = Turn(PRINCIPAL, CHAT, "", "s1", "m", frozenset(), "")
    with pytest.raises(DenialError) as caught:
        await FakeApplication().processor(options).check(turn, coding, json.dumps(CALLS[CHAT]("find")).encode())
    assert caught.value.status == 502


HUGE = b'{"content":[{"type":"tool_use","name":"drop","input":{"n":' + b"9" * 5000 + b"}}]}"


@pytest.mark.parametrize(
    "answer", [HUGE, b'{"content":[{"type":"tool_use","name":"drop","x":"\xff"}]}', b"[" * 9999, b"{"]
)
async def test_an_answer_that_a_more_lenient_client_could_read_does_not_pass(answer: bytes) -> None:
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    stream = Stream(app, ExtProcOptions(authorize_calls=True), response_mode=Mode.BUFFERED)
    await sent(chat_body(ANTHROPIC), ANTHROPIC, stream)
    _, reply = await stream.response(answer)
    assert denied(reply)[0] == 502


async def test_an_error_of_the_model_api_stays_as_it_came() -> None:
    stream = Stream(options=ExtProcOptions(authorize_calls=True), response_mode=Mode.BUFFERED)
    await sent(chat_body(CHAT), stream=stream)
    first, reply = await stream.response(b"<html>", **{":status": "502"})
    assert first.mode_override.response_body_mode == Mode.NONE
    assert not denied_at_all(reply)


async def test_checking_calls_needs_a_mode_that_fails_closed() -> None:
    for mode in (Mode.NONE, Mode.STREAMED, Mode.FULL_DUPLEX_STREAMED):
        (reply,) = await Stream(options=ExtProcOptions(authorize_calls=True), response_mode=mode).headers()
        assert "response_body_mode" in denied(reply)[1]["error"]["message"]


async def test_answers_are_not_buffered_where_nothing_is_checked() -> None:
    stream = Stream(response_mode=Mode.BUFFERED)
    await sent(chat_body(CHAT), stream=stream)
    first, _ = await stream.response(b"{}")
    assert first.mode_override.response_body_mode == Mode.NONE
