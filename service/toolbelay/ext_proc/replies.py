"""The ext_proc messages that go back to Envoy. Header values are written to `raw_value` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.type.v3 import http_status_pb2

from toolbelay.catalog.formats import WireFormat
from toolbelay.ext_proc.faults import DenialError, denial_body

Mode = processing_mode_pb2.ProcessingMode
_PIECE = 1024 * 1024  # bytes of one streamed message


def request_headers(*, remove: Iterable[str], mode: Any = None) -> Any:
    """Go on, without some headers. `mode`: the bodies and trailers that are wanted; `None` = as configured.

    The response's headers still come: Envoy would close the stream otherwise, and then wait on it when its own
    buffer limit answers 413 at the same moment.
    """
    common = pb.CommonResponse(header_mutation=pb.HeaderMutation(remove_headers=list(remove)))
    reply = pb.ProcessingResponse(request_headers=pb.HeadersResponse(response=common))
    if mode is not None:
        reply.mode_override.CopyFrom(mode)
        reply.mode_override.response_header_mode = Mode.SEND
    return reply


def response_headers(*, values: dict[str, str], body_mode: int | None) -> Any:
    """Go on, with headers set. `body_mode`: how the response's body is wanted; `None` = as configured."""
    common = pb.CommonResponse(header_mutation=pb.HeaderMutation(set_headers=_options(values)))
    reply = pb.ProcessingResponse(response_headers=pb.HeadersResponse(response=common))
    if body_mode is not None:
        reply.mode_override.CopyFrom(Mode(response_header_mode=Mode.SEND, response_body_mode=body_mode))
    return reply


def whole_body(body: bytes | None, *, response: bool = False, set_length: bool = True) -> Any:
    """The answer to a body message: go on with it, or with `body` in its place."""
    common = pb.CommonResponse()
    if body is not None:
        common.body_mutation.body = body
        if set_length:
            # Without it, Envoy answers 500 to a body whose length changed.
            common.header_mutation.set_headers.extend(_options({"content-length": str(len(body))}))
    reply = pb.BodyResponse(response=common)
    return pb.ProcessingResponse(response_body=reply) if response else pb.ProcessingResponse(request_body=reply)


def withheld(*, response: bool = False) -> Any:
    """STREAMED mode: nothing of this chunk goes on yet."""
    reply = pb.BodyResponse(response=pb.CommonResponse(body_mutation=pb.BodyMutation(clear_body=True)))
    return pb.ProcessingResponse(response_body=reply) if response else pb.ProcessingResponse(request_body=reply)


def streamed(body: bytes, *, end: bool, response: bool = False) -> list[Any]:
    """FULL_DUPLEX_STREAMED mode: bytes that go on, in pieces."""
    pieces = [body[at : at + _PIECE] for at in range(0, len(body), _PIECE)] or [b""]
    replies = []
    for number, piece in enumerate(pieces, start=1):
        last = end and number == len(pieces)
        mutation = pb.BodyMutation(streamed_response=pb.StreamedBodyResponse(body=piece, end_of_stream=last))
        reply = pb.BodyResponse(response=pb.CommonResponse(body_mutation=mutation))
        replies.append(
            pb.ProcessingResponse(response_body=reply) if response else pb.ProcessingResponse(request_body=reply)
        )
    return replies


def trailers(*, response: bool = False) -> Any:
    """Go on."""
    if response:
        return pb.ProcessingResponse(response_trailers=pb.TrailersResponse())
    return pb.ProcessingResponse(request_trailers=pb.TrailersResponse())


def immediate(denial: DenialError, wire_format: WireFormat | None) -> Any:
    """The response that the client gets instead."""
    return pb.ProcessingResponse(
        immediate_response=pb.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=denial.status),
            headers=pb.HeaderMutation(set_headers=_options({"content-type": "application/json"})),
            body=denial_body(denial, wire_format),
            details=f"toolbelay_{denial.code.lower()}",
        )
    )


def _options(values: dict[str, str]) -> list[Any]:
    overwrite = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return [
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=key, raw_value=value.encode()), append_action=overwrite
        )
        for key, value in values.items()
    ]
