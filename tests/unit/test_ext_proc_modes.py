"""Bodies in every mode of Envoy: chunks, trailers, limits, and modes that are refused."""

from __future__ import annotations

import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode as Mode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tests.support.ext_proc import FakeApplication, chat_body
from tests.support.ext_proc_stream import (
    CHAT,
    Stream,
    denied,
    denied_at_all,
    new_body,
    sent,
    untouched,
)
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.ext_proc.options import ExtProcOptions, Refusal


@pytest.mark.parametrize("error", [ToolbelayError(ErrorReason.NOT_READY, "no"), RuntimeError("secret")])
async def test_row_60_a_body_of_which_a_part_is_withheld_never_fails_open(error: Exception) -> None:
    app = FakeApplication(error=error)
    for mode in (Mode.STREAMED, Mode.FULL_DUPLEX_STREAMED):
        stream = Stream(app, mode=mode)
        await stream.headers()
        await stream.body(chat_body(CHAT)[:20], end=False)
        (reply,) = await stream.body(chat_body(CHAT)[20:])
        assert denied(reply)[0] == 503
        assert b"secret" not in reply.immediate_response.body


COSTLY = {  # 3 to 7 MB that would take seconds to read, during which nobody else is answered
    "numbers": b'{"model":"m","messages":[' + b"1," * 3_000_000 + b"1]}",
    "arrays": b'{"model":"m","messages":[' + b"[]," * 1_000_000 + b"1]}",
    "members": b"{" + b'"k":1,' * 600_000 + b'"model":"m","messages":[]}',
    "brackets": b'{"model":"m","messages":[' + b"[" * 4_000_000,
}


@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY.keys())
@pytest.mark.parametrize("reject", [False, True])
async def test_a_body_of_too_many_values_counts_as_too_large(body: bytes, reject: bool) -> None:
    stream = Stream(options=ExtProcOptions(on_large_body="reject" if reject else "pass"))
    reply = await sent(body, stream=stream, more=())
    if reject:
        assert denied(reply)[0] == 413
    else:
        assert untouched(reply)


async def test_punctuation_in_text_is_no_value() -> None:
    stream = Stream()
    new_body(await sent(chat_body(CHAT, ',[{"\\' * 500_000), stream=stream))
    assert len(stream.app.requests) == 1


async def test_members_and_tools_are_counted_before_they_are_read() -> None:
    members = b"{" + b",".join(b'"k%d":1' % n for n in range(2000)) + b',"model":"m","messages":[]}'
    assert denied(await sent(members))[0] == 400
    assert denied(await sent(chat_body(CHAT, tools=[{}] * 513)))[0] == 400


@pytest.mark.parametrize("mode", [Mode.NONE, Mode.GRPC, Mode.STREAMED])
async def test_a_mode_that_promises_nothing_is_refused_for_chat_only(mode: int) -> None:
    """No outage, which Envoy could fail open on: the answer says what to set."""
    (reply,) = await Stream(options=ExtProcOptions(), mode=mode).headers()
    status, error = denied(reply)
    assert (status, error["error"]["code"]) == (503, "mode_refused")
    assert "request_body_mode" in error["error"]["message"]
    assert not denied_at_all(*await Stream(options=ExtProcOptions(), mode=mode).headers(None))


async def test_bodies_without_their_headers_are_refused() -> None:
    """`request_header_mode: SKIP` shows no token, `response_header_mode: SKIP` no coding."""
    (reply,) = await Stream().body(chat_body(CHAT))
    assert denied(reply)[1]["error"]["code"] == "mode_refused"
    stream = Stream(options=ExtProcOptions(authorize_calls=True), response_mode=Mode.BUFFERED)
    await sent(chat_body(CHAT), stream=stream)
    message = pb.ProcessingRequest(response_body=pb.HttpBody(body=b"{}", end_of_stream=True))
    (reply,) = await stream.exchange.answer(message)
    assert denied(reply)[1]["error"]["code"] == "mode_refused"


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_streamed_chunks_are_withheld_until_the_object_closes(size: int) -> None:
    body = chat_body(CHAT, "é" * 30, tools=[{"type": "function", "function": {"name": "own"}}])
    stream = Stream(mode=Mode.STREAMED)
    await stream.headers()
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    replies = [await stream.body(chunk, end=False) for chunk in chunks] + [await stream.body(b"", end=True)]
    assert all(len(reply) == 1 for reply in replies)
    out = b""
    for (reply,), chunk in zip(replies, [*chunks, b""], strict=True):
        mutation = reply.request_body.response.body_mutation
        kind = mutation.WhichOneof("mutation")
        out += chunk if kind is None else mutation.body
    assert out == new_body(await sent(body))
    assert len(stream.app.requests) == 1


@pytest.mark.parametrize("trailers", [False, True])
async def test_full_duplex_answers_at_the_end(trailers: bool) -> None:
    body = chat_body(CHAT)
    stream = Stream(mode=Mode.FULL_DUPLEX_STREAMED)
    await stream.headers()
    assert await stream.body(body[:30], end=False) == []
    replies = await stream.body(body[30:], end=not trailers)
    if trailers:
        assert replies == []
        *replies, last = await stream.trailers()
        assert last.HasField("request_trailers")
    streamed = [reply.request_body.response.body_mutation.streamed_response for reply in replies]
    assert b"".join(piece.body for piece in streamed) == new_body(await sent(body))
    assert [piece.end_of_stream for piece in streamed][-1] is not trailers


async def test_full_duplex_gives_everything_else_back() -> None:
    stream = Stream(mode=Mode.FULL_DUPLEX_STREAMED)
    await stream.headers(None)
    (reply,) = await stream.body(b"abc", end=False)
    assert reply.request_body.response.body_mutation.streamed_response.body == b"abc"
    stream = Stream(mode=Mode.FULL_DUPLEX_STREAMED)
    await stream.headers()
    await stream.body(b"hel", end=False)
    (reply,) = await stream.body(b"lo", end=True)
    assert reply.request_body.response.body_mutation.streamed_response.body == b"hello"


async def test_trailers_behind_a_streamed_body() -> None:
    stream = Stream(mode=Mode.STREAMED)
    await stream.headers()
    await stream.body(chat_body(CHAT), end=False)
    (reply,) = await stream.trailers()
    assert reply.HasField("request_trailers")
    stream = Stream(mode=Mode.STREAMED)
    await stream.headers()
    await stream.body(b'{"model":', end=False)
    (reply,) = await stream.trailers()
    assert denied(reply)[0] == 400


@pytest.mark.parametrize("mode", [Mode.BUFFERED, Mode.BUFFERED_PARTIAL, Mode.STREAMED, Mode.FULL_DUPLEX_STREAMED])
@pytest.mark.parametrize("reject", [False, True])
async def test_row_59_a_body_over_the_limit(mode: int, reject: bool) -> None:
    body = chat_body(CHAT, "x" * 2000)
    for limit, over in ((len(body), False), (len(body) - 1, True)):
        refusal: Refusal = "reject" if reject else "pass"
        options = ExtProcOptions(max_body_bytes=limit, on_large_body=refusal, allow_streamed=True)
        stream = Stream(options=options, mode=mode)
        await stream.headers()
        if mode in (Mode.STREAMED, Mode.FULL_DUPLEX_STREAMED):
            await stream.body(body[:100], end=False)
            replies = await stream.body(body[100:])
        else:
            replies = await stream.body(body)
        assert len(stream.app.requests) == (not over)
        if over and reject:
            assert denied(replies[0])[0] == 413
        elif over and mode in (Mode.BUFFERED, Mode.BUFFERED_PARTIAL):
            assert untouched(replies[0])
        elif over:
            mutation = replies[0].request_body.response.body_mutation
            assert (mutation.body or mutation.streamed_response.body) == body


@pytest.mark.parametrize("reject", [False, True])
async def test_a_part_of_a_body_counts_as_too_large(reject: bool) -> None:
    options = ExtProcOptions(on_large_body="reject" if reject else "pass")
    stream = Stream(options=options, mode=Mode.BUFFERED_PARTIAL)
    await stream.headers()
    (reply,) = await stream.body(chat_body(CHAT)[:40], end=False)
    assert denied(reply)[0] == 413 if reject else untouched(reply)


async def test_a_whole_body_in_front_of_trailers() -> None:
    for mode in (Mode.BUFFERED, Mode.BUFFERED_PARTIAL):
        stream = Stream(mode=mode)
        await stream.headers()
        (reply,) = await stream.body(chat_body(CHAT), end=False)
        new_body(reply)
        (reply,) = await stream.trailers()
        assert reply.HasField("request_trailers")
