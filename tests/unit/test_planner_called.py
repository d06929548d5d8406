"""Rule 4: what the assistant called is pinned; recency is read from order alone."""

from __future__ import annotations

import pytest

from tests.support.turns import Table, answered, origins
from toolbelay.planner.model import Standing


def test_rule_4_present_tools_are_pinned_where_they_stand() -> None:
    table = Table()
    table.turn("abcd")
    plan = table.turn(called="cb")
    assert (answered(plan), table.pins) == ("abcd", "bc")
    assert plan.counts.pinned == 2
    assert (table.of("c").called_turn, table.of("c").called_place) == (2, 0)
    assert (table.of("b").called_turn, table.of("b").called_place) == (2, 1)


def test_rule_4_missing_tools_are_appended_in_call_order_outside_the_budget() -> None:
    table = Table()
    table.turn("ab")
    plan = table.turn("pqrs", called="zyx")
    assert answered(plan) == "abzyxpq"
    assert [o for _, o in origins(plan)][2:5] == ["ADDED_CALLED"] * 3


def test_rule_12_the_last_occurrence_gives_the_order_within_one_turn() -> None:
    table = Table()
    table.turn(called="xyxzy")
    assert table.stored == "xzy"


def test_rule_4_a_missing_called_tool_evicts_when_full() -> None:
    table = Table(max_tools=4, seed_tools=4)
    table.turn("abcd")
    plan = table.turn(called="x")
    assert (answered(plan), plan.counts.evicted) == ("abcx", 1)


def test_rule_6_when_everything_is_pinned_the_one_called_longest_ago_leaves() -> None:
    table = Table(max_tools=3)
    table.turn(called="abc")
    table.turn(called="a")
    plan = table.turn(called="d")
    assert (answered(plan), table.pins, plan.counts.evicted) == ("acd", "acd", 1)


def test_rule_4_of_more_calls_than_places_the_most_recent_fit() -> None:
    table = Table(max_tools=3)
    plan = table.turn(called="abcdef")
    assert (answered(plan), plan.counts.evicted) == ("def", 0)


def test_rule_4_a_history_reported_again_moves_nothing() -> None:
    table = Table()
    table.turn("abcd")
    table.turn(called="ca")
    before = table.state
    for called in ("ca", "a", "", "c" + "a", "cca"):
        table.turn(called=called)
        assert table.state == before


def test_rule_4_a_tool_called_again_becomes_the_most_recent() -> None:
    table = Table(max_tools=3)
    table.turn(called="abc")
    table.turn(called="a")
    assert (table.of("a").called_turn, table.of("b").called_turn) == (2, 1)
    assert table.stored == "abc"


@pytest.mark.parametrize("standing", [s for s in Standing if s is not Standing.ELIGIBLE])
def test_rule_4_ineligible_calls_are_never_stored(standing: Standing) -> None:
    table = Table()
    table.turn("ab")
    table.stands(standing, "x")
    table.turn(called="x")
    assert (table.stored, table.pins) == ("ab", "")


def test_rule_4_a_hidden_unpinned_tool_that_is_called_is_not_pinned() -> None:
    table = Table()
    table.turn("ab")
    table.stands(Standing.NOT_CARRIED, "b")
    table.turn(called="b")
    assert (table.stored, table.pins) == ("ab", "")


def test_rule_4_a_hidden_pin_keeps_its_place_in_a_reported_history() -> None:
    table = Table()
    table.turn(called="abc")
    before = table.state
    table.stands(Standing.NOT_CARRIED, "b")
    table.turn(called="abc")
    assert table.state == before


def test_rule_4_without_pinning_old_pins_are_cleared_and_calls_ignored() -> None:
    table = Table()
    table.turn("ab", called="c")
    table.bound(pin_called_tools=False)
    plan = table.turn(called="ax")
    assert (answered(plan), table.pins, plan.counts.pinned) == ("cab", "", 0)


def test_rule_4_compacted_histories_lose_no_pin_row_27() -> None:
    table = Table()
    table.turn("abcdefgh")
    for number in range(10):
        table.turn(called="ab"[: 1 + number % 2])
    before = table.state
    for called in ("", "", "a", "b", "", "ab"):
        table.turn(called=called)
        assert (table.stored, table.pins) == (before.tools and "abcdefgh", "ab")


def test_rule_4_a_hundred_parallel_calls_do_not_break_the_bound_row_26() -> None:
    table = Table(max_tools=4)
    plan = table.turn("ab", called="".join("cdefghijkl"[i % 10] for i in range(100)))
    assert (answered(plan), table.pins) == ("ijkl", "ijkl")


def test_rule_4_a_smaller_target_takes_no_pin_from_the_state() -> None:
    table = Table(max_tools=4)
    table.turn(called="abcd")
    table.bound(capacity=2)
    plan = table.turn()
    assert (answered(plan), table.stored, table.pins) == ("cd", "abcd", "abcd")
    plan = table.turn(called="a")
    assert (answered(plan), table.pins) == ("ad", "abcd")
    table.bound(capacity=4)
    assert answered(table.turn()) == "abcd"


def test_rule_4_what_the_answer_has_no_place_for_is_not_admitted() -> None:
    table = Table(max_tools=4, capacity=2)
    plan = table.turn(called="abc")
    assert (answered(plan), table.stored) == ("bc", "bc")


def test_rule_10_an_older_turn_that_saves_late_does_not_undo_newer_pins_row_25() -> None:
    table = Table(max_tools=2)
    table.turn("xy")
    table.number = 2
    table.turn(called="a")  # turn 3
    table.turn(called="b")  # turn 4
    table.turn(called="c", again=(2, 0))  # turn 2 comes late
    assert table.pins == "ab"


def test_rule_10_an_older_turn_that_saves_late_adds_its_pins_where_there_is_room_row_25() -> None:
    table = Table(max_tools=3)
    table.turn("xyz")
    table.number = 2
    table.turn(called="a")
    table.turn(called="b")
    table.turn(called="c", again=(2, 0))
    assert table.pins == "abc"
    table.turn(called="d")
    assert table.pins == "abd"


def test_rule_4_a_hidden_pin_takes_no_place_in_the_answer() -> None:
    table = Table(max_tools=4, capacity=1)
    table.turn(called="h")
    table.stands(Standing.NOT_CARRIED, "h")
    plan = table.turn(called="xh")
    assert (answered(plan), table.stored) == ("x", "hx")
