"""How the external processor reads requests and where its limits lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Refusal = Literal["pass", "reject"]


@dataclass(frozen=True, slots=True)
class ExtProcOptions:
    """Header names are lower case; an empty name is never read.

    `metadata_namespace`: Envoy's dynamic metadata that names the route (`route`, a string), what the
    model can do (`capabilities`, a list of strings), and whether the route of Envoy wants a cache
    breakpoint (`cache_breakpoint`, a truth value). `trust_jwt_metadata`: take the payload that
    `jwt_authn` verified, from `jwt_namespace`; only for listeners that nobody but Envoy reaches.
    """

    token_header: str = "x-toolbelay-token"  # noqa: S105 - a header name
    use_authorization: bool = False
    trust_jwt_metadata: bool = False
    jwt_namespace: str = "envoy.filters.http.jwt_authn"
    session_header: str = "x-session-id"
    turn_header: str = "x-toolbelay-turn-id"
    route_header: str = ""
    metadata_namespace: str = "toolbelay"
    deadline: float = 0.15  # seconds, for one request or response
    max_concurrent: int = 256  # requests and answers being worked on; streams that wait for the model do not count
    max_body_bytes: int = 8 * 1024 * 1024  # decoded
    on_large_body: Refusal = "pass"  # reject: 413
    on_unknown_encoding: Refusal = "pass"  # reject: 415
    allow_streamed: bool = False  # a processor killed while Envoy fails open would let half a body through
    receipt_header: bool = True
    authorize_calls: bool = False
    cache_breakpoint: bool = False  # Anthropic: one more breakpoint, at the answer's stable prefix
