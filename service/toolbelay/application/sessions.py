"""GetSession and EndSession: the caller's own session; EndSessions: an admin's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from toolbelay.application.access import (
    check_session_claim,
    read_generation,
    redis_timeout,
    route_not_found,
    session_ref,
)
from toolbelay.application.ports import Ports
from toolbelay.authority.principal import Principal
from toolbelay.clock import loop_time
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.sessions.port import Opened, SessionRef, StateUnavailableError

DEFAULT_SECONDS = 1.0  # deadline of a call whose caller set none


class TenantSessions(Protocol):
    """Ends every session of a tenant."""

    async def run(self, tenant: str, *, who: str) -> int:
        """Raise session epoch and generation in one transaction; the generation, confirmed."""


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """What an admin's EndSessions did."""

    ended: int
    generation: int


class Sessions:
    """The use cases. One instance serves all calls of a worker."""

    def __init__(self, ports: Ports, tenants: TenantSessions) -> None:
        self._ports = ports
        self._tenants = tenants

    async def get(self, principal: Principal, route: str, session_id: str, *, deadline: float) -> Opened:
        """The session as it is stored. Raises SESSION_MISMATCH, ROUTE_NOT_FOUND, STATE_UNAVAILABLE."""
        ref, limit, epoch = await self._find(principal, route, session_id, deadline)
        try:
            opened = await self._ports.store.peek(ref, epoch=epoch, timeout=redis_timeout(limit))
        except StateUnavailableError:
            raise state_unavailable() from None
        return opened

    async def end(self, principal: Principal, route: str, session_id: str, *, deadline: float) -> None:
        """Forget the session. Raises SESSION_MISMATCH, ROUTE_NOT_FOUND, STATE_UNAVAILABLE."""
        ref, limit, _ = await self._find(principal, route, session_id, deadline)
        try:
            await self._ports.store.end(ref, timeout=redis_timeout(limit))
        except StateUnavailableError:
            raise state_unavailable() from None

    async def end_principal(self, admin: Principal, issuer: str, subject: str, *, deadline: float) -> EndedSessions:
        """End every session of a principal of the admin's tenant. Raises STATE_UNAVAILABLE."""
        limit = _limit(deadline)
        try:
            ended = await self._ports.store.end_principal(admin.tenant, issuer, subject, timeout=redis_timeout(limit))
        except StateUnavailableError:
            raise state_unavailable() from None
        snapshot = await self._ports.freshness.first(admin.tenant, deadline=limit)
        return EndedSessions(ended, snapshot.generation)

    async def end_tenant(self, admin: Principal) -> EndedSessions:
        """End every session of the admin's tenant. Raises PROPAGATION_UNCONFIRMED."""
        return EndedSessions(0, await self._tenants.run(admin.tenant, who=admin.subject))

    async def _find(
        self, principal: Principal, route: str, session_id: str, deadline: float
    ) -> tuple[SessionRef, float, int]:
        """The session's name, the deadline, and the epoch below which a session counts as ended."""
        check_session_claim(principal, session_id)
        limit = _limit(deadline)
        read = await read_generation(self._ports, principal.tenant, limit)
        snapshot = await self._ports.freshness.current(principal.tenant, read, deadline=limit)
        if snapshot.route(route) is None:
            raise route_not_found()
        return session_ref(principal, route, session_id), limit, snapshot.session_epoch


def state_unavailable() -> ToolbelayError:
    """Sessions cannot be reached."""
    return ToolbelayError(ErrorReason.STATE_UNAVAILABLE, "session state is unavailable; try again")


def _limit(deadline: float) -> float:
    return min(deadline, loop_time() + DEFAULT_SECONDS)
