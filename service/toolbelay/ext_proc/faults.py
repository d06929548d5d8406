"""The two ways in which a request ends early: a denial that the client gets, an outage that Envoy gets."""

from __future__ import annotations

import json

import grpc

from toolbelay.catalog.formats import WireFormat
from toolbelay.errors import ErrorReason, ToolbelayError


class DenialError(Exception):
    """An immediate response to the client. Never turned into fail-open."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class OutageError(Exception):
    """A gRPC error to Envoy, whose `failure_mode_allow` decides what becomes of the request."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


_DENIALS = {
    ErrorReason.INVALID_REQUEST: 400,
    ErrorReason.TOKEN_MISSING: 401,
    ErrorReason.TOKEN_INVALID: 401,
    ErrorReason.TOKEN_EXPIRED: 401,
    ErrorReason.SESSION_MISMATCH: 403,
    ErrorReason.ADMIN_ROLE_REQUIRED: 403,
    ErrorReason.ROUTE_NOT_FOUND: 404,
    ErrorReason.REQUIRED_TOOL_UNAVAILABLE: 403,
    ErrorReason.REQUIRED_TOOLS_EXCEED_CAPACITY: 400,
}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
}


def of_error(error: ToolbelayError) -> DenialError | OutageError:
    """What an application's error means here: the caller's fault, or ours."""
    status = _DENIALS.get(error.reason)
    if status is None:
        overloaded = error.reason is ErrorReason.OVERLOADED
        code = grpc.StatusCode.RESOURCE_EXHAUSTED if overloaded else grpc.StatusCode.UNAVAILABLE
        return OutageError(code, f"{error.reason.value}: {error.message}")
    message = f"{error.field}: {error.message}" if error.field else error.message
    return DenialError(status, error.reason.value, message)


def denial_body(denial: DenialError, wire_format: WireFormat | None) -> bytes:
    """The error as the provider would write it; OpenAI's form where the format is not known."""
    if wire_format is WireFormat.ANTHROPIC_MESSAGES:
        kind = _ANTHROPIC_TYPES.get(denial.status, "api_error")
        error: dict[str, object] = {"type": kind, "message": f"{denial.message} ({denial.code})"}
        return json.dumps({"type": "error", "error": error}).encode()
    kind = "invalid_request_error" if denial.status < 500 else "server_error"
    error = {"message": denial.message, "type": kind, "param": None, "code": denial.code.lower()}
    return json.dumps({"error": error}).encode()
