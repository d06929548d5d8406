"""A planning that remembers, and takes its short cuts, against one that ranks the whole catalog and plans by the rules."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.support.rankable import tool
from toolbelay.application import planning
from toolbelay.application.indexes import TenantIndexes
from toolbelay.application.offer import sort_offer
from toolbelay.application.planning import Planned, plan_once
from toolbelay.application.ports import Ports
from toolbelay.application.scene import Scene
from toolbelay.application.turn import AUTO, ChoiceMode, SelectRequest, Target, ToolChoice
from toolbelay.catalog.formats import WireFormat, render
from toolbelay.catalog.model import Tool
from toolbelay.catalog.offered import Offered, parse_offered
from toolbelay.catalog.routes import Route
from toolbelay.catalog.snapshot import TenantSnapshot, build_snapshot
from toolbelay.catalog.surface import Digester
from toolbelay.clock import loop_time
from toolbelay.errors import ToolbelayError
from toolbelay.planner.model import EMPTY_STATE, Scored
from toolbelay.planner.plan import plan_by_rules, plan_turn
from toolbelay.ranking.index import CatalogIndex
from toolbelay.sessions import envelope
from toolbelay.sessions.port import Found, Opened
from toolbelay.storage.port import TenantRows

DIGEST = Digester(b"secret")
WORDS = ["invoice", "customer", "mail", "search", "file", "delete", "archive", "refund", "ticket", "user", "calendar"]
COUNT = 20
TURNS = 250
ROUTES = 8


class View:
    """Permits all but `denied`."""

    def __init__(self, denied: frozenset[str]) -> None:
        self.denied = denied

    @property
    def memory(self) -> object:
        return self

    def permits(self, tool: Tool) -> bool:
        return tool.tool_id not in self.denied

    def knows_catalog(self, tools: Mapping[str, Tool]) -> bool:
        return True

    async def prepare_catalog(self, tools: Mapping[str, Tool]) -> None:
        raise NotImplementedError


class Side:
    """One of the two: the same catalog, its own snapshots, index and memory. `plain`: without a memory and short cuts."""

    def __init__(self, *, plain: bool) -> None:
        self.plain = plain
        self.indexes = TenantIndexes(CatalogIndex)

    def take(self, tools: list[Tool]) -> None:
        rows = TenantRows(
            tenant="acme", generation=1, since=0, session_epoch=0, tools=tools, removed=(), policies=(), routes=()
        )
        self.snapshot: TenantSnapshot[None] = build_snapshot(rows, None, lambda _: None, DIGEST)
        self.indexes.take(self.snapshot)

    async def plan(
        self, request: SelectRequest, route: Route, view: View, offered: tuple[Offered, ...], opened: Opened
    ) -> Planned | str:
        offer = sort_offer(offered, route, self.snapshot.by_name, view.permits)
        scene = Scene(self.snapshot, route, request.target, offer, view)
        if self.plain:
            scene.memory = scene.ranking_memory = None
            scene._facts = {}
        ports = cast("Ports", SimpleNamespace(indexes=self.indexes, digest=DIGEST))
        try:
            return await plan_once(ports, request, scene, opened, deadline=loop_time() + 5)
        except ToolbelayError as error:
            return str(error)


class Game:
    """Sessions on a few routes, whose turns both sides plan."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.versions = [0] * COUNT
        self.ids = [made.tool_id for made in self.catalog()]
        self.routes = [self.route() for _ in range(ROUTES)]
        self.views = [View(frozenset(self.dice.sample(self.ids, most))) for most in (0, 0, 3, 8)]
        self.view = self.views[0]
        self.tails: dict[int, bytes] = {}
        self.turns = [0] * ROUTES
        self.remembered = envelope.TailMemo()

    def change(self, sides: list[Side], at: int, *, first: bool) -> None:
        """What an admin does between two turns, now and then."""
        dice = self.dice
        if first or dice.random() < 0.03:
            self.versions[dice.randrange(COUNT)] += not first
            tools = self.catalog(without=dice.choice([-1, -1, dice.randrange(COUNT)]))
            for side in sides:
                side.take(tools)
        if dice.random() < 0.04:
            self.view = dice.choice(self.views)
        if dice.random() < 0.04:
            self.routes[at] = self.route()
        if dice.random() < 0.08:
            self.tails.pop(at, None)

    def catalog(self, *, without: int = -1) -> list[Tool]:
        texts = [
            (number, f"{WORDS[number % len(WORDS)]} {WORDS[number * 7 % len(WORDS)]} {version or ''}")
            for number, version in enumerate(self.versions)
            if number != without
        ]
        made = [tool(f"set{number % 3}/{text.split()[0]}_{number}", text) for number, text in texts]
        return [dataclasses.replace(t, requires=frozenset("v" if t.tool_id.endswith("5") else "")) for t in made]

    def route(self) -> Route:
        dice = self.dice
        most = dice.choice([1, 2, 3, 4])
        options: dict[str, Any] = {
            "strategy": dice.choice(["hybrid", "hybrid", "keyword", "embedding", "static", "caller"]),
            "mode": dice.choice(["add"] * 5 + ["filter"]),
            "caller_tools": dice.choice(["keep", "rank"]),
            "seed_tools": dice.randint(0, most),
            "top_k": dice.choice([1, 2, 4, 8]),
            "similarity_threshold": dice.choice([None, 0.2, 0.5]),
            "preserve_count": dice.choice([0, 0, 2]),
            "core_tools": dice.sample(self.ids, dice.choice([0, 0, 1])),
            "required_tools": dice.sample(self.ids, dice.choice([0, 0, 0, 1])),
            "narrow": dice.choice(["none", "allowed_tools"]),
            "on_no_match": dice.choice(["core", "all", "none"]),
            "sticky": {
                "max_tools": most,
                "max_new_tools_per_turn": dice.choice([0, 1, 1]),
                "pin_called_tools": dice.random() < 0.85,
                "when_full": dice.choice(["keep", "keep", "keep", "replace_stale"]),
                "reseat_when_cold": dice.random() < 0.3,
            },
        }
        return Route.model_validate(options)

    def opened(self, at: int) -> Opened:
        dice, tail = self.dice, self.tails.get(at)
        if tail is None:
            return Opened(found=Found.ABSENT, state=EMPTY_STATE, token=b"", revision=0, turn=1)
        spent = dice.choice([0, 0, 0, 1, 2])
        return Opened(
            found=Found.PRESENT,
            state=self.remembered(tail),
            token=b"",
            revision=1,
            turn=self.turns[at],
            spent=spent,
            replayed=spent > 0,
            idle_ms=dice.choice([0, 0, 10**7]),
        )

    def request(self, held: TenantSnapshot[None], route: Route, opened: Opened) -> SelectRequest:
        dice = self.dice
        stored = [held.tools[t.tool_id].exposed_name for t in opened.state.tools if t.tool_id in held.tools]
        names = list(held.by_name)
        called = dice.choices(stored or names, k=dice.choice([0, 0, 0, 1, 2]))
        named = ToolChoice(ChoiceMode.NAMED, (dice.choice(names),))
        return SelectRequest(
            session_id="s",
            query=" ".join(dice.choices(WORDS, k=dice.choice([0, 1, 2, 3]))),
            called_tools=tuple(called if dice.random() < 0.95 else dice.choices(names, k=1)),
            target=Target(
                format=WireFormat.OPENAI_CHAT if dice.random() < 0.95 else dice.choice(list(WireFormat)),
                capabilities=frozenset("v" if dice.random() < 0.95 else ""),
                max_tools=dice.choice([0] * 8 + [2]),
            ),
            choice=dice.choice([AUTO] * 8 + [ToolChoice(ChoiceMode.NONE), named]),
            candidates=tuple(Scored(t, round(dice.random(), 2)) for t in dice.sample(self.ids, 4))
            if route.strategy == "caller"
            else (),
        )

    def offered(self, held: TenantSnapshot[None], route: Route, wire_format: WireFormat) -> tuple[Offered, ...]:
        count = self.dice.choice([0, 4, 16]) if route.mode == "filter" else self.dice.choice([0] * 9 + [2])
        some = self.dice.sample(list(held.tools.values()), count)
        return tuple(parse_offered([render(tool, wire_format) for tool in some], wire_format))

    def keep(self, at: int, planned: Planned) -> None:
        """As a save does."""
        state = structs.replace(planned.plan.state, last_answer=planned.digests)
        tail, _ = envelope.encode_tail(state)
        if self.dice.random() < 0.7:
            self.remembered.states.put(tail, state)
        self.tails[at] = tail


def answer_of(planned: Planned | str, route: Route) -> object:
    """All that a caller or the store sees of it, scores apart."""
    if isinstance(planned, str):
        return planned
    plan, ranking = planned.plan, planned.ranking
    return (
        [(item.tool_id, item.origin, item.pinned, item.definition) for item in planned.items],
        planned.digests,
        planned.footprint,
        planned.called_ignored,
        (plan.state, plan.outcome, plan.reason, plan.counts),
        plan.relevant if route.narrow != "none" and ranking.matches else None,
        (ranking.strategy, ranking.failed, ranking.ignored),
    )


@pytest.mark.parametrize("seed", range(8))
async def test_what_is_remembered_and_left_out_changes_no_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    game, quiet, full = Game(seed), 0, 0
    sides = [Side(plain=False), Side(plain=True)]
    for turn in range(TURNS):
        at = game.dice.choice([0, 1, 2, game.dice.randrange(ROUTES)])
        game.change(sides, at, first=turn == 0)
        route = game.routes[at]
        game.turns[at] += 1
        opened = game.opened(at)
        request = game.request(sides[0].snapshot, route, opened)
        offered = game.offered(sides[0].snapshot, route, request.target.format)
        for _ in range(2):  # the second time out of the memory
            found: list[Planned | str] = []
            for side in sides:
                monkeypatch.setattr(planning, "plan_turn", plan_by_rules if side.plain else plan_turn)
                found.append(await side.plan(request, route, game.view, offered, opened))
            assert answer_of(found[0], route) == answer_of(found[1], route), (route, request, opened)
        if isinstance(found[0], Planned):
            stays = opened.state.seeded and found[0].plan.state is opened.state
            quiet += stays
            full += stays and len(opened.state.tools) >= route.sticky.max_tools
            if not (stays and found[0].digests == opened.state.last_answer):
                game.keep(at, found[0])
    for side in sides:
        await side.indexes.close()
    assert quiet > TURNS / 20
    assert full > 0
