"""What both clients share: the channel's options, and which call is tried again, and when."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from toolbelay.client.errors import ToolbelayCallError
from toolbelay.v1 import selection_pb2 as pb

Token = str | Callable[[str], str]  # a token, or what makes one for a session
MAX_ANSWER: Final = 24 * 1024 * 1024
OPTIONS: Final[Sequence[tuple[str, Any]]] = (
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_FIRST_PAUSE: Final = 0.02  # seconds
_LAST_PAUSE: Final = 0.5
_MAX_TRIES: Final = 4


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


def metadata_for(token: Token, session_id: str) -> tuple[tuple[str, str], ...]:
    value = token if isinstance(token, str) else token(session_id)
    return (("authorization", f"Bearer {value}"),)


def pause_before_retry(
    method: Method, message: Any, error: ToolbelayCallError, tries: int, time_left: float
) -> float | None:
    """Seconds to wait before the next try; `None` = give up.

    Only an unavailable service is asked again, only by a safe call, and only inside the call's deadline.
    """
    if error.code is not grpc.StatusCode.UNAVAILABLE or tries >= _MAX_TRIES or not method.safe(message):
        return None
    pause = min(_LAST_PAUSE, _FIRST_PAUSE * 4 ** (tries - 1)) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
    return pause if pause < time_left else None


def credentials(root_certificates: bytes | None, private_key: bytes | None, chain: bytes | None) -> Any:
    """TLS, or mutual TLS with a key and certificate chain (PEM); `None` = plain text."""
    if root_certificates is None and private_key is None:
        return None
    return grpc.ssl_channel_credentials(root_certificates, private_key, chain)
