"""From a domain error to a gRPC status with google.rpc details, bounded so that it always arrives.

A status travels in metadata, which clients refuse at random from 8 KiB on, so every part of it is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from toolbelay.errors import ErrorReason, ToolbelayError

DOMAIN: Final = "toolbelay"
MAX_MESSAGE: Final = 512  # bytes of UTF-8; percent-encoding may triple it on the wire
MAX_FIELD: Final = 128
MAX_VALUE: Final = 128
MAX_METADATA: Final = 6  # entries of ErrorInfo.metadata
MAX_VIOLATIONS_BYTES: Final = 1536

_R = ErrorReason
_C = grpc.StatusCode
CODES: Final = MappingProxyType(
    {
        _R.INVALID_REQUEST: _C.INVALID_ARGUMENT,
        _R.TOKEN_MISSING: _C.UNAUTHENTICATED,
        _R.TOKEN_INVALID: _C.UNAUTHENTICATED,
        _R.TOKEN_EXPIRED: _C.UNAUTHENTICATED,
        _R.SESSION_MISMATCH: _C.PERMISSION_DENIED,
        _R.ADMIN_ROLE_REQUIRED: _C.PERMISSION_DENIED,
        _R.ROUTE_NOT_FOUND: _C.NOT_FOUND,
        _R.REQUIRED_TOOL_UNAVAILABLE: _C.FAILED_PRECONDITION,
        _R.REQUIRED_TOOLS_EXCEED_CAPACITY: _C.FAILED_PRECONDITION,
        _R.GENERATION_NOT_REACHED: _C.FAILED_PRECONDITION,
        _R.GENERATION_CONFLICT: _C.FAILED_PRECONDITION,
        _R.OVERLOADED: _C.RESOURCE_EXHAUSTED,
        _R.AUTHORITY_UNVERIFIABLE: _C.UNAVAILABLE,
        _R.PROPAGATION_UNCONFIRMED: _C.UNAVAILABLE,
        _R.NOT_READY: _C.UNAVAILABLE,
        _R.STATE_UNAVAILABLE: _C.UNAVAILABLE,
    }
)


def status_of(error: ToolbelayError) -> status_pb2.Status:
    """The rich status of a domain error: ErrorInfo always, BadRequest where fields are to blame."""
    message = clipped(error.message, MAX_MESSAGE)
    details: list[Message] = [_error_info(error)]
    violations = _violations(error, message)
    if violations:
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    return _status(CODES[error.reason], message, details)


def internal_status(incident: str) -> status_pb2.Status:
    """What the caller learns of an unexpected fault: an id to find it in the log by, nothing else."""
    return _status(grpc.StatusCode.INTERNAL, f"internal error; incident {incident}", [])


def answer_too_large(size: int, limit: int) -> status_pb2.Status:
    """The answer is over the wire's limit; says what helps."""
    advice = f"the answer is {size} bytes, the limit is {limit}; use omit_definitions or known_fingerprints"
    return _status(grpc.StatusCode.RESOURCE_EXHAUSTED, advice, [])


def clipped(text: str, limit: int) -> str:
    """`text` as valid UTF-8 of at most `limit` bytes."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    return raw[: limit - 3].decode("utf-8", "ignore") + "…"


def _status(code: grpc.StatusCode, message: str, details: Sequence[Message]) -> status_pb2.Status:
    packed = []
    for detail in details:
        item = any_pb2.Any()
        item.Pack(detail)
        packed.append(item)
    return status_pb2.Status(code=code.value[0], message=message, details=packed)


def _error_info(error: ToolbelayError) -> error_details_pb2.ErrorInfo:
    metadata = {
        clipped(key, MAX_FIELD): clipped(value, MAX_VALUE) for key, value in list(error.metadata.items())[:MAX_METADATA]
    }
    return error_details_pb2.ErrorInfo(reason=error.reason.value, domain=DOMAIN, metadata=metadata)


def _violations(error: ToolbelayError, message: str) -> list[error_details_pb2.BadRequest.FieldViolation]:
    """One violation per fault, as many as fit."""
    found: list[error_details_pb2.BadRequest.FieldViolation] = []
    if error.field is not None:
        found.append(_violation(error.field, message))
    room = MAX_VIOLATIONS_BYTES
    for fault in getattr(error, "faults", ()):  # a refused apply lists all of its faults
        item = _violation(fault.where, f"{fault.subject}: {fault.message}" if fault.subject else fault.message)
        room -= item.ByteSize() + 4
        if room < 0:
            break
        found.append(item)
    return found


def _violation(field: str, description: str) -> error_details_pb2.BadRequest.FieldViolation:
    return error_details_pb2.BadRequest.FieldViolation(
        field=clipped(field, MAX_FIELD), description=clipped(description, MAX_MESSAGE)
    )
