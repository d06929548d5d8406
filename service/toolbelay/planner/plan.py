"""The turn planner: prior state, authority and ranking in, a frozen plan out (rules 2 to 8).

`plan_turn` reads like the rules: who must be there, what of the stored set stays, what was called, then
seed or growth, and last what the target's cap hides. Room for what must be there is made before anything
is appended, so no step undoes another. The order of admission is the order of the answer: changed,
required, named, core, called, ranked.
"""

from __future__ import annotations

from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.planner.draft import Draft
from toolbelay.planner.model import (
    Counts,
    Origin,
    Outcome,
    Plan,
    PlannedTool,
    Reason,
    SessionState,
    Standing,
    TurnInput,
)
from toolbelay.planner.recency import Pins, wanted_pins
from toolbelay.planner.revalidate import Revalidated, pins_only, revalidate
from toolbelay.planner.unchanged import unchanged

BUDGET_EXHAUSTED = 0xFFFF  # what a seeding turn has spent: its repeats grow nothing


def plan_turn(turn: TurnInput) -> Plan:
    """Plan one turn.

    Raises ToolbelayError REQUIRED_TOOL_UNAVAILABLE or REQUIRED_TOOLS_EXCEED_CAPACITY (rule 3). Reads
    nothing but its argument and changes nothing of it.
    """
    return unchanged(turn) or plan_by_rules(turn)


def plan_by_rules(turn: TurnInput) -> Plan:
    """What `plan_turn` gives, without its short cut."""
    required = _required(turn)
    prior = revalidate(turn.state, turn.facts, turn=turn.turn, pins=turn.bounds.pin_called_tools)
    reseats = turn.cold and turn.state.seeded and bool(turn.ranking)
    start = pins_only(prior) if reseats else prior
    draft = Draft(turn, start, required, _pins(turn, start, required))
    draft.admit_must_haves()
    seeded = turn.state.seeded and not reseats
    spent = turn.spent
    if seeded:
        spent += draft.grow()
    elif turn.ranking:
        draft.seed()
        seeded, spent = True, BUDGET_EXHAUSTED
    return _finish(turn, prior, draft, seeded=seeded, reseats=reseats, spent=min(spent, BUDGET_EXHAUSTED))


def _required(turn: TurnInput) -> tuple[str, ...]:
    """Required tools in admission order, each once, each eligible, all of them fitting."""
    named = () if turn.named is None else (turn.named,)
    wanted = tuple(dict.fromkeys((*turn.required, *named)))
    for tool_id in wanted:
        fact = turn.facts.get(tool_id)
        if fact is None or fact.standing is not Standing.ELIGIBLE:
            what = "a tool that the route requires" if tool_id in turn.required else "the named tool"
            raise ToolbelayError(
                ErrorReason.REQUIRED_TOOL_UNAVAILABLE, f"{what} is not available to this caller and target"
            )
    if len(wanted) > turn.bounds.capacity:
        raise ToolbelayError(
            ErrorReason.REQUIRED_TOOLS_EXCEED_CAPACITY,
            f"{len(wanted)} tools are required; the answer has room for {turn.bounds.capacity}",
        )
    return wanted


def _pins(turn: TurnInput, prior: Revalidated, required: tuple[str, ...]) -> Pins:
    if not turn.bounds.pin_called_tools:
        return Pins({}, frozenset())
    stored = (*prior.kept, *prior.changed)
    pinned = tuple(t for t in stored if t.pinned)
    if not turn.called and not pinned:
        return Pins({}, frozenset())
    pinned_ids = {t.tool_id for t in pinned}
    eligible = {
        t for t in turn.called if (fact := turn.facts.get(t)) is not None and fact.standing is Standing.ELIGIBLE
    }
    present = {t.tool_id for t in stored}
    return wanted_pins(
        pinned,
        # A pin that this turn hides keeps its place in a history that reports it.
        [t for t in turn.called if t in eligible or t in pinned_ids],
        turn=turn.turn,
        required=required,
        present=present,
        visible=(present - prior.hidden) | eligible,
        state_places=turn.bounds.max_tools - len(required),
        answer_places=turn.bounds.capacity - len(required),
    )


def _finish(turn: TurnInput, prior: Revalidated, draft: Draft, *, seeded: bool, reseats: bool, spent: int) -> Plan:
    shown = draft.shown()
    fill = () if seeded else draft.fill(turn.bounds.capacity - len(shown))
    scores = {s.tool_id: s.score for s in turn.ranking or ()}
    tools = (
        *[PlannedTool(t.tool_id, draft.origins[t.tool_id], t.pinned, scores.get(t.tool_id, 0.0)) for t in shown],
        *[PlannedTool(tool_id, Origin.SEEDED, False, scores.get(tool_id, 0.0)) for tool_id in fill],
    )
    outcome, reason = _outcome(turn, seeded=seeded, reseats=reseats)
    top = {s.tool_id for s in (turn.ranking or ())[: turn.bounds.top_k]}
    top |= {tool_id for tool_id, origin in draft.origins.items() if origin is Origin.SEEDED}
    return Plan(
        tools=tools,
        state=SessionState(
            seeded=seeded,
            tools=tuple(draft.tools),
            ranked_turns=draft.ranked_turns,
            last_answer=turn.state.last_answer,
            extra=turn.state.extra,
        ),
        outcome=outcome,
        reason=reason,
        counts=_counts(turn, prior, draft, tools),
        spent=spent,
        relevant=frozenset([t.tool_id for t in tools if t.tool_id in top]),
    )


def _outcome(turn: TurnInput, *, seeded: bool, reseats: bool) -> tuple[Outcome, Reason | None]:
    if reseats:
        return Outcome.RESET, Reason.COLD
    if not seeded:
        return Outcome.UNSEEDED, Reason.NO_QUERY if turn.ranking is None else Reason.NO_MATCH
    return (Outcome.UPDATED if turn.state.seeded else Outcome.SEEDED), None


def _counts(turn: TurnInput, prior: Revalidated, draft: Draft, tools: tuple[PlannedTool, ...]) -> Counts:
    retained = sum([t.origin is Origin.RETAINED for t in tools])
    stayed = {t.tool_id for t in draft.tools}
    return Counts(
        retained=retained,
        added=len(tools) - retained,
        pinned=sum([t.pinned for t in tools]),
        evicted=len({t.tool_id for t in (*prior.kept, *prior.changed)} - stayed),
        removed_unauthorized=prior.unauthorized,
        removed_unavailable=prior.unavailable,
        removed_changed=len(prior.changed),
        removed_incapable=sum([turn.facts[t].standing is Standing.NOT_CARRIED for t in stayed]),
        hidden=len(draft.tools) - sum([t.tool_id in stayed for t in tools]),
    )
