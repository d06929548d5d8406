"""A stateful turn: plan, save, and on a conflict read and plan again (rule 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolbelay.application.access import Access, generation_of, redis_timeout
from toolbelay.application.offer import sort_offer
from toolbelay.application.planning import Planned, plan_once
from toolbelay.application.ports import Ports
from toolbelay.application.rank import TurnRanking
from toolbelay.application.scene import Scene
from toolbelay.application.turn import SelectRequest
from toolbelay.authority.principal import Principal
from toolbelay.catalog.offered import Offered
from toolbelay.catalog.snapshot import TenantSnapshot
from toolbelay.clock import loop_time
from toolbelay.planner.model import Origin, Plan, Reason, SessionState
from toolbelay.sessions.port import Found, Opened, Saved, SaveStatus, StateUnavailableError, TurnKey

CONFLICT_MARGIN = 0.05  # seconds before the deadline at which a call stops trying to save


class Settled(Struct, frozen=True, gc=False):
    """How a turn ended.

    `opened` is `None` without state. `reason`: why the planning was not saved where it should have been.
    """

    planned: Planned
    opened: Opened | None
    revision: int = 0
    reason: Reason | None = None


class TurnRun:
    """One call of SelectTools. Lives no longer than the call."""

    def __init__(
        self,
        ports: Ports,
        principal: Principal,
        request: SelectRequest,
        *,
        access: Access,
        offered: Sequence[Offered],
        key: TurnKey | None,
    ) -> None:
        self._ports = ports
        self._principal = principal
        self._request = request
        self._access = access
        self._offered = offered
        self._key = key
        self._scene = self._scene_of(access.snapshot)

    async def settle(self) -> Settled:
        """Plan, and save where the session has state."""
        opened = self._access.opened
        if opened is None:
            return Settled(await self._plan(None, None), None)
        try:
            return await self._settle(opened)
        except _StateLostError as lost:
            return Settled(lost.planned, None, 0, Reason.STATE_UNAVAILABLE)

    async def _settle(self, first: Opened) -> Settled:
        opened, ranking = first, None
        while True:
            planned = await self._plan(opened, ranking)
            ranking = planned.ranking
            if opened.found is Found.PRESENT and _same(planned, opened.state):
                return Settled(planned, opened, opened.revision)
            state = replace(planned.plan.state, last_answer=planned.digests)
            saved = await self._save(planned, opened, state)
            if saved.status is not SaveStatus.CONFLICT:
                ended = Reason.SESSION_ENDED if saved.status is SaveStatus.ENDED else None
                return Settled(planned, opened, saved.revision, ended)
            self._ports.events.state_conflict()
            if loop_time() > self._access.deadline - CONFLICT_MARGIN:
                await self._merge(planned.plan)
                return Settled(planned, opened, opened.revision, Reason.STATE_CONFLICT)
            self._ports.events.state_retry()
            again = await self._reopen(planned, opened)
            if again.found is not Found.PRESENT:
                # It was there a moment ago: ended, or lost. This turn brings nothing back.
                return Settled(planned, opened, opened.revision, Reason.SESSION_ENDED)
            if opened.found is Found.PRESENT:
                # The key that this call found new is now known by its own doing.
                again = replace(again, replayed=opened.replayed, idle_ms=opened.idle_ms)
            await self._refresh(again)
            opened = again

    async def _plan(self, opened: Opened | None, ranking: TurnRanking | None) -> Planned:
        return await plan_once(
            self._ports, self._request, self._scene, opened, deadline=self._access.deadline, ranking=ranking
        )

    async def _save(self, planned: Planned, opened: Opened, state: SessionState) -> Saved:
        try:
            return await self._ports.store.save(
                self._access.ref,
                opened,
                state,
                epoch=self._scene.snapshot.session_epoch,
                ttl_seconds=self._scene.route.sticky.ttl_seconds,
                timeout=redis_timeout(self._access.deadline),
                turn_key=self._key,
                spent=planned.plan.spent,
            )
        except StateUnavailableError as error:
            raise _StateLostError(planned) from error

    async def _reopen(self, planned: Planned, opened: Opened) -> Opened:
        try:
            return await self._ports.store.open(
                self._access.ref,
                epoch=self._scene.snapshot.session_epoch,
                ttl_seconds=self._scene.route.sticky.ttl_seconds,
                timeout=redis_timeout(self._access.deadline),
                turn_key=self._key,
                # A session that was absent numbered nothing: another turn was first, this one comes after.
                turn=opened.turn if opened.found is Found.PRESENT else 0,
            )
        except StateUnavailableError as error:
            raise _StateLostError(planned) from error

    async def _refresh(self, opened: Opened) -> None:
        """Take a newer snapshot, if this reading saw a newer generation."""
        snapshot = await self._ports.freshness.current(
            self._principal.tenant,
            generation_of(opened),
            deadline=self._access.deadline,
            min_generation=self._request.min_generation,
        )
        if snapshot is not self._scene.snapshot:
            self._scene = self._scene_of(snapshot)

    async def _merge(self, plan: Plan) -> None:
        """Leave the pins and required tools of an answer that could not be saved."""
        required = {t.tool_id for t in plan.tools if t.origin is Origin.REQUIRED}
        tools = [t for t in plan.state.tools if t.pinned or t.tool_id in required]
        if not tools:
            return
        try:
            await self._ports.store.merge(
                self._access.ref,
                tools,
                ttl_seconds=self._scene.route.sticky.ttl_seconds,
                timeout=redis_timeout(self._access.deadline),
            )
        except StateUnavailableError:
            return  # the store has counted it; the answer stands

    def _scene_of(self, snapshot: TenantSnapshot[Any]) -> Scene:
        # A route that a newer snapshot has not any more goes on for this call, which began under it.
        route = snapshot.route(self._request.route) or self._access.route
        target = self._request.target
        view = self._ports.decisions.view(
            snapshot.policies, self._principal, self._access.ref.route, target.model, route.mode
        )
        offer = sort_offer(self._offered, route, snapshot.by_name, view.permits)
        return Scene(snapshot, route, target, offer, view)


class _StateLostError(Exception):
    """Redis failed after a planning was made; the planning still answers."""

    def __init__(self, planned: Planned) -> None:
        super().__init__("session state was lost during the turn")
        self.planned = planned


def _same(planned: Planned, old: SessionState) -> bool:
    """Whether a planning leaves nothing to save."""
    new = planned.plan.state
    return planned.digests == old.last_answer and (
        new is old or (new.tools == old.tools and new.seeded == old.seeded and new.ranked_turns == old.ranked_turns)
    )
