"""Rule 2: every stored tool is looked up again, each turn."""

from __future__ import annotations

import pytest

from tests.support.turns import Table, answered, origins
from toolbelay.planner.model import Outcome, Standing

HIDING = [Standing.NOT_CARRIED, Standing.NOT_OFFERED, Standing.SHADOWED]


@pytest.fixture
def table() -> Table:
    table = Table(max_tools=8)
    table.turn("abcdef")
    table.turn(called="b")
    return table


def test_rule_2_nothing_moves_without_cause(table: Table) -> None:
    before = table.state
    plan = table.turn()
    assert answered(plan) == "abcdef"
    assert {o for _, o in origins(plan)} == {"RETAINED"}
    assert plan.outcome is Outcome.UPDATED
    assert plan.state == before


def test_rule_2_denied_tools_leave_answer_and_state_pinned_or_not(table: Table) -> None:
    table.stands(Standing.DENIED, "bd")
    plan = table.turn()
    assert (answered(plan), table.stored, table.pins) == ("acef", "acef", "")
    assert (plan.counts.removed_unauthorized, plan.counts.removed_unavailable) == (2, 0)


def test_rule_2_tools_gone_from_the_catalog_leave_and_are_counted_apart(table: Table) -> None:
    table.gone("bf")
    plan = table.turn()
    assert (answered(plan), table.stored) == ("acde", "acde")
    assert (plan.counts.removed_unauthorized, plan.counts.removed_unavailable) == (0, 2)


def test_rule_2_a_denied_tool_that_is_permitted_again_is_not_brought_back(table: Table) -> None:
    table.stands(Standing.DENIED, "b")
    table.turn()
    table.stands(Standing.ELIGIBLE, "b")
    assert answered(table.turn()) == "acdef"


@pytest.mark.parametrize("standing", HIDING)
def test_rule_2_hidden_tools_keep_their_place_and_their_pin(table: Table, standing: Standing) -> None:
    table.stands(standing, "bc")
    plan = table.turn()
    assert (answered(plan), table.stored, table.pins, plan.counts.hidden) == ("adef", "abcdef", "b", 2)
    assert plan.counts.removed_incapable == (2 if standing is Standing.NOT_CARRIED else 0)
    table.stands(Standing.ELIGIBLE, "bc")
    plan = table.turn()
    assert (answered(plan), plan.counts.hidden) == ("abcdef", 0)
    assert {o for _, o in origins(plan)} == {"RETAINED"}


def test_rule_2_a_changed_definition_moves_the_tool_to_the_end_and_keeps_its_pin(table: Table) -> None:
    table.changed("be")
    plan = table.turn()
    assert answered(plan) == "acdfbe"
    assert origins(plan)[-2:] == [("b", "ADDED_CHANGED"), ("e", "ADDED_CHANGED")]
    assert plan.counts.removed_changed == 2
    assert table.pins == "b"
    assert table.of("b").first_seen_turn == 3
    assert (table.of("b").called_turn, table.of("b").called_place) == (2, 0)
    assert answered(table.turn()) == "acdfbe"


def test_rule_2_a_changed_tool_is_outside_the_growth_budget(table: Table) -> None:
    table.changed("e")
    plan = table.turn("gh")
    assert answered(plan) == "abcdfegh"
    assert [o for _, o in origins(plan)][-3:] == ["ADDED_CHANGED", "ADDED_RELEVANT", "ADDED_RELEVANT"]


def test_rule_2_a_changed_tool_that_is_now_denied_is_counted_as_denied(table: Table) -> None:
    table.changed("e")
    table.stands(Standing.DENIED, "e")
    plan = table.turn()
    assert table.stored == "abcdf"
    assert (plan.counts.removed_unauthorized, plan.counts.removed_changed) == (1, 0)


@pytest.mark.parametrize("standing", HIDING)
def test_rule_2_a_changed_tool_is_hidden_where_this_turn_would_hide_it(table: Table, standing: Standing) -> None:
    table.changed("b")
    table.stands(standing, "b")
    plan = table.turn()
    assert (answered(plan), table.stored, table.pins) == ("acdef", "acdefb", "b")
    assert plan.counts.removed_changed == 1
    table.stands(Standing.ELIGIBLE, "b")
    assert origins(table.turn())[-1] == ("b", "RETAINED")


def test_rule_2_a_tool_removed_and_returned_is_new(table: Table) -> None:
    table.gone("b")
    table.turn()
    table.facts["b"] = Table("b").facts["b"]
    plan = table.turn(called="b")
    assert (answered(plan), origins(plan)[-1]) == ("acdefb", ("b", "ADDED_CALLED"))
    assert table.of("b").first_seen_turn == 4
