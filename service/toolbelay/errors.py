"""Errors of the domain. Each has one reason; the edges map a reason to a gRPC code or an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class ErrorReason(StrEnum):
    """Why a call failed. Names equal `toolbelay.v1.ErrorReason` without its prefix."""

    INVALID_REQUEST = "INVALID_REQUEST"
    TOKEN_MISSING = "TOKEN_MISSING"
    TOKEN_INVALID = "TOKEN_INVALID"
    TOKEN_EXPIRED = "TOKEN_EXPIRED"
    SESSION_MISMATCH = "SESSION_MISMATCH"
    ADMIN_ROLE_REQUIRED = "ADMIN_ROLE_REQUIRED"
    ROUTE_NOT_FOUND = "ROUTE_NOT_FOUND"
    REQUIRED_TOOL_UNAVAILABLE = "REQUIRED_TOOL_UNAVAILABLE"
    REQUIRED_TOOLS_EXCEED_CAPACITY = "REQUIRED_TOOLS_EXCEED_CAPACITY"
    GENERATION_NOT_REACHED = "GENERATION_NOT_REACHED"
    GENERATION_CONFLICT = "GENERATION_CONFLICT"
    OVERLOADED = "OVERLOADED"
    AUTHORITY_UNVERIFIABLE = "AUTHORITY_UNVERIFIABLE"
    PROPAGATION_UNCONFIRMED = "PROPAGATION_UNCONFIRMED"
    NOT_READY = "NOT_READY"
    STATE_UNAVAILABLE = "STATE_UNAVAILABLE"


class ToolbelayError(Exception):
    """An error that the caller is told about.

    `message` is public: it holds no secret, no token and no content of a prompt or definition.
    """

    def __init__(
        self,
        reason: ErrorReason,
        message: str,
        *,
        field: str | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.metadata = dict(metadata)


def invalid(field: str | None, message: str) -> ToolbelayError:
    """INVALID_REQUEST on one field (`None`: the message as a whole)."""
    return ToolbelayError(ErrorReason.INVALID_REQUEST, message, field=field)
