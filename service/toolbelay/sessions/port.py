"""The port of session state. One contract suite runs against every implementation and server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, StrEnum
from typing import Protocol

from msgspec import Struct

from toolbelay.planner.model import SessionState, StoredTool


class SessionRef(Struct, frozen=True, gc=False):
    """Names a session: one principal's, on one route."""

    tenant: str
    issuer: str
    subject: str
    route: str
    session_id: str


class TurnKey(Struct, frozen=True, gc=False):
    """The keyed digest of a turn's idempotency key.

    `identity`: 8 bytes over turn_id. `content`: 16 bytes over turn_id and the request's content.
    """

    identity: bytes
    content: bytes


class Found(Enum):
    """What was under the session's key."""

    PRESENT = "present"
    ABSENT = "absent"  # nothing, a tombstone, or an envelope of an older epoch
    DAMAGED = "damaged"  # not readable, or of a version far newer than this build's


class Opened(Struct, frozen=True, gc=False):
    """The session as a turn found it.

    `token` is the compare-and-set token: opaque, to be given back to `save`.
    `turn`: the number of this turn. `replayed`: the turn key was known. `spent`: what earlier tries of
    this turn spent of its budget. `key_reused`: the same turn_id came with other content before.
    `idle_ms`: time since the last turn, `None` on the first. Times are the server's, Unix milliseconds.
    `generation`: the tenant's generation in Redis, read in the same trip; `None` = missing.
    `fresh_connection`, `vouch`: see `SeenGeneration`.
    """

    found: Found
    state: SessionState
    token: bytes
    revision: int
    turn: int
    replayed: bool = False
    spent: int = 0
    key_reused: bool = False
    idle_ms: int | None = None
    created_ms: int = 0
    last_seen_ms: int = 0
    expires_ms: int = 0
    epoch: int = 0
    generation: int | None = None
    fresh_connection: bool = False
    vouch: Callable[[], None] | None = None


class SeenGeneration(Struct, frozen=True, gc=False):
    """A tenant's generation in Redis as one connection told it; `value` `None` = missing.

    `fresh`: the connection is not proven for this tenant: it is new, or the servers' roles have changed. Its word
    counts only once SQL has been asked after it was heard (freshness F2); `vouch`, where given, then proves it.
    """

    value: int | None
    fresh: bool = False
    vouch: Callable[[], None] | None = None


class SaveStatus(StrEnum):
    """What became of a save."""

    SAVED = "saved"
    CONFLICT = "conflict"
    ENDED = "ended"  # the session was ended since it was opened


class Saved(Struct, frozen=True, gc=False):
    """Result of a save. `revision`: the stored one when SAVED, else the one opened."""

    status: SaveStatus
    revision: int


class StateUnavailableError(Exception):
    """Redis could not be used: down, hung, full, read-only, loading, or the breaker is open.

    `cause` is one of a bounded set of words fit for a metric label. `maybe_applied` is True when a
    write may have reached the server.
    """

    def __init__(self, cause: str, *, maybe_applied: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.maybe_applied = maybe_applied


class SessionStore(Protocol):
    """Session state. Every method raises StateUnavailableError within `timeout` seconds."""

    async def open(
        self,
        ref: SessionRef,
        *,
        epoch: int,
        ttl_seconds: int,
        timeout: float,
        turn_key: TurnKey | None = None,
        turn: int = 0,
    ) -> Opened:
        """Read for a turn, in one round trip.

        When the session exists: renews TTLs and last seen, looks up the turn key and, when it is new,
        records it and numbers the turn. `turn` > 0: a reload by a try that already has this number, so
        no new number is given. An envelope whose epoch is older than `epoch` reads as ABSENT.
        """

    async def save(
        self,
        ref: SessionRef,
        opened: Opened,
        state: SessionState,
        *,
        epoch: int,
        ttl_seconds: int,
        timeout: float,
        turn_key: TurnKey | None = None,
        spent: int = 0,
    ) -> Saved:
        """Write `state` if the session still is as `opened` saw it; creates when it was not PRESENT.

        Turn number, turn keys and last seen that others recorded meanwhile are kept.
        """

    async def merge(self, ref: SessionRef, tools: Sequence[StoredTool], *, ttl_seconds: int, timeout: float) -> None:
        """Add pins and required tools without compare-and-set; commutative; folded in by the next reader.

        Does nothing when the session is absent or ended.
        """

    async def peek(self, ref: SessionRef, *, epoch: int, timeout: float) -> Opened:
        """Read without renewing anything; `turn` is the last turn's number, 0 when absent."""

    async def touch(self, ref: SessionRef, *, epoch: int, ttl_seconds: int, timeout: float) -> Opened:
        """Read and renew, without a turn; `turn` is the last turn's number (AuthorizeToolCalls)."""

    async def end(self, ref: SessionRef, *, timeout: float) -> None:
        """Forget the session, leaving a tombstone of 60 s. Idempotent."""

    async def end_principal(self, tenant: str, issuer: str, subject: str, *, timeout: float) -> int:
        """End every session of a principal; returns how many."""

    async def generation(self, tenant: str, *, timeout: float) -> tuple[int | None, bool]:
        """The tenant's generation in Redis (`None` = missing) and whether the connection was fresh."""

    async def see_generation(self, tenant: str, *, timeout: float, proven: bool = False) -> SeenGeneration:
        """The tenant's generation in Redis. `proven`: over a proven connection, else missing and fresh."""

    async def raise_generation(self, tenant: str, generation: int, *, timeout: float) -> int:
        """Set the generation if greater and renew its TTL of 24 h; returns the stored number."""

    async def ping(self, *, timeout: float) -> None:
        """Prove that the server answers writes."""

    async def close(self) -> None:
        """Release connections."""
