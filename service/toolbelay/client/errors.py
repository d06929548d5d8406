"""What a failed call says."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

OVERLOADED = "OVERLOADED"
_OUTAGES = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
_DETAILS = "grpc-status-details-bin"


class ToolbelayCallError(Exception):
    """A call that failed.

    `reason`: a name of the API's ErrorReason without its prefix, "" where the service gave none.
    `field`: the request's field to blame, "" where none is. `is_outage`: the service could not answer,
    as against a refusal, which trying again or going on without it would only hide.
    """

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", field: str = "") -> None:
        super().__init__(f"{reason or code.name}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.field = field

    @property
    def is_outage(self) -> bool:
        # RESOURCE_EXHAUSTED is also said of a message over the limit, and nobody may get past a policy by size.
        return self.code in _OUTAGES or self.reason == OVERLOADED


def from_rpc(error: grpc.RpcError) -> ToolbelayCallError:
    """The error of a failed RPC, with what its rich status says."""
    reason = field = ""
    trailers: Iterable[Any] = error.trailing_metadata() or ()
    for key, value in trailers:
        if key == _DETAILS:
            with suppress(DecodeError):  # a proxy in between may write what it likes
                reason, field = _details(status_pb2.Status.FromString(value))
    return ToolbelayCallError(error.code(), error.details() or "", reason, field)


def _details(status: status_pb2.Status) -> tuple[str, str]:
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    reason = field = ""
    for detail in status.details:
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(request) and request.field_violations:
            field = request.field_violations[0].field
    return reason, field
