"""How a call reaches its session and the authority of this moment, in as few trips as the rules allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from toolbelay.application.ports import Ports
from toolbelay.authority.principal import Principal
from toolbelay.catalog.generations import UNKNOWN_GENERATION, GenerationRead
from toolbelay.catalog.routes import DEFAULT_ROUTE, Route
from toolbelay.catalog.snapshot import TenantSnapshot
from toolbelay.clock import loop_time
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.planner.model import Reason
from toolbelay.sessions.port import Opened, SessionRef, StateUnavailableError, TurnKey

REDIS_SHARE = 0.25  # of what is left of the deadline, for one Redis call
REDIS_LIMIT = 0.25  # seconds one Redis call may take at most
_FLOOR = 0.005  # a call that is nearly over still gets this much


class Access(Struct, frozen=True, gc=False):
    """Where a call stands after its first trip.

    `opened` is `None` without state; `stateless` then says why.
    """

    snapshot: TenantSnapshot[Any]
    route: Route
    ref: SessionRef
    opened: Opened | None
    stateless: Reason | None
    deadline: float


def redis_timeout(deadline: float) -> float:
    """Seconds that one Redis call may take."""
    left = deadline - loop_time()
    return max(min(left * REDIS_SHARE, REDIS_LIMIT), _FLOOR)


def check_session_claim(principal: Principal, session_id: str) -> None:
    """A token bound to a session serves no other. Raises SESSION_MISMATCH."""
    if session_id and principal.session_claim is not None and principal.session_claim != session_id:
        raise ToolbelayError(ErrorReason.SESSION_MISMATCH, "the token is bound to another session")


def session_ref(principal: Principal, route: str, session_id: str) -> SessionRef:
    """The session's name; the route by its resolved name."""
    return SessionRef(principal.tenant, principal.issuer, principal.subject, route or DEFAULT_ROUTE, session_id)


async def read_generation(ports: Ports, tenant: str, limit: float) -> GenerationRead:
    """What Redis says, where it answers."""
    try:
        seen = await ports.store.see_generation(tenant, timeout=redis_timeout(limit))
    except StateUnavailableError:
        return UNKNOWN_GENERATION
    return GenerationRead(True, seen.value, seen.fresh, seen.vouch)


def generation_of(opened: Opened) -> GenerationRead:
    """What Redis said beside a session."""
    return GenerationRead(True, opened.generation, opened.fresh_connection, opened.vouch)


def route_not_found() -> ToolbelayError:
    """The same for an unknown route and an unknown tenant."""
    return ToolbelayError(ErrorReason.ROUTE_NOT_FOUND, "no such route")


@dataclass(frozen=True, slots=True)
class Door:
    """Opens sessions for one kind of call.

    `takes_turn`: SelectTools; the session numbers the turn. Otherwise the session is read and renewed.
    """

    ports: Ports
    takes_turn: bool

    async def enter(
        self,
        principal: Principal,
        route_name: str,
        session_id: str,
        *,
        deadline: float,
        min_generation: int = 0,
        turn_key: TurnKey | None = None,
        carries_tools: bool = True,
    ) -> Access:
        """Read state and generation, and take the snapshot that may answer.

        `deadline` is the caller's, infinite where it set none; then the route's holds. Raises
        SESSION_MISMATCH, ROUTE_NOT_FOUND, AUTHORITY_UNVERIFIABLE, GENERATION_NOT_REACHED.
        """
        check_session_claim(principal, session_id)
        freshness = self.ports.freshness
        began = loop_time()
        held = freshness.held(principal.tenant)
        if held is None:
            held = await freshness.first(principal.tenant, deadline=min(deadline, began + 5.0))
        ref = session_ref(principal, route_name, session_id)
        route = held.route(route_name)
        limit = _limit(deadline, began, route)
        stateless = Reason.NO_SESSION if route is None else _stateless(route, session_id, carries_tools=carries_tools)
        opened, read, failed = await self._first_trip(ref, held, route, stateless, limit, turn_key)
        snapshot = await freshness.current(principal.tenant, read, deadline=limit, min_generation=min_generation)
        if snapshot is not held:
            route = snapshot.route(route_name)
            if route is not None:
                stateless = _stateless(route, session_id, carries_tools=carries_tools)
        if route is None:
            raise route_not_found()
        if failed:
            stateless = stateless or Reason.STATE_UNAVAILABLE
        elif stateless is None and (opened is None or snapshot.session_epoch != held.session_epoch):
            # Sticky only in the newer snapshot, or the tenant's sessions were ended since the older one.
            opened, failed = await self._open(ref, snapshot, route, limit, turn_key)
            stateless = Reason.STATE_UNAVAILABLE if failed else None
        return Access(snapshot, route, ref, None if stateless else opened, stateless, limit)

    async def _first_trip(
        self,
        ref: SessionRef,
        held: TenantSnapshot[Any],
        route: Route | None,
        stateless: Reason | None,
        limit: float,
        turn_key: TurnKey | None,
    ) -> tuple[Opened | None, GenerationRead, bool]:
        """State and generation, or the generation alone; whether state was wanted and failed."""
        if route is not None and stateless is None:
            opened, failed = await self._open(ref, held, route, limit, turn_key)
            if opened is None:
                return None, UNKNOWN_GENERATION, failed
            return opened, generation_of(opened), False
        return None, await read_generation(self.ports, ref.tenant, limit), False

    async def _open(
        self,
        ref: SessionRef,
        snapshot: TenantSnapshot[Any],
        route: Route,
        limit: float,
        turn_key: TurnKey | None,
    ) -> tuple[Opened | None, bool]:
        store, epoch, ttl = self.ports.store, snapshot.session_epoch, route.sticky.ttl_seconds
        timeout = redis_timeout(limit)
        try:
            if self.takes_turn:
                opened = await store.open(ref, epoch=epoch, ttl_seconds=ttl, timeout=timeout, turn_key=turn_key)
            else:
                opened = await store.touch(ref, epoch=epoch, ttl_seconds=ttl, timeout=timeout)
        except StateUnavailableError:
            return None, True
        return opened, False


def _stateless(route: Route, session_id: str, *, carries_tools: bool) -> Reason | None:
    if not carries_tools:
        return Reason.TARGET_WITHOUT_TOOLS
    if not session_id:
        return Reason.NO_SESSION
    return None if route.enabled and route.sticky.enabled else Reason.STICKY_DISABLED


def _limit(deadline: float, began: float, route: Route | None) -> float:
    if deadline != float("inf"):
        return deadline
    return began + (route.deadline_ms if route is not None else 1000) / 1000
