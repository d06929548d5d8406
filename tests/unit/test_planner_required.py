"""Rule 3: required, named and core tools."""

from __future__ import annotations

import pytest

from tests.support.turns import Table, answered, origins
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.planner.model import Standing
from toolbelay.planner.plan import plan_turn

NOT_ELIGIBLE = [s for s in Standing if s is not Standing.ELIGIBLE]


@pytest.mark.parametrize("standing", NOT_ELIGIBLE)
@pytest.mark.parametrize("how", ["required", "named"])
def test_rule_3_an_ineligible_required_tool_is_an_error(standing: Standing, how: str) -> None:
    table = Table()
    table.stands(standing, "r")
    table.required = ("r",) if how == "required" else ()
    with pytest.raises(ToolbelayError) as caught:
        table.turn("ab", named="r" if how == "named" else None)
    assert caught.value.reason is ErrorReason.REQUIRED_TOOL_UNAVAILABLE


def test_rule_3_a_required_tool_gone_from_the_catalog_is_an_error() -> None:
    table = Table()
    table.gone("r")
    table.required = ("r",)
    with pytest.raises(ToolbelayError) as caught:
        table.turn("ab")
    assert caught.value.reason is ErrorReason.REQUIRED_TOOL_UNAVAILABLE


@pytest.mark.parametrize("capacity", [0, 1])
def test_rule_3_more_required_tools_than_places_is_an_error(capacity: int) -> None:
    table = Table(capacity=capacity)
    table.required = ("r", "s")
    with pytest.raises(ToolbelayError) as caught:
        table.turn()
    assert caught.value.reason is ErrorReason.REQUIRED_TOOLS_EXCEED_CAPACITY


def test_rule_3_required_evicts_the_newest_unpinned_tool() -> None:
    table = Table(max_tools=4, seed_tools=4)
    table.turn("abcd")
    table.turn(called="d")
    table.required = ("r",)
    plan = table.turn()
    assert (answered(plan), plan.counts.evicted) == ("abdr", 1)
    assert origins(plan)[-1] == ("r", "REQUIRED")
    assert not table.of("r").pinned


def test_rule_3_required_evicts_the_pin_called_longest_ago_when_all_are_pinned() -> None:
    table = Table(max_tools=3)
    table.turn(called="abc")
    table.required = ("r",)
    plan = table.turn()
    assert (answered(plan), table.pins, plan.counts.evicted) == ("bcr", "bc", 1)


def test_rule_3_required_is_never_evicted() -> None:
    table = Table(max_tools=3)
    table.required = ("r", "s")
    table.turn()
    plan = table.turn(called="abc")
    assert (answered(plan), table.pins) == ("rsc", "c")


def test_rule_3_required_tools_are_not_pinned_unless_called() -> None:
    table = Table()
    table.required = ("r", "s")
    plan = table.turn(called="s")
    assert [(t.tool_id, t.pinned) for t in plan.tools] == [("r", False), ("s", True)]


def test_rule_3_named_is_required_for_its_turn_only() -> None:
    table = Table(max_tools=3, seed_tools=3)
    table.turn("abc")
    plan = table.turn(named="n")
    assert (answered(plan), origins(plan)[-1]) == ("abn", ("n", "REQUIRED"))
    plan = table.turn(called="x")
    assert (answered(plan), table.pins) == ("abx", "x")


def test_rule_3_and_12_order_of_admission() -> None:
    table = Table()
    table.turn("ab")
    table.changed("a")
    table.required, table.core = ("r", "s"), ("k", "l")
    plan = table.turn("yz", called="cd", named="n")
    assert answered(plan) == "barsnklcdyz"
    assert [o for _, o in origins(plan)] == [
        "RETAINED", "ADDED_CHANGED", "REQUIRED", "REQUIRED", "REQUIRED", "CORE", "CORE",
        "ADDED_CALLED", "ADDED_CALLED", "ADDED_RELEVANT", "ADDED_RELEVANT",
    ]  # fmt: skip


def test_rule_12_a_core_tool_that_is_called_too_is_admitted_as_core() -> None:
    table = Table()
    table.core = ("k", "l")
    plan = table.turn(called="al")
    assert answered(plan) == "kla"
    assert origins(plan)[1] == ("l", "CORE")
    assert table.pins == "la"


def test_rule_3_core_and_required_count_neither_against_seeds_nor_growth() -> None:
    table = Table(seed_tools=2)
    table.core, table.required = ("k",), ("r",)
    assert answered(table.turn("krabcd")) == "rkab"
    table.core = ("k", "l")
    assert answered(table.turn("lcdef")) == "rkablcd"


@pytest.mark.parametrize("standing", NOT_ELIGIBLE)
def test_rule_3_core_is_skipped_when_not_eligible(standing: Standing) -> None:
    table = Table()
    table.core = ("k",)
    table.stands(standing, "k")
    assert answered(table.turn("ab")) == "ab"


def test_rule_3_core_takes_an_unpinned_tools_place() -> None:
    table = Table(max_tools=3, seed_tools=3)
    table.turn("abc")
    table.turn(called="c")
    table.core = ("k",)
    plan = table.turn()
    assert (answered(plan), plan.counts.evicted) == ("ack", 1)


def test_rule_3_core_never_takes_a_pins_place() -> None:
    table = Table(max_tools=3)
    table.turn(called="abc")
    table.core = ("k",)
    plan = table.turn()
    assert (answered(plan), plan.counts.evicted) == ("abc", 0)


def test_rule_3_core_yields_to_called_only_when_nothing_else_is_unpinned() -> None:
    table = Table(max_tools=3)
    table.core = ("k",)
    table.turn("ab", called="a")
    assert answered(table.turn(called="c")) == "kac"
    assert answered(table.turn(called="d")) == "acd"
    assert table.pins == "acd"


def test_rule_3_core_yields_to_required_only_when_nothing_else_is_unpinned() -> None:
    table = Table(max_tools=3)
    table.core = ("k",)
    table.turn("ab", called="a")
    table.required = ("r",)
    assert answered(table.turn()) == "kar"
    table.required = ("r", "s")
    assert answered(table.turn()) == "ars"


def test_rule_3_relevance_never_takes_a_core_tools_place() -> None:
    table = Table(max_tools=3, replace_stale=True, stale_after_turns=1)
    table.core = ("k",)
    table.turn("ab")
    table.turn("cd")
    assert "k" in table.stored


def test_rule_3_an_error_leaves_the_input_alone() -> None:
    table = Table()
    table.turn("abc")
    before = table.state
    table.required = ("r",)
    table.gone("r")
    given = table.input("def")
    with pytest.raises(ToolbelayError):
        plan_turn(given)
    assert given.state is before
