"""Values that go into and come out of the planner. All frozen; none knows of Redis, gRPC or a clock."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field


class Standing(StrEnum):
    """What authority says of a tool for this turn. A tool without a standing is gone from the catalog."""

    ELIGIBLE = "eligible"
    DENIED = "denied"  # policy
    NOT_CARRIED = "not_carried"  # the target cannot carry it
    NOT_OFFERED = "not_offered"  # filter mode: not in the request's array
    SHADOWED = "shadowed"  # a caller-owned tool has its exposed name


class Outcome(StrEnum):
    """What the turn did to the session; names as in the API."""

    SEEDED = "SEEDED"
    REUSED = "REUSED"
    UPDATED = "UPDATED"
    RESET = "RESET"
    UNSEEDED = "UNSEEDED"
    STATELESS = "STATELESS"


class Reason(StrEnum):
    """Qualifies an outcome; names as in the API."""

    NO_MATCH = "NO_MATCH"
    NO_QUERY = "NO_QUERY"
    RANKER_FALLBACK = "RANKER_FALLBACK"
    COLD = "COLD"
    STATE_DAMAGED = "STATE_DAMAGED"
    STATE_UNAVAILABLE = "STATE_UNAVAILABLE"
    STATE_CONFLICT = "STATE_CONFLICT"
    NO_SESSION = "NO_SESSION"
    STICKY_DISABLED = "STICKY_DISABLED"
    TARGET_WITHOUT_TOOLS = "TARGET_WITHOUT_TOOLS"
    TOOL_CHOICE_DROPPED = "TOOL_CHOICE_DROPPED"
    SESSION_ENDED = "SESSION_ENDED"


class Origin(StrEnum):
    """Why a tool is in the answer; names as in the API."""

    RETAINED = "RETAINED"
    SEEDED = "SEEDED"
    ADDED_RELEVANT = "ADDED_RELEVANT"
    ADDED_CALLED = "ADDED_CALLED"
    ADDED_CHANGED = "ADDED_CHANGED"
    REQUIRED = "REQUIRED"
    CORE = "CORE"


class StoredTool(Struct, frozen=True, gc=False):
    """One tool of a session's stored set."""

    tool_id: str
    fingerprint: bytes  # 32 bytes
    pinned: bool
    first_seen_turn: int  # from 1
    called_turn: int = 0  # turn of the last new call, 0 = never called
    called_place: int = 0  # order among the new calls of that turn, from 0
    mark: int = 0  # ranked turn in which it last was within top_k (replace_stale)
    extra: tuple[object, ...] = ()  # fields of a newer build, carried through


class SessionState(Struct, frozen=True, gc=False):
    """What a session stores, apart from its envelope."""

    seeded: bool = False
    tools: tuple[StoredTool, ...] = ()
    ranked_turns: int = 0  # turns that ranked something (counted for replace_stale only)
    last_answer: tuple[bytes, ...] = ()  # 8-byte digests of the last answer's items, in order
    extra: Mapping[str, object] = field(default_factory=dict)  # fields of a newer build, carried through


EMPTY_STATE = SessionState()


class Fact(Struct, frozen=True, gc=False):
    """What authority knows of one tool this turn."""

    standing: Standing
    fingerprint: bytes


class Scored(Struct, frozen=True, gc=False):
    """A ranked tool. `score` is finite."""

    tool_id: str
    score: float


class Bounds(Struct, frozen=True, gc=False):
    """The route's and the target's bounds for one turn.

    `capacity`: catalog tools that the answer may hold (0 to max_tools), the target's cap and the
    caller-owned items already taken off.
    """

    max_tools: int = 16  # 1..128
    max_new_tools_per_turn: int = 2  # 0..max_tools
    top_k: int = 8
    seed_tools: int = 8
    capacity: int = 16
    pin_called_tools: bool = True
    replace_stale: bool = False
    stale_after_turns: int = 3


class TurnInput(Struct, frozen=True, gc=False):
    """Everything that one turn depends on.

    `facts` has an entry for each tool id that is named anywhere in the input and still in the catalog.
    `ranking` holds eligible tools only, best first, thresholds applied; `None` = the turn ranks nothing.
    `fill` is the route's on_no_match set, in order.
    """

    state: SessionState
    facts: Mapping[str, Fact]
    turn: int  # this turn's number, from 1
    bounds: Bounds
    ranking: tuple[Scored, ...] | None = None
    grows: bool = True  # False: the strategy seeds but never grows (static)
    called: tuple[str, ...] = ()  # tool ids, oldest first, as resolved
    required: tuple[str, ...] = ()  # route order
    named: str | None = None  # tool id that tool_choice names
    core: tuple[str, ...] = ()
    fill: tuple[str, ...] = ()
    spent: int = 0  # of this turn's budget, by earlier tries
    replayed: bool = False  # this turn had been answered before
    cold: bool = False  # reseat_when_cold applies to this turn


class PlannedTool(Struct, frozen=True, gc=False):
    """One catalog tool of the answer."""

    tool_id: str
    origin: Origin
    pinned: bool
    score: float


class Counts(Struct, frozen=True, gc=False):
    """The receipt's counts of catalog tools."""

    retained: int
    added: int
    pinned: int
    evicted: int
    removed_unauthorized: int
    removed_unavailable: int
    removed_changed: int
    removed_incapable: int
    hidden: int


class Plan(Struct, frozen=True, gc=False):
    """What a turn answers and stores.

    `state.last_answer` is the input's: the digests of this answer's bytes are the renderer's to put in.
    `relevant` names the tools that this turn's ranking brought or would keep (for `narrow`).
    """

    tools: tuple[PlannedTool, ...]
    state: SessionState
    outcome: Outcome  # never REUSED or STATELESS: the caller decides these on bytes and session
    reason: Reason | None
    counts: Counts
    spent: int  # of the turn's budget, all tries together
    relevant: frozenset[str]
