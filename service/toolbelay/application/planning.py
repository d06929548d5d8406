"""One planning of a turn, on one reading of its session: rank, plan, write out."""

from __future__ import annotations

from itertools import islice

from msgspec import Struct

from toolbelay.application.answer import Footprint, footprint, owned_items, planned_items
from toolbelay.application.called import Called, resolve_called
from toolbelay.application.ports import Ports
from toolbelay.application.quiet import QuietTurn, is_quiet, quiet_turns, without_scores
from toolbelay.application.rank import NOTHING, TurnRanking, rank_turn, rank_without_index
from toolbelay.application.scene import Scene
from toolbelay.application.turn import ChoiceMode, SelectedItem, SelectRequest, ToolChoice
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.planner.model import EMPTY_STATE, Plan, SessionState, TurnInput
from toolbelay.planner.plan import plan_turn
from toolbelay.planner.unchanged import unchanged
from toolbelay.sessions.port import Opened

_NO_CALLS = Called((), 0)


class Planned(Struct, frozen=True, gc=False):
    """A plan, and the answer that it makes. `digests`: of the items, in order."""

    plan: Plan
    scene: Scene
    ranking: TurnRanking
    items: tuple[SelectedItem, ...]
    digests: tuple[bytes, ...]
    footprint: Footprint
    called_ignored: int


async def plan_once(
    ports: Ports,
    request: SelectRequest,
    scene: Scene,
    opened: Opened | None,
    *,
    deadline: float,
    ranking: TurnRanking | None = None,
) -> Planned:
    """Plan a turn. `opened` `None`: without state. `ranking`: of an earlier try of the same call.

    Raises ToolbelayError REQUIRED_TOOL_UNAVAILABLE or REQUIRED_TOOLS_EXCEED_CAPACITY.
    """
    state = opened.state if opened is not None else EMPTY_STATE
    called = _NO_CALLS
    if request.called_tools:
        called = resolve_called(request.called_tools, scene, frozenset(t.tool_id for t in state.tools))
    quiet = _recalled(ports, request, scene, opened, called) if opened is not None else None
    if quiet is not None and opened is not None:
        if ranking is None:
            chooses = scene.route.narrow != "none" or not quiet.is_full(scene, opened.spent)
            ranking = await _rank(ports, request, scene, state, called, deadline, chooses=chooses)
        if not ranking.matches:
            return _quiet(quiet, quiet.plan, scene, ranking, quiet.items, called)
        if not (ranking.grows and quiet.grows(scene, ranking.matches, opened.spent)):
            plan, items = quiet.scored(ranking.matches, scene.route.top_k)
            return _quiet(quiet, plan, scene, ranking, items, called)
    named = _named(request.choice, scene)
    if ranking is None:
        ranking = await _rank(ports, request, scene, state, called, deadline)
    if not (state.seeded or ranking.matches) and scene.route.on_no_match == "all":
        await scene.learn(deadline)
    turn = _turn_input(scene, opened, state, called, named, ranking)
    plan = plan_turn(turn)
    items = planned_items(plan, scene, ports.digest)
    if scene.memory is not None and named is None and is_quiet(plan, state, items):
        plan_of_any = without_scores(plan)
        shown = planned_items(plan_of_any, scene, ports.digest)
        quiet_turns(scene).remember(scene, request.called_tools, plan_of_any, shown)
    if scene.offer.owned:
        items = (*owned_items(scene, ports.digest), *items)
    digests = tuple([item.digest for item in items])
    return Planned(plan, scene, ranking, items, digests, footprint(items, digests, scene), called.ignored)


def _quiet(
    quiet: QuietTurn, plan: Plan, scene: Scene, ranking: TurnRanking, items: tuple[SelectedItem, ...], called: Called
) -> Planned:
    """The planning of a turn that leaves its session as it is."""
    return Planned(plan, scene, ranking, items, quiet.state.last_answer, quiet.footprint, called.ignored)


def _recalled(ports: Ports, request: SelectRequest, scene: Scene, opened: Opened, called: Called) -> QuietTurn | None:
    """What is known of a turn that changes nothing, where nothing but its ranking could make it another.

    Of a session that is full it is found out: then a ranking need not look at the whole catalog.
    """
    state = opened.state
    if scene.memory is None or request.choice.mode is ChoiceMode.NAMED or _cold(scene, opened):
        return None
    known = quiet_turns(scene).recall(scene, state, request.called_tools, opened.turn)
    if known is not None or not state.seeded or len(state.tools) < scene.route.sticky.max_tools:
        return known
    plan = unchanged(_turn_input(scene, opened, state, called, None, NOTHING))
    if plan is None:
        return None
    items = planned_items(plan, scene, ports.digest)
    if not is_quiet(plan, state, items):
        return None
    return quiet_turns(scene).remember(scene, request.called_tools, without_scores(plan), items)


async def _rank(
    ports: Ports,
    request: SelectRequest,
    scene: Scene,
    state: SessionState,
    called: Called,
    deadline: float,
    *,
    chooses: bool = True,
) -> TurnRanking:
    ranking = rank_without_index(request, scene)
    if ranking is not None:
        return ranking
    pins = sorted((t for t in state.tools if t.pinned), key=lambda t: (t.called_turn, t.called_place))
    recent = dict.fromkeys((*(t.tool_id for t in pins), *called.tool_ids))
    route = scene.route
    present = len(state.tools) + len(route.core_tools) + len(route.required_tools) + len(called.tool_ids) + 1
    return await rank_turn(
        request,
        scene,
        ports.indexes,
        stored=tuple(t.tool_id for t in state.tools),
        called=tuple(recent),
        present=present,
        deadline=deadline,
        chooses=chooses,
    )


def _turn_input(
    scene: Scene,
    opened: Opened | None,
    state: SessionState,
    called: Called,
    named: str | None,
    ranking: TurnRanking,
) -> TurnInput:
    route, bounds = scene.route, scene.bounds
    matches = ranking.matches
    fill = () if state.seeded or matches else _on_no_match(scene, bounds.seed_tools, state, called)
    return TurnInput(
        state=state,
        facts=scene.facts(
            state.tools,
            called.tool_ids,
            route.required_tools,
            route.core_tools,
            () if named is None else (named,),
            (s.tool_id for s in matches or ()),
            fill,
        ),
        turn=opened.turn if opened is not None else 1,
        bounds=bounds,
        ranking=matches,
        grows=ranking.grows,
        called=called.tool_ids,
        required=route.required_tools,
        named=named,
        core=route.core_tools,
        fill=fill,
        spent=opened.spent if opened is not None else 0,
        replayed=opened is not None and opened.replayed,
        cold=opened is not None and _cold(scene, opened),
    )


def _cold(scene: Scene, opened: Opened) -> bool:
    """Whether the provider's prompt cache is cold and the route wants to use that. A replay never reseats."""
    sticky = scene.route.sticky
    return (
        sticky.reseat_when_cold
        and not opened.replayed
        and opened.idle_ms is not None
        and opened.idle_ms > sticky.prompt_cache_ttl_seconds * 1000
    )


def _named(choice: ToolChoice, scene: Scene) -> str | None:
    """The catalog tool that the choice names; a caller-owned one needs nothing. Raises rule 3's error."""
    if choice.mode is not ChoiceMode.NAMED or choice.names[0] in scene.offer.owned_names:
        return None
    tool = scene.by_name(choice.names[0])
    if tool is None:
        raise ToolbelayError(
            ErrorReason.REQUIRED_TOOL_UNAVAILABLE, "the named tool is not available to this caller and target"
        )
    return tool.tool_id


def _on_no_match(scene: Scene, most: int, state: SessionState, called: Called) -> tuple[str, ...]:
    """The route's on_no_match set, long enough for `most` beside what is there anyway. `core` is rule 3's business."""
    route = scene.route
    if route.on_no_match != "all":
        return ()
    there = {*(t.tool_id for t in state.tools), *called.tool_ids, *route.core_tools, *route.required_tools}
    return tuple(islice(scene.eligible_ids(), most + len(there) + 1))
