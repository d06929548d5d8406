"""Turns that leave their session as it is, remembered: most turns are such, and each is like the one before it.

What such a turn answers depends on the session's state, the calls that it reports, its route and target, and on what
authority says of the state's tools. The first three are the key; the rest is one caller's memory under one snapshot
(`Scene.memory`), which is forgotten with the snapshot. Scores are this turn's own and are put in anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolbelay.application.answer import Footprint, footprint
from toolbelay.application.scene import Scene
from toolbelay.application.turn import SelectedItem
from toolbelay.catalog.routes import Route
from toolbelay.memo import Tally
from toolbelay.planner.model import Outcome, Plan, PlannedTool, Scored, SessionState
from toolbelay.planner.unchanged import may_grow

TURNS = Tally()  # for metrics
MAX_TURNS = 4_096  # of one snapshot; about 2 KB each


class QuietTurn(Struct, frozen=True, gc=False, eq=False):
    """What a turn without scores answers. `places`: of the items, by tool id. `latest`: the newest turn of a call."""

    memory: object
    state: SessionState
    route: Route
    plan: Plan
    items: tuple[SelectedItem, ...]
    footprint: Footprint
    places: Mapping[str, int]
    latest: int

    def is_full(self, scene: Scene, spent: int) -> bool:
        """Whether no ranking may change the session."""
        sticky = scene.route.sticky
        return len(self.places) >= sticky.max_tools or spent >= sticky.max_new_tools_per_turn

    def grows(self, scene: Scene, matches: Sequence[Scored], spent: int) -> bool:
        """Whether these matches may change the session."""
        return not self.is_full(scene, spent) and may_grow(self.places, matches, scene.bounds, spent)

    def scored(self, matches: Sequence[Scored], top_k: int) -> tuple[Plan, tuple[SelectedItem, ...]]:
        """The plan and the items with this turn's scores."""
        tools, items, places = list(self.plan.tools), list(self.items), self.places
        for match in matches:
            at = places.get(match.tool_id)
            if at is not None and match.score:
                tool, item = tools[at], items[at]
                tools[at] = PlannedTool(tool.tool_id, tool.origin, tool.pinned, match.score)
                items[at] = SelectedItem(item.shown, item.origin, item.pinned, match.score)
        relevant = frozenset([match.tool_id for match in matches[:top_k] if match.tool_id in places])
        plan = self.plan
        scored = Plan(tuple(tools), plan.state, plan.outcome, plan.reason, plan.counts, plan.spent, relevant)
        return scored, tuple(items)


class QuietTurns:
    """The memory of one snapshot; the least recently used go."""

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[object, ...], QuietTurn] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def recall(self, scene: Scene, state: SessionState, called: tuple[str, ...], turn: int) -> QuietTurn | None:
        """What is known of this turn, if it surely changes nothing but by growing."""
        key = _key(scene, state, called)
        found = self._turns.get(key)
        # Ids of objects are keys here: the entry holds the objects, so that nothing else can have their ids.
        if found is None or found.latest > turn:
            TURNS.misses += 1
            return None
        TURNS.hits += 1
        self._turns.move_to_end(key)
        return found

    def remember(self, scene: Scene, called: tuple[str, ...], plan: Plan, items: tuple[SelectedItem, ...]) -> QuietTurn:
        """Take note of a turn without scores whose plan leaves the state as it is, and whose answer is the last one."""
        places = {item.tool_id: at for at, item in enumerate(items)}
        latest = max((tool.called_turn for tool in plan.state.tools), default=0)
        come_to = footprint(items, plan.state.last_answer, scene)
        quiet = QuietTurn(scene.memory, plan.state, scene.route, plan, items, come_to, places, latest)
        self._turns[_key(scene, plan.state, called)] = quiet
        if len(self._turns) > MAX_TURNS:
            self._turns.popitem(last=False)
        return quiet


def quiet_turns(scene: Scene) -> QuietTurns:
    """The memory of the scene's snapshot."""
    turns: QuietTurns | None = scene.snapshot.memory.get("quiet")
    if turns is None:
        turns = scene.snapshot.memory["quiet"] = TURNS.count(QuietTurns())
    return turns


def is_quiet(plan: Plan, state: SessionState, items: Sequence[SelectedItem]) -> bool:
    """Whether a plan leaves the state as it is and shows just what the last answer did."""
    return (
        plan.state is state
        and plan.outcome is Outcome.UPDATED
        and len(items) == len(plan.tools)
        and tuple([item.digest for item in items]) == state.last_answer
    )


def without_scores(plan: Plan) -> Plan:
    """The same plan of a turn that ranks nothing."""
    tools = tuple([PlannedTool(tool.tool_id, tool.origin, tool.pinned, 0.0) for tool in plan.tools])
    return replace(plan, tools=tools, relevant=frozenset(), spent=0)


def _key(scene: Scene, state: SessionState, called: tuple[str, ...]) -> tuple[object, ...]:
    return id(scene.memory), id(state), id(scene.route), scene.target.max_tools, called
