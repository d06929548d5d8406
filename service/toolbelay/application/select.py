"""SelectTools: the tools of one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolbelay.application.access import Access, Door, redis_timeout
from toolbelay.application.answer import owned_items, planned_items, stable_prefix, surface_digest
from toolbelay.application.called import resolve_called
from toolbelay.application.offer import sort_offer
from toolbelay.application.ports import Ports
from toolbelay.application.rank import NOTHING, TurnRanking, rank_turn
from toolbelay.application.scene import Scene
from toolbelay.application.tool_choice import answer_choice, narrowed
from toolbelay.application.turn import (
    ChoiceMode,
    SelectAnswer,
    SelectedItem,
    SelectRequest,
    ToolChoice,
)
from toolbelay.application.turn_key import turn_key
from toolbelay.authority.principal import Principal
from toolbelay.catalog.freshness import GenerationRead
from toolbelay.catalog.offered import Offered, parse_offered
from toolbelay.catalog.surface import estimate_tokens
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.planner.model import (
    EMPTY_STATE,
    Counts,
    Outcome,
    Plan,
    Reason,
    SessionState,
    StoredTool,
    TurnInput,
)
from toolbelay.planner.plan import plan_turn
from toolbelay.sessions.port import Found, Opened, SaveStatus, StateUnavailableError, TurnKey

CONFLICT_MARGIN = 0.05  # seconds before the deadline at which a turn stops trying to save


@dataclass(frozen=True, slots=True)
class _Planned:
    """One planning of a turn, on one reading of its session."""

    plan: Plan
    scene: Scene
    ranking: TurnRanking
    items: tuple[SelectedItem, ...]
    called_ignored: int

    @property
    def digests(self) -> tuple[bytes, ...]:
        return tuple(item.digest for item in self.items)


@dataclass(frozen=True, slots=True)
class _Settled:
    """How a turn ended: the planning that answers, and what became of it."""

    planned: _Planned
    opened: Opened | None
    revision: int
    reason: Reason | None  # why it was not saved, where it should have been


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
            return self._without_tools(request, access, offered)
        scene = await self._scene(principal, request, access.snapshot, access, offered)
        if access.opened is None:
            planned = await self._plan(request, scene, None, access.deadline, None)
            settled = _Settled(planned, None, 0, None)
        else:
            settled = await self._settle(principal, request, access, scene, offered, key)
        answer = self._answer(request, access, settled)
        self._report(access, answer, settled)
        return answer

    async def _scene(
        self,
        principal: Principal,
        request: SelectRequest,
        snapshot: Any,
        access: Access,
        offered: Sequence[Offered],
    ) -> Scene:
        route = snapshot.route(request.route) or access.route
        view = self._ports.decisions.view(
            snapshot.policies, principal, access.ref.route, request.target.model, route.mode
        )
        offer = sort_offer(offered, route, snapshot.by_name, view.permits)
        return Scene(snapshot, route, request.target, offer, view)

    async def _settle(
        self,
        principal: Principal,
        request: SelectRequest,
        access: Access,
        scene: Scene,
        offered: Sequence[Offered],
        key: TurnKey | None,
    ) -> _Settled:
        """Plan and save until one of both readings holds, or time is up (rule 10)."""
        opened = access.opened
        if opened is None:
            raise LookupError("a stateful turn without a session")
        first, ranking = opened, None
        while True:
            planned = await self._plan(request, scene, opened, access.deadline, ranking)
            ranking = planned.ranking
            state = replace(planned.plan.state, last_answer=planned.digests)
            if opened.found is Found.PRESENT and _same(state, opened.state):
                return _Settled(planned, opened, opened.revision, None)
            try:
                saved = await self._save(access, scene, opened, state, key, planned.plan.spent)
            except StateUnavailableError:
                return _Settled(planned, None, 0, Reason.STATE_UNAVAILABLE)
            if saved.status is SaveStatus.SAVED:
                return _Settled(planned, opened, saved.revision, None)
            if saved.status is SaveStatus.ENDED:
                return _Settled(planned, opened, opened.revision, Reason.SESSION_ENDED)
            self._ports.events.state_conflict()
            if asyncio.get_running_loop().time() > access.deadline - CONFLICT_MARGIN:
                await self._merge(access, planned.plan)
                return _Settled(planned, opened, opened.revision, Reason.STATE_CONFLICT)
            self._ports.events.state_retry()
            reopened = await self._reopen(access, opened, key)
            if reopened is None:
                return _Settled(planned, None, 0, Reason.STATE_UNAVAILABLE)
            if reopened.found is not Found.PRESENT:
                return _Settled(planned, opened, opened.revision, Reason.SESSION_ENDED)
            scene = await self._refreshed(principal, request, access, scene, reopened, offered)
            if first.found is Found.PRESENT:
                reopened = replace(reopened, replayed=first.replayed, idle_ms=first.idle_ms)
            opened = reopened

    async def _reopen(self, access: Access, opened: Opened, key: TurnKey | None) -> Opened | None:
        try:
            return await self._ports.store.open(
                access.ref,
                epoch=access.snapshot.session_epoch,
                ttl_seconds=access.route.sticky.ttl_seconds,
                timeout=redis_timeout(access.deadline),
                turn_key=key,
                # A session that was absent numbered nothing: another turn was first, this one comes after.
                turn=opened.turn if opened.found is Found.PRESENT else 0,
            )
        except StateUnavailableError:
            return None

    async def _refreshed(
        self,
        principal: Principal,
        request: SelectRequest,
        access: Access,
        scene: Scene,
        opened: Opened,
        offered: Sequence[Offered],
    ) -> Scene:
        """The scene for another try, of a newer generation if the new reading saw one."""
        read = GenerationRead(True, opened.generation, opened.fresh_connection)
        snapshot = await self._ports.freshness.current(
            principal.tenant, read, deadline=access.deadline, min_generation=request.min_generation
        )
        if snapshot is scene.snapshot:
            return scene
        return await self._scene(principal, request, snapshot, access, offered)

    async def _save(
        self,
        access: Access,
        scene: Scene,
        opened: Opened,
        state: SessionState,
        key: TurnKey | None,
        spent: int,
    ) -> Any:
        return await self._ports.store.save(
            access.ref,
            opened,
            state,
            epoch=scene.snapshot.session_epoch,
            ttl_seconds=scene.route.sticky.ttl_seconds,
            timeout=redis_timeout(access.deadline),
            turn_key=key,
            spent=spent,
        )

    async def _merge(self, access: Access, plan: Plan) -> None:
        """Leave the pins and required tools of an answer that could not be saved."""
        keep = {t.tool_id for t in plan.state.tools if t.pinned} | {
            t.tool_id for t in plan.tools if t.origin.value == "REQUIRED"
        }
        tools: list[StoredTool] = [t for t in plan.state.tools if t.tool_id in keep]
        if not tools:
            return
        try:
            await self._ports.store.merge(
                access.ref,
                tools,
                ttl_seconds=access.route.sticky.ttl_seconds,
                timeout=redis_timeout(access.deadline),
            )
        except StateUnavailableError:
            return  # counted by the store; the answer stands

    async def _plan(
        self,
        request: SelectRequest,
        scene: Scene,
        opened: Opened | None,
        deadline: float,
        ranking: TurnRanking | None,
    ) -> _Planned:
        state = opened.state if opened is not None else EMPTY_STATE
        route, bounds = scene.route, scene.bounds()
        stored = tuple(t.tool_id for t in state.tools)
        called = resolve_called(request.called_tools, scene, frozenset(stored))
        named = _named(request.choice, scene)
        if ranking is None:
            pins = sorted((t for t in state.tools if t.pinned), key=lambda t: (t.called_turn, t.called_place))
            recent = dict.fromkeys((*(t.tool_id for t in pins), *called.tool_ids))
            present = len(stored) + len(route.core_tools) + len(route.required_tools) + len(called.tool_ids) + 1
            ranking = await rank_turn(
                request, scene, self._ports.indexes, stored=stored, called=tuple(recent), present=present,
                deadline=deadline,
            )  # fmt: skip
        replayed = opened is not None and opened.replayed
        fill = () if state.seeded or ranking.matches else _on_no_match(scene, bounds.seed_tools, stored, called.tool_ids)
        plan = plan_turn(
            TurnInput(
                state=state,
                facts=scene.facts(
                    state.tools,
                    called.tool_ids,
                    route.required_tools,
                    route.core_tools,
                    () if named is None else (named,),
                    (s.tool_id for s in ranking.matches or ()),
                    fill,
                ),
                turn=opened.turn if opened is not None else 1,
                bounds=bounds,
                ranking=ranking.matches,
                grows=ranking.grows,
                called=called.tool_ids,
                required=route.required_tools,
                named=named,
                core=route.core_tools,
                fill=fill,
                spent=opened.spent if opened is not None else 0,
                replayed=replayed,
                cold=opened is not None and not replayed and _cold(scene, opened),
            )
        )
        digest = self._ports.digest
        items = (*owned_items(scene, digest), *planned_items(plan, scene, digest))
        return _Planned(plan, scene, ranking, items, called.ignored)

    def _answer(self, request: SelectRequest, access: Access, settled: _Settled) -> SelectAnswer:
        planned, opened = settled.planned, settled.opened
        plan, scene, items = planned.plan, planned.scene, planned.items
        digests = planned.digests
        choice, dropped = answer_choice(request.choice, items)
        if scene.route.narrow == "allowed_tools" and scene.target.format.is_openai and planned.ranking.matches:
            keep = plan.relevant | {*scene.route.core_tools, *scene.route.required_tools}
            choice = narrowed(choice, items, keep) or choice
        outcome, reason = _outcome(access, settled, digests)
        if reason not in _STATE_REASONS and dropped:
            reason = Reason.TOOL_CHOICE_DROPPED
        last = opened.state.last_answer if opened is not None else ()
        return SelectAnswer(
            items=items,
            choice=choice,
            outcome=outcome,
            reason=reason,
            counts=plan.counts,
            turn=opened.turn if opened is not None else 0,
            revision=settled.revision,
            generation=scene.snapshot.generation,
            strategy=planned.ranking.strategy,
            advertised_tokens=estimate_tokens(sum(len(i.definition) for i in items)),
            whole_catalog_tokens=scene.snapshot.surface.whole_tokens(scene.target.format),
            replayed=opened is not None and opened.replayed,
            caller_owned=len(scene.offer.owned),
            called_ignored=planned.called_ignored,
            candidates_ignored=planned.ranking.ignored,
            offered_dropped=scene.offer.dropped,
            surface_digest=surface_digest(digests),
            stable_prefix=stable_prefix(digests, last),
        )

    def _without_tools(
        self, request: SelectRequest, access: Access, offered: Sequence[Offered]
    ) -> SelectAnswer:
        """The target takes no tools: nothing to answer, and nothing that is required may go missing."""
        if access.route.required_tools or request.choice.mode is ChoiceMode.NAMED:
            raise ToolbelayError(
                ErrorReason.REQUIRED_TOOL_UNAVAILABLE, "a tool is required and the target takes no tools"
            )
        choice, dropped = answer_choice(request.choice, ())
        reason = Reason.TOOL_CHOICE_DROPPED if dropped else Reason.TARGET_WITHOUT_TOOLS
        self._ports.events.turn(Outcome.STATELESS.value, reason.value)
        return SelectAnswer(
            items=(),
            choice=choice,
            outcome=Outcome.STATELESS,
            reason=reason,
            counts=Counts(0, 0, 0, 0, 0, 0, 0, 0, 0),
            turn=0,
            revision=0,
            generation=access.snapshot.generation,
            strategy=NOTHING.strategy,
            advertised_tokens=0,
            whole_catalog_tokens=access.snapshot.surface.whole_tokens(request.target.format),
            replayed=False,
            caller_owned=0,
            called_ignored=0,
            candidates_ignored=0,
            offered_dropped=len(offered),
            surface_digest=surface_digest(()),
            stable_prefix=0,
        )

    def _report(self, access: Access, answer: SelectAnswer, settled: _Settled) -> None:
        events, counts = self._ports.events, answer.counts
        events.turn(answer.outcome.value, answer.reason.value if answer.reason else "")
        if settled.planned.ranking.failed:
            events.ranking_fallback(access.route.strategy, answer.strategy)
        if counts.removed_unauthorized or counts.removed_unavailable or counts.removed_changed:
            events.removed("unauthorized", counts.removed_unauthorized)
            events.removed("unavailable", counts.removed_unavailable)
            events.removed("changed", counts.removed_changed)
        events.removed("incapable", counts.removed_incapable)
        events.removed("evicted", counts.evicted)
        opened = settled.opened
        if opened is not None:
            if opened.replayed:
                events.replayed()
            if opened.key_reused:
                events.turn_key_reused()
            if opened.found is Found.DAMAGED:
                events.state_damaged()


_STATE_REASONS = frozenset(
    {Reason.COLD, Reason.STATE_DAMAGED, Reason.STATE_UNAVAILABLE, Reason.STATE_CONFLICT, Reason.SESSION_ENDED}
)


def _outcome(access: Access, settled: _Settled, digests: Sequence[bytes]) -> tuple[Outcome, Reason | None]:
    plan, opened, ranking = settled.planned.plan, settled.opened, settled.planned.ranking
    if opened is None:
        return Outcome.STATELESS, _stateless_reason(access, settled)
    fallback = Reason.RANKER_FALLBACK if ranking.failed else None
    if opened.found is Found.DAMAGED and plan.outcome is Outcome.SEEDED:
        return Outcome.RESET, settled.reason or Reason.STATE_DAMAGED
    outcome, reason = plan.outcome, plan.reason
    if outcome is Outcome.UPDATED and opened.found is Found.PRESENT and digests == opened.state.last_answer:
        outcome = Outcome.REUSED
    if opened.found is Found.DAMAGED:
        reason = Reason.STATE_DAMAGED
    return outcome, settled.reason or (fallback or reason if reason is not Reason.COLD else reason)


def _stateless_reason(access: Access, settled: _Settled) -> Reason | None:
    reason = settled.reason or access.stateless
    if reason is not Reason.STATE_UNAVAILABLE and settled.planned.ranking.failed:
        return Reason.RANKER_FALLBACK
    return reason


def _same(new: SessionState, old: SessionState) -> bool:
    return (
        new.tools == old.tools
        and new.last_answer == old.last_answer
        and new.seeded == old.seeded
        and new.ranked_turns == old.ranked_turns
    )


def _cold(scene: Scene, opened: Opened) -> bool:
    sticky = scene.route.sticky
    return (
        sticky.reseat_when_cold
        and opened.idle_ms is not None
        and opened.idle_ms > sticky.prompt_cache_ttl_seconds * 1000
    )


def _named(choice: ToolChoice, scene: Scene) -> str | None:
    """The catalog tool that the choice names; a caller-owned one needs nothing. Raises rule 3's error."""
    if choice.mode is not ChoiceMode.NAMED:
        return None
    name = choice.names[0]
    if name in scene.offer.owned_names:
        return None
    tool = scene.by_name(name)
    if tool is None:
        raise ToolbelayError(
            ErrorReason.REQUIRED_TOOL_UNAVAILABLE, "the named tool is not available to this caller and target"
        )
    return tool.tool_id


def _on_no_match(
    scene: Scene, seed_tools: int, stored: Sequence[str], called: Sequence[str]
) -> tuple[str, ...]:
    """The route's on_no_match set, beside what is there anyway. Core tools are rule 3's."""
    route = scene.route
    if route.on_no_match != "all":
        return ()
    there = {*stored, *called, *route.core_tools, *route.required_tools}
    found: list[str] = []
    for tool_id in scene.eligible_ids():
        if len(found) >= seed_tools:
            break
        if tool_id not in there:
            found.append(tool_id)
    return tuple(found)
