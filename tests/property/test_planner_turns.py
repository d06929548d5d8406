"""Random turns: the planner against the same rules written slowly, and what must hold of every plan."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.slow_planner import RequiredError, SlowPlan, slow_plan
from tests.support.turns import Table, fingerprint, scored
from toolbelay.errors import ToolbelayError
from toolbelay.planner.model import Bounds, Fact, Plan, SessionState, Standing, StoredTool, TurnInput
from toolbelay.planner.plan import plan_turn

IDS = "abcdefghijklmnop"
some_ids = st.lists(st.sampled_from(IDS), max_size=6, unique=True).map(tuple)


rankings = st.sampled_from([None, "", *["ranked"] * 6]).flatmap(
    lambda kind: (
        st.permutations(IDS).map(lambda ids: scored(ids[:8]))
        if kind == "ranked"
        else st.just(None if kind is None else ())
    )
)


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    max_tools = draw(st.sampled_from([9, 8, 10, 6, 4, 2, 1]))
    return Bounds(
        max_tools=max_tools,
        max_new_tools_per_turn=min(draw(st.sampled_from([2, 2, 3, 1, 0])), max_tools),
        top_k=draw(st.sampled_from([8, 8, 4, 2, 1])),
        seed_tools=draw(st.integers(0, max_tools)),
        capacity=draw(st.sampled_from([max_tools, max_tools, max_tools - 1, max_tools // 2])),
        pin_called_tools=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def facts(draw: st.DrawFn) -> dict[str, Fact]:
    odd = draw(st.dictionaries(st.sampled_from(IDS), st.sampled_from([*Standing, None]), max_size=5))
    changed = draw(st.sets(st.sampled_from(IDS), max_size=3))
    found = {t: Fact(Standing.ELIGIBLE, fingerprint(t, int(t in changed))) for t in IDS}
    for tool_id, standing in odd.items():
        if standing is None:
            del found[tool_id]
        else:
            found[tool_id] = replace(found[tool_id], standing=standing)
    return found


@st.composite
def states(draw: st.DrawFn, now: int) -> SessionState:
    ids = draw(st.lists(st.sampled_from(IDS), max_size=9, unique=True))
    tools = []
    for place, tool_id in enumerate(draw(st.permutations(ids))):
        called = draw(st.sampled_from([0, *range(1, now + 1)]))
        tools.append(StoredTool(tool_id, fingerprint(tool_id), bool(called), draw(st.integers(1, now)), called, place))
    order = {tool_id: at for at, tool_id in enumerate(ids)}
    tools.sort(key=lambda t: order[t.tool_id])
    return SessionState(seeded=draw(st.sampled_from([True, True, False])), tools=tuple(tools))


@st.composite
def turns(draw: st.DrawFn) -> TurnInput:
    now = draw(st.integers(1, 6))
    return TurnInput(
        state=draw(states(now)),
        facts=draw(facts()),
        turn=draw(st.sampled_from([now, now, max(now - 1, 1)])),
        bounds=draw(bounds()),
        ranking=draw(rankings),
        grows=draw(st.sampled_from([True, True, True, False])),
        called=tuple(draw(st.lists(st.sampled_from(IDS), max_size=8))),
        required=draw(st.sampled_from([(), (), (), ("k",), ("b", "a")])),
        named=draw(st.sampled_from([None, None, None, "c", "l"])),
        core=draw(st.sampled_from([(), (), ("d",), ("l", "d", "a", "d")])),
        fill=draw(some_ids),
        spent=draw(st.sampled_from([0, 0, 0, 1, 2])),
        cold=draw(st.sampled_from([False, False, False, True])),
    )


def eligible_ranking(turn: TurnInput) -> TurnInput:
    """The input as its documentation demands it: a ranking holds eligible tools only."""
    ok = {t for t, f in turn.facts.items() if f.standing is Standing.ELIGIBLE}
    ranking = None if turn.ranking is None else tuple(s for s in turn.ranking if s.tool_id in ok)
    return replace(turn, ranking=ranking)


def both(turn: TurnInput) -> tuple[Plan | None, SlowPlan | None]:
    """The planner's plan and the slow one; none where both refuse for the same reason."""
    plan: Plan | None = None
    expected: SlowPlan | None = None
    reason = due = ""
    try:
        plan = plan_turn(turn)
    except ToolbelayError as error:
        reason = error.reason.value
    try:
        expected = slow_plan(turn)
    except RequiredError as error:
        due = str(error)
    assert reason == due
    return plan, expected


@settings(max_examples=600, deadline=None)
@given(turns().map(eligible_ranking))
def test_the_planner_does_what_the_rules_say(turn: TurnInput) -> None:
    plan, expected = both(turn)
    if plan is None or expected is None:
        return
    assert [(t.tool_id, t.origin.value, t.pinned) for t in plan.tools] == expected.answer
    assert [(t.tool_id, t.pinned, t.first_seen_turn) for t in plan.state.tools] == expected.stored
    pins = sorted((t for t in plan.state.tools if t.pinned), key=lambda t: (t.called_turn, t.called_place))
    assert [t.tool_id for t in pins] == expected.recency
    assert (plan.outcome.value, plan.state.seeded) == (expected.outcome, expected.seeded)
    assert (plan.counts.evicted, plan.counts.hidden) == (expected.evicted, expected.hidden)


def planned(turn: TurnInput) -> Plan | None:
    try:
        return plan_turn(turn)
    except ToolbelayError:
        return None


def assert_sound(turn: TurnInput, plan: Plan) -> None:
    """What holds of every plan, whatever went in."""
    before = [t.tool_id for t in turn.state.tools]
    stored = [t.tool_id for t in plan.state.tools]
    answer = [t.tool_id for t in plan.tools]
    assert len(set(stored)) == len(stored) <= turn.bounds.max_tools
    assert len(set(answer)) == len(answer) <= turn.bounds.capacity
    for tool_id in answer:
        assert turn.facts[tool_id].standing is Standing.ELIGIBLE
    for tool in plan.state.tools:
        assert turn.facts[tool.tool_id].standing is not Standing.DENIED
        assert turn.facts[tool.tool_id].fingerprint == tool.fingerprint
        assert 1 <= tool.first_seen_turn <= max(turn.turn, *(t.first_seen_turn for t in turn.state.tools), 1)
    if not (turn.cold and turn.state.seeded and turn.ranking):
        unchanged = {
            t.tool_id for t in turn.state.tools if (f := turn.facts.get(t.tool_id)) and f.fingerprint == t.fingerprint
        }
        assert [t for t in stored if t in unchanged] == [t for t in before if t in unchanged and t in stored]
    counts = plan.counts
    assert counts.retained + counts.added == len(answer)
    left = counts.evicted + counts.removed_unauthorized + counts.removed_unavailable
    again = sum(1 for t in plan.state.tools if t.tool_id in before)
    assert len(before) - left == again
    assert counts.hidden == len(stored) - sum(1 for t in answer if t in stored)
    growth = sum(t.origin.value == "ADDED_RELEVANT" for t in plan.tools)
    assert growth <= max(turn.bounds.max_new_tools_per_turn - turn.spent, 0)


@settings(max_examples=300, deadline=None)
@given(turns(), st.booleans(), st.booleans())
def test_every_plan_is_sound(turn: TurnInput, replace_stale: bool, replayed: bool) -> None:
    turn = replace(turn, bounds=replace(turn.bounds, replace_stale=replace_stale), replayed=replayed)
    plan = planned(turn)
    if plan is not None:
        assert_sound(turn, plan)


@settings(max_examples=300, deadline=None)
@given(turns().map(eligible_ranking), st.booleans())
def test_a_turn_planned_on_its_own_result_changes_nothing(turn: TurnInput, replace_stale: bool) -> None:
    turn = replace(turn, bounds=replace(turn.bounds, replace_stale=replace_stale))
    first = planned(turn)
    if first is None:
        return
    again = replace(turn, state=first.state, spent=first.spent, replayed=True, cold=False)
    second = plan_turn(again)
    assert second.state == first.state
    assert [t.tool_id for t in second.tools] == [t.tool_id for t in first.tools]
    assert second.spent == first.spent
    third = plan_turn(
        replace(again, ranking=scored(reversed(IDS)) if first.state.seeded else turn.ranking, facts=turn.facts)
    )
    if first.state.seeded and first.spent >= turn.bounds.max_new_tools_per_turn:
        assert third.state == first.state


@settings(max_examples=200, deadline=None)
@given(turns())
def test_no_input_is_mutated(turn: TurnInput) -> None:
    facts_before, state_before = dict(turn.facts), turn.state
    planned(turn)
    assert (dict(turn.facts), turn.state) == (facts_before, state_before)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(alphabet="abcdefgh", max_size=4), min_size=1, max_size=8),
    st.integers(1, 6),
    st.integers(0, 6),
    st.data(),
)
def test_new_calls_whole_histories_and_windows_give_one_state(
    calls: list[str], max_tools: int, capacity: int, data: st.DataObject
) -> None:
    def table() -> Table:
        return Table(max_tools=max_tools, capacity=min(capacity, max_tools), seed_tools=min(3, max_tools))

    new, whole, window, again = table(), table(), table(), table()
    history = ""
    for called in calls:
        history += called
        new.turn("ijk", called)
        whole.turn("ijk", history)
        # A window holds at least what is new, in front of it any tail of what came before.
        cut = data.draw(st.integers(0, len(history) - len(called)))
        window.turn("ijk", history[cut:])
        again.turn("ijk", called)
        again.turn("ijk", again=(again.number, 0xFFFF), called=called)
        assert new.state == whole.state == again.state
        if capacity >= max_tools:
            assert window.state == new.state
