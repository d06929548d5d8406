"""SelectTools: the tools of one turn."""

from __future__ import annotations

from toolbelay.application.access import Door
from toolbelay.application.ports import Ports
from toolbelay.application.receipt import answer_of, toolless_answer
from toolbelay.application.settling import Settled, TurnRun
from toolbelay.application.turn import ChoiceMode, SelectAnswer, SelectRequest
from toolbelay.application.turn_key import turn_key
from toolbelay.authority.principal import Principal
from toolbelay.catalog.offered import parse_offered
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.sessions.port import Found


class SelectTools:
    """The use case. One instance serves all calls of a worker."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._door = Door(ports, takes_turn=True)

    async def __call__(self, principal: Principal, request: SelectRequest, *, deadline: float) -> SelectAnswer:
        """Answer one turn.

        `deadline`: loop time, infinite where the caller set none. Raises ToolbelayError: INVALID_REQUEST
        (offered tools), SESSION_MISMATCH, ROUTE_NOT_FOUND, REQUIRED_*, GENERATION_NOT_REACHED,
        AUTHORITY_UNVERIFIABLE.
        """
        offered = parse_offered(request.offered_tools, request.target.format)
        key = turn_key(self._ports.turn_secret, request, [item.name for item in offered])
        access = await self._door.enter(
            principal,
            request.route,
            request.session_id,
            deadline=deadline,
            min_generation=request.min_generation,
            turn_key=key,
            carries_tools=request.target.supports_tools,
        )
        if not request.target.supports_tools:
            if access.route.required_tools or request.choice.mode is ChoiceMode.NAMED:
                raise ToolbelayError(
                    ErrorReason.REQUIRED_TOOL_UNAVAILABLE, "a tool is required and the target takes no tools"
                )
            answer = toolless_answer(request, access, len(offered))
            self._ports.events.turn(answer.outcome.value, answer.reason.value if answer.reason else "")
            return answer
        run = TurnRun(self._ports, principal, request, access=access, offered=offered, key=key)
        settled = await run.settle()
        answer = answer_of(request, access, settled)
        self._report(access.route.strategy, answer, settled)
        return answer

    def _report(self, strategy: str, answer: SelectAnswer, settled: Settled) -> None:
        events, counts, opened = self._ports.events, answer.counts, settled.opened
        events.turn(answer.outcome.value, answer.reason.value if answer.reason else "")
        if settled.planned.ranking.failed:
            events.ranking_fallback(strategy, answer.strategy)
        for kind, count in (
            ("unauthorized", counts.removed_unauthorized),
            ("unavailable", counts.removed_unavailable),
            ("changed", counts.removed_changed),
            ("incapable", counts.removed_incapable),
            ("evicted", counts.evicted),
        ):
            if count:
                events.removed(kind, count)
        if opened is not None:
            if opened.replayed:
                events.replayed()
            if opened.key_reused:
                events.turn_key_reused()
            if opened.found is Found.DAMAGED:
                events.state_damaged()
