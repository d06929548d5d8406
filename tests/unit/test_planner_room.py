"""Rule 6: who leaves, and who hides, when there is no room."""

from __future__ import annotations

from tests.support.turns import Table, answered
from toolbelay.planner.model import Standing


def test_rule_6_hidden_unpinned_tools_leave_first() -> None:
    table = Table(max_tools=4, seed_tools=4)
    table.turn("abcd")
    table.stands(Standing.NOT_OFFERED, "a")
    plan = table.turn(called="x")
    assert (answered(plan), table.stored, plan.counts.evicted) == ("bcdx", "bcdx", 1)


def test_rule_6_then_the_newest_by_first_seen_turn() -> None:
    table = Table(max_tools=5, seed_tools=3)
    table.turn("abc")
    table.turn("de")
    assert answered(table.turn(called="x")) == "abcdx"
    assert answered(table.turn(called="xy")) == "abcxy"
    assert answered(table.turn(called="xyz")) == "abxyz"


def test_rule_6_first_seen_goes_before_position() -> None:
    table = Table(max_tools=4, seed_tools=4)
    table.turn("abcd")
    table.changed("a")
    assert answered(table.turn()) == "bcda"
    assert answered(table.turn(called="x")) == "bcdx"


def test_rule_6_hidden_pins_stay() -> None:
    table = Table(max_tools=3, seed_tools=3)
    table.turn("abc")
    table.turn(called="a")
    table.stands(Standing.SHADOWED, "a")
    plan = table.turn(called="x")
    assert (answered(plan), table.stored) == ("bx", "abx")


def test_rule_6_hidden_tools_make_room_for_relevance_too() -> None:
    table = Table(max_tools=4, seed_tools=4)
    table.turn("abcd")
    table.stands(Standing.NOT_CARRIED, "bc")
    plan = table.turn("x")
    assert (answered(plan), table.stored, plan.counts.evicted) == ("adx", "abdx", 1)
    assert answered(table.turn("xyz")) == "adxy"


def test_rule_6_hidden_pins_make_no_room_for_relevance() -> None:
    table = Table(max_tools=2, seed_tools=2)
    table.turn("ab")
    table.turn(called="ab")
    table.stands(Standing.NOT_CARRIED, "b")
    assert (answered(table.turn("x")), table.stored) == ("a", "ab")


def test_rule_6_hidden_tools_count_in_the_state_s_bound() -> None:
    table = Table(max_tools=4, seed_tools=4)
    table.turn("abcd")
    table.stands(Standing.NOT_CARRIED, "abcd")
    for ranked in ("ef", "gh", "ij"):
        table.turn(ranked)
        assert len(table.stored) <= 4
    assert table.stored == "efgh"


def test_rule_6_the_cap_hides_in_evictions_order_and_gives_back_in_place() -> None:
    table = Table(max_tools=6, seed_tools=6)
    table.turn("abcdef")
    table.turn(called="e")
    table.bound(capacity=3)
    plan = table.turn()
    assert (answered(plan), plan.counts.hidden, plan.counts.evicted) == ("abe", 3, 0)
    table.bound(capacity=6)
    assert answered(table.turn()) == "abcdef"


def test_rule_6_the_cap_hides_neither_required_nor_what_was_called_this_turn() -> None:
    table = Table(max_tools=6)
    table.turn("abcd")
    table.required = ("d",)
    table.bound(capacity=2)
    assert answered(table.turn(called="c")) == "cd"


def test_rule_6_the_cap_hides_core_after_all_that_is_neither_core_nor_pinned() -> None:
    table = Table(max_tools=6)
    table.core = ("k",)
    table.turn("ab")
    table.turn(called="b")
    table.bound(capacity=2)
    assert answered(table.turn()) == "kb"
    table.bound(capacity=1)
    assert answered(table.turn()) == "b"


def test_rule_6_relevance_admits_nothing_that_would_be_hidden_at_once() -> None:
    table = Table(max_tools=6, seed_tools=3)
    table.turn("abc")
    table.bound(capacity=3)
    plan = table.turn("xyz")
    assert (answered(plan), table.stored) == ("abc", "abc")
    table.bound(capacity=4)
    assert answered(table.turn("xyz")) == "abcx"


def test_rule_6_core_is_not_admitted_where_it_would_be_hidden_at_once() -> None:
    table = Table(max_tools=6, capacity=1)
    table.core = ("k", "l")
    table.turn(called="x")
    assert table.stored == "x"


def test_rule_6_no_place_in_the_answer_at_all() -> None:
    table = Table(max_tools=4)
    table.turn("abc")
    table.bound(capacity=0)
    plan = table.turn("xyz", called="y")
    assert (answered(plan), table.stored, plan.counts.hidden) == ("", "abc", 3)


def test_a_smaller_bound_evicts_in_order_and_keeps_pins() -> None:
    table = Table(max_tools=8)
    table.turn("abcdefgh")
    table.turn(called="hf")
    table.bound(max_tools=4)
    plan = table.turn()
    assert (answered(plan), plan.counts.evicted) == ("abfh", 4)
    table.bound(max_tools=1)
    assert answered(table.turn()) == "f"


def test_a_larger_bound_gives_room() -> None:
    table = Table(max_tools=2, seed_tools=2)
    table.turn("ab")
    assert answered(table.turn("cd")) == "ab"
    table.bound(max_tools=3)
    assert answered(table.turn("cd")) == "abc"


def test_rule_6_a_readmitted_tools_first_seen_turn_is_this_turn() -> None:
    table = Table(max_tools=2, seed_tools=2)
    table.turn("ab")
    table.turn(called="x")
    assert table.stored == "ax"
    table.turn(called="b")
    assert (table.stored, table.of("b").first_seen_turn) == ("xb", 3)


def test_rule_6_relevance_takes_no_shown_tools_place_though_the_answer_has_room() -> None:
    table = Table(max_tools=3, seed_tools=3)
    table.turn("abc")
    table.turn(called="c")
    table.stands(Standing.NOT_CARRIED, "c")
    plan = table.turn("xyz")
    assert (answered(plan), table.stored) == ("ab", "abc")
