"""What both clients share: the channel, and which call is tried again, and when."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import uuid4

import grpc

from toolbelay.client.errors import OVERLOADED, ToolbelayCallError
from toolbelay.v1 import selection_pb2 as pb

# A token, or what makes one for each call from the call's session id ("" for none).
Token: TypeAlias = str | Callable[[str], str]
AsyncToken: TypeAlias = str | Callable[[str], str | Awaitable[str]]

MAX_ANSWER: Final = 24 * 1024 * 1024
_FIRST_PAUSE: Final = 0.02  # seconds
_LAST_PAUSE: Final = 0.5
_MAX_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS, and mutual TLS with `private_key` and `certificate_chain`; all PEM.

    `root_certificates`: `None` = the well-known public authorities. `server_name`: the name that the
    server's certificate must have, where it is not the address's.
    """

    root_certificates: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    certificate_chain: bytes | None = None
    server_name: str = ""

    def credentials(self) -> Any:
        """For a secure channel. Raises ValueError for a key without its certificate, or the other way round."""
        if (self.private_key is None) != (self.certificate_chain is None):
            raise ValueError("mutual TLS needs the private key and its certificate chain")
        return grpc.ssl_channel_credentials(self.root_certificates, self.private_key, self.certificate_chain)


def channel_options(
    tls: Tls | None, keepalive_seconds: float, more: Sequence[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """Options of a channel; `keepalive_seconds` ≥ 10, as the service allows no more pings than that."""
    if not 10 <= keepalive_seconds <= 7200:
        raise ValueError(f"keepalive_seconds is {keepalive_seconds:g}, not within 10 to 7200")
    name = [("grpc.ssl_target_name_override", tls.server_name)] if tls and tls.server_name else []
    return [
        ("grpc.max_receive_message_length", MAX_ANSWER),
        ("grpc.keepalive_time_ms", int(keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.lb_policy_name", "round_robin"),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        *name,
        *more,
    ]


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC. `safe`: whether asking twice equals asking once."""

    name: str
    response: Any
    safe: Callable[[Any], bool]

    @property
    def path(self) -> str:
        return f"/toolbelay.v1.ToolSelectionService/{self.name}"


def _select_is_safe(message: pb.SelectToolsRequest) -> bool:
    """With a turn_id the service knows the turn again; without a session there is nothing to do twice."""
    return bool(message.turn_id) or not message.session_id


SELECT: Final = Method("SelectTools", pb.SelectToolsResponse, _select_is_safe)
AUTHORIZE: Final = Method("AuthorizeToolCalls", pb.AuthorizeToolCallsResponse, lambda _: True)
GET_SESSION: Final = Method("GetSession", pb.GetSessionResponse, lambda _: True)
END_SESSION: Final = Method("EndSession", pb.EndSessionResponse, lambda _: True)


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """A call's metadata."""
    return (("authorization", f"Bearer {token}"),)


def new_turn_id() -> str:
    """A turn id that makes the tries of one call one turn."""
    return uuid4().hex


class Floor:
    """The generation that answers must have reached; it only rises."""

    def __init__(self) -> None:
        self._generation = 0

    def raise_to(self, generation: int) -> None:
        self._generation = max(self._generation, generation)

    def apply(self, message: pb.SelectToolsRequest) -> pb.SelectToolsRequest:
        """The request with the floor; a copy where it changes."""
        if message.min_generation >= self._generation:
            return message
        raised = pb.SelectToolsRequest()
        raised.CopyFrom(message)
        raised.min_generation = self._generation
        return raised


def pause_before_retry(
    method: Method, message: Any, error: ToolbelayCallError, tries: int, time_left: float
) -> float | None:
    """Seconds to wait before the next try; `None` = give up.

    An unavailable service is asked again by a safe call only; one that refused for too much work has done
    none of it. Always bounded, and inside the call's deadline.
    """
    again = error.reason == OVERLOADED or (error.code is grpc.StatusCode.UNAVAILABLE and method.safe(message))
    if not again or tries >= _MAX_TRIES:
        return None
    pause = min(_LAST_PAUSE, _FIRST_PAUSE * 4 ** (tries - 1)) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
    return pause if pause < time_left else None
