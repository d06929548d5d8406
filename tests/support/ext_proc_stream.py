"""Envoy's side of one ext_proc stream, message by message, and what replies mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode as Mode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tests.support.ext_proc import JWT, PATHS, FakeApplication, FakeVerifier
from toolbelay.catalog.formats import WireFormat
from toolbelay.ext_proc.exchange import Exchange
from toolbelay.ext_proc.options import ExtProcOptions

CHAT, RESPONSES, ANTHROPIC = WireFormat.OPENAI_CHAT, WireFormat.OPENAI_RESPONSES, WireFormat.ANTHROPIC_MESSAGES
RENDERED = {
    CHAT: b'{"type":"function","function":{"name":"find","description":"Finds \\u00e9.","parameters":{"type":"object"}}}',
    RESPONSES: b'{"type":"function","name":"find","description":"Finds \\u00e9.","parameters":{"type":"object"}}',
    ANTHROPIC: b'{"name":"find","description":"Finds \\u00e9.","input_schema":{"type":"object"}}',
}


class Stream:
    """Envoy's side of one stream."""

    def __init__(
        self,
        app: FakeApplication | None = None,
        options: ExtProcOptions | None = None,
        *,
        mode: int = Mode.BUFFERED,
        response_mode: int = Mode.NONE,
        verifier: FakeVerifier | None = None,
    ) -> None:
        self.app = app or FakeApplication()
        options = options or ExtProcOptions(allow_streamed=True)
        self.exchange = Exchange(self.app.processor(options, verifier))
        self.config = pb.ProtocolConfiguration(request_body_mode=mode, response_body_mode=response_mode)

    async def headers(
        self,
        wire_format: WireFormat | None = CHAT,
        *,
        method: str = "POST",
        end: bool = False,
        metadata: Mapping[str, Any] | None = None,
        more: tuple[tuple[str, bytes], ...] = (("x-toolbelay-token", JWT.encode()),),
        **given: str,
    ) -> list[Any]:
        pairs = {":method": method, ":path": PATHS[wire_format] if wire_format else "/v1/models"}
        pairs["content-type"] = "application/json"
        pairs |= {key.replace("_", "-"): value for key, value in given.items()}
        listed = [base_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in pairs.items()]
        listed += [base_pb2.HeaderValue(key=key, raw_value=value) for key, value in more]
        headers = pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=listed), end_of_stream=end)
        message = pb.ProcessingRequest(request_headers=headers, protocol_config=self.config)
        for namespace, value in (metadata or {}).items():
            message.metadata_context.filter_metadata[namespace].update(value)
        return await self.exchange.answer(message)

    async def body(self, body: bytes, *, end: bool = True) -> list[Any]:
        return await self.exchange.answer(pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=end)))

    async def trailers(self) -> list[Any]:
        return await self.exchange.answer(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()))

    async def response(self, body: bytes, *, content_type: str = "application/json", **given: str) -> list[Any]:
        pairs = {":status": "200", "content-type": content_type, **{k.replace("_", "-"): v for k, v in given.items()}}
        listed = [base_pb2.HeaderValue(key=key, value=value) for key, value in pairs.items()]
        message = pb.ProcessingRequest(response_headers=pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=listed)))
        first = await self.exchange.answer(message)
        message = pb.ProcessingRequest(response_body=pb.HttpBody(body=body, end_of_stream=True))
        return [*first, *await self.exchange.answer(message)]


async def sent(body: bytes, wire_format: WireFormat = CHAT, stream: Stream | None = None, **headers: Any) -> Any:
    """The reply to a whole body in BUFFERED mode."""
    stream = stream or Stream()
    await stream.headers(wire_format, **headers)
    (reply,) = await stream.body(body)
    return reply


def new_body(reply: Any) -> bytes:
    common = reply.request_body.response
    assert common.body_mutation.WhichOneof("mutation") == "body", reply
    lengths = [h.header.raw_value for h in common.header_mutation.set_headers if h.header.key == "content-length"]
    assert lengths in ([], [str(len(common.body_mutation.body)).encode()])
    body: bytes = common.body_mutation.body
    return body


def untouched(reply: Any) -> bool:
    return bool(reply == pb.ProcessingResponse(request_body=pb.BodyResponse(response=pb.CommonResponse())))


def denied_at_all(*replies: Any) -> bool:
    return any(reply.HasField("immediate_response") for reply in replies)


def denied(reply: Any) -> tuple[int, dict[str, Any]]:
    assert reply.HasField("immediate_response"), reply
    return reply.immediate_response.status.code, json.loads(reply.immediate_response.body)
