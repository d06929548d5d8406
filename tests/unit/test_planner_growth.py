"""Rules 5, 8 and 9: the seed, growth, turns that rank nothing, and the one budget of a turn."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.support.turns import Table, answered, origins, scored
from toolbelay.planner.model import Fact, Outcome, Reason, Standing
from toolbelay.planner.plan import BUDGET_EXHAUSTED, plan_turn


def test_rule_5_the_first_turn_with_a_match_seeds() -> None:
    table = Table(seed_tools=3)
    plan = table.turn("dcba")
    assert (answered(plan), plan.outcome, plan.reason) == ("dcb", Outcome.SEEDED, None)
    assert {o for _, o in origins(plan)} == {"SEEDED"}
    assert [t.score for t in plan.tools] == [4.0, 3.0, 2.0]


def test_rule_5_seeds_come_beside_what_was_called() -> None:
    table = Table(seed_tools=2)
    plan = table.turn("abcd", called="xa")
    assert answered(plan) == "xabc"


def test_rule_5_a_seed_never_exceeds_the_bound() -> None:
    table = Table(max_tools=4, seed_tools=4)
    assert answered(table.turn("abcdef", called="xyz")) == "xyza"


def test_rule_5_growth_is_at_most_the_budget_a_turn_appended_at_the_end() -> None:
    table = Table(seed_tools=2)
    table.turn("ab")
    plan = table.turn("dcbae")
    assert (answered(plan), plan.outcome) == ("abdc", Outcome.UPDATED)
    assert origins(plan)[-1] == ("c", "ADDED_RELEVANT")
    assert answered(table.turn("dcbaefg")) == "abdcef"


def test_rule_5_stored_tools_count_among_the_first_top_k() -> None:
    table = Table(top_k=3, seed_tools=2)
    table.turn("ab")
    assert answered(table.turn("abcdef")) == "abc"
    assert answered(table.turn("abcdef")) == "abc"


def test_rule_5_a_growth_of_zero_is_a_choice() -> None:
    table = Table(seed_tools=2, max_new_tools_per_turn=0)
    table.turn("ab")
    assert answered(table.turn("cdef")) == "ab"
    assert answered(table.turn("cdef", called="x")) == "abx"


def test_rule_5_relevance_never_evicts_a_shown_tool() -> None:
    table = Table(max_tools=3, seed_tools=3)
    table.turn("abc")
    plan = table.turn("def")
    assert (answered(plan), plan.counts.evicted) == ("abc", 0)


@pytest.mark.parametrize(("ranked", "reason"), [(None, Reason.NO_QUERY), ("", Reason.NO_MATCH)])
def test_rule_5_before_the_seed_the_fill_is_answered_but_not_stored(ranked: str | None, reason: Reason) -> None:
    table = Table(seed_tools=3)
    table.core, table.required = ("k",), ("r",)
    plan = table.turn(ranked, called="x", fill=("a", "b", "c", "d"))
    assert (answered(plan), table.stored) == ("rkxabc", "rkx")
    assert (plan.outcome, plan.reason, table.state.seeded) == (Outcome.UNSEEDED, reason, False)
    assert plan.counts.added == 6
    plan = table.turn(ranked, fill=("a", "b", "c", "d"))
    assert [o for _, o in origins(plan)] == ["RETAINED"] * 3 + ["SEEDED"] * 3


def test_rule_5_the_fill_takes_no_more_than_seed_tools_and_the_capacity() -> None:
    table = Table(seed_tools=4, capacity=3)
    assert answered(table.turn(fill=tuple("abcdef"))) == "abc"
    table.bound(capacity=16)
    assert answered(table.turn(fill=tuple("abcdef"))) == "abcd"


def test_rule_5_the_fill_skips_what_is_there_and_what_is_not_eligible() -> None:
    table = Table(seed_tools=2)
    table.stands(Standing.DENIED, "b")
    assert answered(table.turn(called="a", fill=tuple("abcd"))) == "acd"


def test_rule_5_a_call_that_is_ignored_leaves_the_fill_whole() -> None:
    table = Table(seed_tools=2, pin_called_tools=False)
    assert answered(table.turn(called="a", fill=tuple("abcd"))) == "ab"


def test_rule_5_a_late_seed_comes_after_what_is_stored() -> None:
    table = Table(seed_tools=2)
    table.turn(called="x", fill=("a",))
    table.turn("")
    plan = table.turn("abc")
    assert (answered(plan), plan.outcome) == ("xab", Outcome.SEEDED)


@pytest.mark.parametrize("ranked", [None, ""])
def test_rule_8_after_the_seed_a_turn_without_match_reuses(ranked: str | None) -> None:
    table = Table()
    table.turn("abc")
    before = table.state
    plan = table.turn(ranked, fill=("x", "y"))
    assert (answered(plan), plan.outcome, table.state) == ("abc", Outcome.UPDATED, before)


def test_rule_8_a_turn_without_text_still_takes_calls() -> None:
    table = Table()
    table.turn("abc")
    assert (answered(table.turn(None, called="bx")), table.pins) == ("abcx", "bx")


def test_static_seeds_and_never_grows() -> None:
    table = Table(seed_tools=2)
    table.turn("abcd", grows=False)
    assert answered(table.turn("abcd", grows=False)) == "ab"


def test_rule_9_a_replay_of_a_seed_grows_nothing() -> None:
    table = Table(seed_tools=2)
    plan = table.turn("ab")
    assert plan.spent == BUDGET_EXHAUSTED
    assert answered(table.turn("cdef", again=(1, plan.spent))) == "ab"


def test_rule_9_tries_of_one_turn_spend_one_budget_between_them() -> None:
    table = Table(seed_tools=2)
    table.turn("ab")
    plan = table.turn("c")
    assert plan.spent == 1
    plan = table.turn("defg", again=(2, plan.spent))
    assert (answered(plan), plan.spent) == ("abcd", 2)
    plan = table.turn("efgh", again=(2, plan.spent))
    assert (answered(plan), plan.spent) == ("abcd", 2)


def test_rule_9_a_replay_moves_no_pin_row_25() -> None:
    table = Table(seed_tools=2)
    table.turn("ab", called="a")
    table.turn(called="b")
    table.turn(called="c")
    before = table.state
    for number, called in ((2, "b"), (1, "a"), (3, "c"), (2, "b")):
        table.turn(called=called, again=(number, BUDGET_EXHAUSTED))
        assert table.state == before


def test_rule_9_a_replay_answers_the_current_set_authorized_anew() -> None:
    table = Table()
    table.turn("abc")
    table.turn("def")
    table.stands(Standing.DENIED, "b")
    assert answered(table.turn("xyz", again=(1, BUDGET_EXHAUSTED))) == "acde"


def test_a_ranking_made_under_an_older_snapshot_admits_nothing_that_is_denied_now() -> None:
    """A turn that re-plans after a conflict keeps its ranking, while authority may have moved on."""
    for seeded in (False, True):
        table = Table(seed_tools=3)
        if seeded:
            table.turn("yz")
        given = replace(table.input("ab"), ranking=scored("abcd"))
        facts = {**given.facts, "a": Fact(Standing.DENIED, given.facts["a"].fingerprint)}
        del facts["b"]
        plan = plan_turn(replace(given, facts=facts))
        assert answered(plan) == ("yzcd" if seeded else "cd")
