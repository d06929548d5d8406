"""ExplainDecision: what policy decides for a hypothetical caller, and which policies decided."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from toolbelay.application.access import read_generation, route_not_found
from toolbelay.application.ports import Ports
from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool
from toolbelay.catalog.routes import DEFAULT_ROUTE
from toolbelay.catalog.snapshot import TenantSnapshot
from toolbelay.clock import loop_time
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.storage.port import StorageUnavailableError

DEFAULT_SECONDS = 5.0  # deadline of a call whose caller set none


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """A hypothetical caller and one tool."""

    subject: str
    issuer: str
    roles: frozenset[str]
    scopes: frozenset[str]
    tool_id: str
    route: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class ActionDecision:
    """A decision on one action. `policies`: `file#id`, sorted."""

    allowed: bool = False
    policies: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Both decisions. `in_catalog` False: there is nothing to decide."""

    in_catalog: bool
    advertise: ActionDecision
    call: ActionDecision
    generation: int


class Explainer(Protocol):
    """Decides and tells why."""

    def __call__(
        self, policies: Any, principal: Principal, action: Any, tool: Tool, *, route: str, model: str, mode: str
    ) -> ActionDecision:
        """One decision."""


class Audit(Protocol):
    """Leaves audit rows."""

    async def audit(self, tenant: str, *, who: str, action: str, summary: str, timeout: float) -> None:
        """Leave one row. Raises StorageUnavailableError."""


async def current_snapshot(ports: Ports, tenant: str, deadline: float) -> TenantSnapshot[Any]:
    """The snapshot that an admin's call answers from, generation checked."""
    read = await read_generation(ports, tenant, deadline)
    return await ports.freshness.current(tenant, read, deadline=deadline)


class ExplainDecision:
    """The use case. Every call leaves an audit row before it is answered."""

    def __init__(self, ports: Ports, explainer: Explainer, audit: Audit) -> None:
        self._ports = ports
        self._explainer = explainer
        self._audit = audit

    async def __call__(self, admin: Principal, request: ExplainRequest, *, deadline: float) -> Explanation:
        """Explain. Raises ROUTE_NOT_FOUND, AUTHORITY_UNVERIFIABLE."""
        limit = min(deadline, loop_time() + DEFAULT_SECONDS)
        snapshot = await current_snapshot(self._ports, admin.tenant, limit)
        route = snapshot.route(request.route)
        if route is None:
            raise route_not_found()
        summary = json.dumps({"subject": request.subject, "tool": request.tool_id, "route": request.route})
        try:
            await self._audit.audit(
                admin.tenant,
                who=admin.subject,
                action="explain",
                summary=summary,
                timeout=max(limit - loop_time(), 0.05),
            )
        except StorageUnavailableError:
            raise ToolbelayError(
                ErrorReason.AUTHORITY_UNVERIFIABLE, "the audit log cannot be written, so nothing is explained"
            ) from None
        tool = snapshot.tools.get(request.tool_id)
        if tool is None:
            return Explanation(False, ActionDecision(), ActionDecision(), snapshot.generation)
        principal = Principal(admin.tenant, request.issuer, request.subject, request.roles, request.scopes)
        advertise, call = (
            self._explainer(
                snapshot.policies,
                principal,
                action,
                tool,
                route=request.route or DEFAULT_ROUTE,
                model=request.model,
                mode=route.mode,
            )
            for action in ("advertise", "call")
        )
        return Explanation(True, advertise, call, snapshot.generation)
