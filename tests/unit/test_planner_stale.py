"""Rule 7: replace_stale and reseat_when_cold."""

from __future__ import annotations

import pytest

from tests.support.turns import Table, answered, origins
from toolbelay.planner.model import Outcome, Reason, Standing
from toolbelay.planner.plan import BUDGET_EXHAUSTED


@pytest.fixture
def table() -> Table:
    table = Table(max_tools=4, seed_tools=4, top_k=4, replace_stale=True)
    table.turn("abcd")
    return table


def test_rule_7_stale_tools_leave_newest_first_when_full(table: Table) -> None:
    assert answered(table.turn("wxyz")) == "abcd"
    assert answered(table.turn("wxyz")) == "abcd"
    plan = table.turn("wxyz")
    assert (answered(plan), plan.counts.evicted) == ("abwx", 2)
    assert answered(table.turn("wxyz")) == "wxyz"


def test_rule_7_keep_never_replaces(table: Table) -> None:
    table.bound(replace_stale=False)
    for _ in range(6):
        assert answered(table.turn("wxyz")) == "abcd"


def test_rule_7_pins_required_and_core_never_go_stale(table: Table) -> None:
    table.turn(called="d")
    table.core, table.required = ("c",), ("b",)
    for _ in range(6):
        table.turn("wxyz")
    assert table.stored == "bcdw"


def test_rule_7_what_comes_into_top_k_again_is_fresh(table: Table) -> None:
    table.turn("wxyz")
    table.turn("dwxy")
    table.turn("wxyz")
    assert table.stored == "adwx"


def test_rule_7_turns_that_rank_nothing_do_not_age(table: Table) -> None:
    for ranked in (None, "", None, ""):
        table.turn(ranked)
    assert answered(table.turn("wxyz")) == "abcd"
    assert table.state.ranked_turns == 2


def test_rule_7_one_budget_with_growth(table: Table) -> None:
    table.bound(max_tools=5)
    table.turn("abcw")
    table.turn("xyzv")
    table.turn("xyzv")
    plan = table.turn("xyzv")
    assert sum(o == "ADDED_RELEVANT" for _, o in origins(plan)) == 2


def test_rule_7_a_replay_does_not_age_and_does_not_drop_what_it_ranks(table: Table) -> None:
    table.turn("wxyz")
    table.turn("wxyz")
    before = table.state
    table.turn("wxyz", again=(3, 2))
    assert table.state == before


def test_rule_7_a_replay_drops_nothing_that_it_ranks_itself(table: Table) -> None:
    table.bound(max_new_tools_per_turn=0)
    for _ in range(3):
        table.turn("wxyz")
    table.bound(max_new_tools_per_turn=2)
    assert answered(table.turn("dwxy", again=(4, 0))) == "adwx"


def test_rule_7_a_cold_turn_with_a_match_rebuilds_the_set() -> None:
    table = Table(max_tools=8, seed_tools=3)
    table.turn("abcdef")
    table.turn(called="cb")
    table.required, table.core = ("r",), ("k",)
    plan = table.turn("xay", called="q", cold=True)
    assert answered(plan) == "bcrkqxay"
    assert (plan.outcome, plan.reason, plan.spent) == (Outcome.RESET, Reason.COLD, BUDGET_EXHAUSTED)
    assert dict(origins(plan))["a"] == "RETAINED"
    assert table.of("a").first_seen_turn == 3


@pytest.mark.parametrize("ranked", [None, ""])
def test_rule_7_a_cold_turn_without_a_match_reuses(ranked: str | None) -> None:
    table = Table()
    table.turn("abc")
    plan = table.turn(ranked, cold=True)
    assert (answered(plan), plan.outcome) == ("abc", Outcome.UPDATED)


def test_rule_7_a_cold_session_that_is_not_seeded_seeds() -> None:
    table = Table()
    table.turn(called="x")
    plan = table.turn("abc", cold=True)
    assert (answered(plan), plan.outcome) == ("xabc", Outcome.SEEDED)


def test_rule_7_a_reseat_keeps_hidden_pins_and_counts_who_left() -> None:
    table = Table(seed_tools=3)
    table.turn("abc")
    table.turn(called="b")
    table.stands(Standing.NOT_CARRIED, "b")
    table.stands(Standing.DENIED, "c")
    table.changed("a")
    plan = table.turn("xy", cold=True)
    assert (answered(plan), table.stored, table.pins) == ("xy", "bxy", "b")
    counts = plan.counts
    assert (counts.removed_unauthorized, counts.removed_changed, counts.evicted) == (1, 1, 1)
