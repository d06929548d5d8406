"""The short cut for a turn that changes nothing gives what the rules give, or nothing."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.property.test_planner_turns import IDS, eligible_ranking, rankings, turns
from tests.support.turns import fingerprint
from toolbelay.errors import ToolbelayError
from toolbelay.planner.model import Bounds, Fact, SessionState, Standing, StoredTool, TurnInput
from toolbelay.planner.plan import plan_by_rules
from toolbelay.planner.unchanged import unchanged


@st.composite
def quiet_turns(draw: st.DrawFn) -> TurnInput:
    """Turns of a settled session: whole histories or none, musts that are there, rankings that bring little."""
    stored = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=8, unique=True))
    pinned = draw(st.lists(st.sampled_from(stored), max_size=4, unique=True))
    tools = [
        StoredTool(t, fingerprint(t), t in pinned, 1, 1 if t in pinned else 0, pinned.index(t) if t in pinned else 0)
        for t in stored
    ]
    room = draw(st.sampled_from([0, 0, 1, 2]))
    some_stored = st.lists(st.sampled_from(stored), max_size=2).map(tuple)
    return TurnInput(
        state=SessionState(seeded=True, tools=tuple(tools), extra={"x": 1}),
        facts={t: Fact(Standing.ELIGIBLE, fingerprint(t)) for t in IDS},
        turn=draw(st.integers(1, 4)),
        bounds=Bounds(max_tools=len(stored) + room, top_k=draw(st.integers(1, 8)), capacity=len(stored) + room),
        ranking=draw(rankings),
        grows=draw(st.booleans()),
        called=tuple(pinned[draw(st.integers(0, len(pinned))) :]),
        required=draw(some_stored),
        named=draw(st.sampled_from([None, None, stored[0]])),
        core=draw(some_stored),
        spent=draw(st.sampled_from([0, 0, 1, 2, 0xFFFF])),
    )


@settings(max_examples=600, deadline=None)
@given(st.one_of(quiet_turns(), turns().map(eligible_ranking)), st.booleans(), st.booleans())
def test_the_short_cut_is_what_the_rules_give(turn: TurnInput, replace_stale: bool, replayed: bool) -> None:
    turn = replace(turn, bounds=replace(turn.bounds, replace_stale=replace_stale), replayed=replayed)
    short = unchanged(turn)
    assume(short is not None)
    assert short == plan_by_rules(turn)


@settings(max_examples=300, deadline=None)
@given(quiet_turns(), st.sampled_from(IDS), st.sampled_from([*Standing, "changed", "gone"]))
def test_one_fact_that_changed_ends_the_short_cut(turn: TurnInput, tool_id: str, what: Standing | str) -> None:
    facts = dict(turn.facts)
    fact = facts.pop(tool_id)
    if what == "changed":
        facts[tool_id] = replace(fact, fingerprint=fingerprint(tool_id, 1))
    elif isinstance(what, Standing):
        facts[tool_id] = replace(fact, standing=what)
    turn = eligible_ranking(replace(turn, facts=facts))
    stored = any(t.tool_id == tool_id for t in turn.state.tools)
    try:
        plan = plan_by_rules(turn)
    except ToolbelayError:
        assert unchanged(turn) is None
        return
    short = unchanged(turn)
    assert short is None or short == plan
    assert short is None or not stored or what is Standing.ELIGIBLE


@settings(max_examples=100, deadline=None)
@given(quiet_turns())
def test_a_full_session_whose_history_is_reported_again_takes_it(turn: TurnInput) -> None:
    full = replace(turn.bounds, max_tools=len(turn.state.tools), capacity=len(turn.state.tools))
    assert unchanged(replace(turn, bounds=full, required=(), named=None, core=())) is not None
