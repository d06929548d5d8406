"""The turn that changes nothing, recognised before it is planned (most turns are such). Pure.

`unchanged` gives exactly what the planner would, or `None` where it is not sure; a property test holds the two equal.
What it must show is that nobody leaves, hides, comes, or moves among the pins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise

from toolbelay.planner.model import (
    Bounds,
    Counts,
    Origin,
    Outcome,
    Plan,
    PlannedTool,
    Scored,
    Standing,
    StoredTool,
    TurnInput,
)
from toolbelay.planner.recency import by_last_occurrence

_RETAINED = 65_536  # values without a score that the process shares


def unchanged(turn: TurnInput) -> Plan | None:
    """The plan of a turn that surely leaves its session as it is."""
    state, bounds, facts = turn.state, turn.bounds, turn.facts
    tools = state.tools
    if not state.seeded or bounds.replace_stale or turn.cold or len(tools) > min(bounds.max_tools, bounds.capacity):
        return None
    ids = [tool.tool_id for tool in tools]
    if turn.grows and may_grow(ids, turn.ranking or (), bounds, turn.spent):
        return None
    pinned = 0
    for tool in tools:
        fact = facts.get(tool.tool_id)
        if fact is None or fact.standing is not Standing.ELIGIBLE or fact.fingerprint != tool.fingerprint:
            return None
        pinned += tool.pinned
    if not _keeps_pins(turn, pinned) or not _has_all(turn, ids):
        return None
    scores = {scored.tool_id: scored.score for scored in turn.ranking or ()}
    if scores:
        planned = tuple([_with_score(tool, scores) for tool in tools])
        top = {scored.tool_id for scored in (turn.ranking or ())[: bounds.top_k]}
        relevant = frozenset(top.intersection(ids))
    else:
        planned = tuple([_retained(tool.tool_id, tool.pinned) for tool in tools])
        relevant = frozenset()
    return Plan(planned, state, Outcome.UPDATED, None, _counts(len(tools), pinned), turn.spent, relevant)


def _keeps_pins(turn: TurnInput, pinned: int) -> bool:
    """Whether every pin stays, in its order, and none comes."""
    if not turn.bounds.pin_called_tools:
        return not pinned
    if not turn.called:
        # More pins than places beside the required tools: some of them are required, and the planner counts exactly.
        return pinned <= turn.bounds.max_tools - len(turn.required) - (turn.named is not None)
    pins = sorted((t for t in turn.state.tools if t.pinned), key=_recency)
    order = [t.tool_id for t in pins]
    reported = by_last_occurrence(turn.called)
    distinct = all(_recency(a) < _recency(b) for a, b in pairwise(pins))
    timely = not pins or pins[-1].called_turn <= turn.turn
    return distinct and timely and order[len(order) - len(reported) :] == reported and len(reported) <= len(order)


def _has_all(turn: TurnInput, ids: Collection[str]) -> bool:
    """Whether all that must or may be there for the route's or the caller's sake is there."""
    if not (turn.required or turn.core or turn.named is not None):
        return True
    named = () if turn.named is None else (turn.named,)
    return {*turn.required, *turn.core, *named}.issubset(ids)


def may_grow(ids: Collection[str], ranking: Sequence[Scored], bounds: Bounds, spent: int) -> bool:
    """Whether a seeded session of visible tools `ids` may grow by this ranking (rule 5; not with `replace_stale`)."""
    return (
        spent < bounds.max_new_tools_per_turn
        and len(ids) < min(bounds.max_tools, bounds.capacity)
        and any(scored.tool_id not in ids for scored in ranking[: bounds.top_k])
    )


def _recency(tool: StoredTool) -> tuple[int, int]:
    return tool.called_turn, tool.called_place


def _with_score(tool: StoredTool, scores: dict[str, float]) -> PlannedTool:
    score = scores.get(tool.tool_id, 0.0)
    if score:
        return PlannedTool(tool.tool_id, Origin.RETAINED, tool.pinned, score)
    return _retained(tool.tool_id, tool.pinned)


@lru_cache(maxsize=_RETAINED)
def _retained(tool_id: str, pinned: bool) -> PlannedTool:  # noqa: FBT001 - a key, not a switch
    return PlannedTool(tool_id, Origin.RETAINED, pinned, 0.0)


@lru_cache(maxsize=_RETAINED)
def _counts(retained: int, pinned: int) -> Counts:
    return Counts(retained, 0, pinned, 0, 0, 0, 0, 0, 0)
