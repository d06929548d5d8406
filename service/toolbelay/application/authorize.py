"""AuthorizeToolCalls: may the model's calls be dispatched."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from toolbelay.application.access import Access, Door, redis_timeout
from toolbelay.application.ports import Ports, View
from toolbelay.application.settling import CONFLICT_MARGIN
from toolbelay.authority.principal import Principal
from toolbelay.clock import loop_time
from toolbelay.planner.calls import CallDecision, CallFact, Verdict, decide_call, pin_calls
from toolbelay.planner.model import SessionState, StoredTool
from toolbelay.sessions.port import Found, Opened, SaveStatus, StateUnavailableError


class AuthorizeRequest(Struct, frozen=True, gc=False):
    """The calls of one answer of the model, bounds already checked."""

    route: str = ""
    session_id: str = ""
    names: tuple[str, ...] = ()
    model: str = ""
    caller_tools: frozenset[str] = frozenset()


class AuthorizeAnswer(Struct, frozen=True, gc=False):
    """One decision per name, in order."""

    decisions: tuple[CallDecision, ...]
    generation: int
    state_checked: bool


class AuthorizeToolCalls:
    """The use case. One instance serves all calls of a worker."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._door = Door(ports, takes_turn=False)

    async def __call__(self, principal: Principal, request: AuthorizeRequest, *, deadline: float) -> AuthorizeAnswer:
        """Decide, and pin what is allowed.

        Raises ToolbelayError SESSION_MISMATCH, ROUTE_NOT_FOUND, AUTHORITY_UNVERIFIABLE.
        """
        access = await self._door.enter(principal, request.route, request.session_id, deadline=deadline)
        view = self._ports.decisions.view(
            access.snapshot.policies, principal, access.ref.route, request.model, access.route.mode
        )
        facts = self._facts(request.names, access, view)
        decisions, checked = await self._decide(request, access, facts)
        for decision in decisions:
            self._ports.events.tool_call(decision.verdict.value, decision.denial.value if decision.denial else "")
        return AuthorizeAnswer(decisions, access.snapshot.generation, checked)

    def _facts(self, names: Sequence[str], access: Access, view: View) -> dict[str, CallFact]:
        facts: dict[str, CallFact] = {}
        for name in names:
            tool = access.snapshot.by_name.get(name)
            if tool is not None and name not in facts:
                facts[name] = CallFact(tool.tool_id, tool.fingerprint, view.permits(tool), view.permits(tool, "call"))
        return facts

    async def _decide(
        self, request: AuthorizeRequest, access: Access, facts: dict[str, CallFact]
    ) -> tuple[tuple[CallDecision, ...], bool]:
        opened = access.opened
        while opened is not None and opened.found is Found.PRESENT and opened.state.seeded:
            stored = self._stored_names(opened.state, access)
            decisions = _decisions(request, facts, stored)
            state = self._pinned(decisions, opened, access)
            if state is opened.state:
                return decisions, True
            try:
                status = await self._save(access, opened, state)
                if status is not SaveStatus.CONFLICT or self._late(access):
                    if status is SaveStatus.CONFLICT:
                        await self._merge(access, state)
                    return decisions, True
                self._ports.events.state_retry()
                opened = await self._ports.store.touch(
                    access.ref,
                    epoch=access.snapshot.session_epoch,
                    ttl_seconds=access.route.sticky.ttl_seconds,
                    timeout=redis_timeout(access.deadline),
                )
            except StateUnavailableError:
                # The stored set was read and decided; only the pins are lost.
                return decisions, True
        return _decisions(request, facts, None), False

    def _stored_names(self, state: SessionState, access: Access) -> dict[str, StoredTool]:
        """The stored set by exposed name, also of tools that are gone: their names stay reserved."""
        named = ((access.snapshot.exposed_name(t.tool_id), t) for t in state.tools)
        return {name: tool for name, tool in named if name is not None}

    def _pinned(self, decisions: Sequence[CallDecision], opened: Opened, access: Access) -> SessionState:
        sticky = access.route.sticky
        allowed = [d.tool_id for d in decisions if d.verdict is Verdict.ALLOWED]
        if not allowed or not sticky.pin_called_tools:
            return opened.state
        return pin_calls(
            opened.state,
            allowed,
            turn=opened.turn,
            max_tools=sticky.max_tools,
            required=access.route.required_tools,
        )

    async def _save(self, access: Access, opened: Opened, state: SessionState) -> SaveStatus:
        saved = await self._ports.store.save(
            access.ref,
            opened,
            state,
            epoch=access.snapshot.session_epoch,
            ttl_seconds=access.route.sticky.ttl_seconds,
            timeout=redis_timeout(access.deadline),
        )
        if saved.status is SaveStatus.CONFLICT:
            self._ports.events.state_conflict()
        return saved.status

    async def _merge(self, access: Access, state: SessionState) -> None:
        pinned = [t for t in state.tools if t.pinned]
        await self._ports.store.merge(
            access.ref,
            pinned,
            ttl_seconds=access.route.sticky.ttl_seconds,
            timeout=redis_timeout(access.deadline),
        )

    def _late(self, access: Access) -> bool:
        return loop_time() > access.deadline - CONFLICT_MARGIN


def _decisions(
    request: AuthorizeRequest, facts: dict[str, CallFact], stored: dict[str, StoredTool] | None
) -> tuple[CallDecision, ...]:
    return tuple(
        decide_call(name, caller_tools=request.caller_tools, facts=facts, stored_names=stored) for name in request.names
    )
