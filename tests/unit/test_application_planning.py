"""What a planning asks of the ranking: nothing of the whole catalog where the session is full and stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.unit.test_application_scene import View, snapshot
from toolbelay.application.answer import planned_items
from toolbelay.application.offer import Offer
from toolbelay.application.planning import Planned, plan_once
from toolbelay.application.ports import Ports
from toolbelay.application.scene import Scene
from toolbelay.application.turn import SelectRequest, Target
from toolbelay.catalog.model import Tool
from toolbelay.catalog.routes import Route
from toolbelay.catalog.snapshot import TenantSnapshot
from toolbelay.catalog.surface import Digester
from toolbelay.planner.model import Bounds, Fact, Scored, SessionState, Standing, StoredTool, TurnInput
from toolbelay.planner.plan import plan_turn
from toolbelay.ranking.port import Ranking, RankQuery
from toolbelay.sessions.port import Found, Opened

DIGEST = Digester(b"secret")
STORED = ("crm/t00000", "crm/t00002")
RANKED = ("crm/t00004", "crm/t00002")


class OpenView(View):
    async def prepare_catalog(self, tools: Mapping[str, Tool]) -> None:
        """Everything is known."""


class Index:
    """Ranks what it is told to; keeps the questions."""

    def __init__(self) -> None:
        self.asked: list[RankQuery] = []

    async def of(self, scene: Scene, deadline: float) -> Index:
        return self

    async def rank(self, query: RankQuery) -> Ranking:
        self.asked.append(query)
        ids = RANKED if query.chooses else [tool_id for tool_id in RANKED if tool_id in query.stored]
        return Ranking(tuple(Scored(tool_id, 0.5) for tool_id in ids), "hybrid")


def full(held: TenantSnapshot[None], view: View) -> SessionState:
    """A session of two tools whose last answer showed just them."""
    state = SessionState(seeded=True, tools=tuple(StoredTool(tool_id, bytes(32), False, 1) for tool_id in STORED))
    facts = {tool_id: Fact(Standing.ELIGIBLE, bytes(32)) for tool_id in STORED}
    plan = plan_turn(TurnInput(state, facts, turn=9, bounds=Bounds(max_tools=2, capacity=2)))
    items = planned_items(plan, Scene(held, Route(), Target(), Offer(), view), DIGEST)
    return structs.replace(state, last_answer=tuple(item.digest for item in items))


async def planned(
    index: Index, held: TenantSnapshot[None], view: View, state: SessionState, *, most: int = 2, **route: Any
) -> Planned:
    ports = cast("Ports", SimpleNamespace(indexes=index, digest=DIGEST))
    sticky = {"max_tools": most, "max_new_tools_per_turn": 1, **route}
    stage = Scene(held, Route.model_validate({"seed_tools": 2, "sticky": sticky}), Target(), Offer(), view)
    opened = Opened(found=Found.PRESENT, state=state, token=b"t", revision=1, turn=9)
    request = SelectRequest(session_id="s", query="invoices")
    return await plan_once(ports, request, stage, opened, deadline=asyncio.get_running_loop().time() + 5)


async def test_a_full_session_has_its_own_tools_scored_whether_it_is_known_or_not() -> None:
    index, held, view = Index(), snapshot(6), OpenView()
    state = full(held, view)
    first, second = [await planned(index, held, view, state) for _ in range(2)]
    assert [query.chooses for query in index.asked] == [False, False]
    assert first.items == second.items
    assert [(item.tool_id, item.score) for item in first.items] == [(STORED[0], 0.0), (STORED[1], 0.5)]
    assert first.plan.state is second.plan.state is state
    assert first.footprint == second.footprint


async def test_a_session_with_room_is_ranked_among_the_whole_catalog() -> None:
    index, held, view = Index(), snapshot(6), OpenView()
    grown = await planned(index, held, view, full(held, view), most=3)
    assert [query.chooses for query in index.asked] == [True]
    assert [item.tool_id for item in grown.items] == [*STORED, RANKED[0]]


@pytest.mark.parametrize("what", ["denied", "changed", "shown otherwise", "replaces the stale"])
async def test_a_full_session_that_may_change_is_ranked_among_the_whole_catalog(what: str) -> None:
    index, held = Index(), snapshot(6)
    view = OpenView(frozenset({STORED[0]} if what == "denied" else ()))
    state = full(held, OpenView())
    if what == "changed":
        state = structs.replace(state, tools=(structs.replace(state.tools[0], fingerprint=b"o" * 32), state.tools[1]))
    if what == "shown otherwise":
        state = structs.replace(state, last_answer=state.last_answer[:1])
    more: dict[str, Any] = {"when_full": "replace_stale"} if what == "replaces the stale" else {}
    await planned(index, held, view, state, **more)
    assert [query.chooses for query in index.asked] == [True]
