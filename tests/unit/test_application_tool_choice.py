"""Rules 13 and 14 on items alone."""

from __future__ import annotations

import pytest

from toolbelay.application.tool_choice import answer_choice, narrowed
from toolbelay.application.turn import CALLER_OWNED, ChoiceMode, SelectedItem, ToolChoice
from toolbelay.catalog.surface import Rendered


def item(name: str, *, own: bool = False, pinned: bool = False) -> SelectedItem:
    origin = CALLER_OWNED if own else "RETAINED"
    return SelectedItem(Rendered("" if own else f"crm/{name}", name, "", b"{}", b""), origin, pinned)


ITEMS = (item("own", own=True), item("a"), item("b", pinned=True), item("c"))


@pytest.mark.parametrize("mode", ChoiceMode)
def test_rule_13_without_items_the_field_is_omitted(mode: ChoiceMode) -> None:
    back, dropped = answer_choice(ToolChoice(mode, ("x",)), ())
    assert back == ToolChoice(ChoiceMode.AUTO)
    assert dropped == (mode in (ChoiceMode.REQUIRED, ChoiceMode.ALLOWED))


@pytest.mark.parametrize("mode", [m for m in ChoiceMode if m is not ChoiceMode.ALLOWED])
def test_rule_13_other_choices_come_back_unchanged(mode: ChoiceMode) -> None:
    assert answer_choice(ToolChoice(mode), ITEMS) == (ToolChoice(mode), False)


def test_rule_13_allowed_is_intersected_once_each_in_the_callers_order() -> None:
    choice = ToolChoice(ChoiceMode.ALLOWED, ("c", "x", "own", "c"), required=True)
    assert answer_choice(choice, ITEMS) == (ToolChoice(ChoiceMode.ALLOWED, ("c", "own"), required=True), False)
    nothing = ToolChoice(ChoiceMode.ALLOWED, ("x",), required=True)
    assert answer_choice(nothing, ITEMS) == (ToolChoice(ChoiceMode.NONE), True)


def test_rule_14_names_the_callers_own_the_pinned_and_the_relevant() -> None:
    back = narrowed(ToolChoice(), ITEMS, frozenset({"crm/c", "crm/not here"}))
    assert back == ToolChoice(ChoiceMode.ALLOWED, ("own", "b", "c"))
    back = narrowed(ToolChoice(ChoiceMode.REQUIRED), ITEMS, frozenset())
    assert back == ToolChoice(ChoiceMode.ALLOWED, ("own", "b"), required=True)


@pytest.mark.parametrize("mode", [ChoiceMode.NONE, ChoiceMode.NAMED, ChoiceMode.ALLOWED])
def test_rule_14_other_choices_are_not_narrowed(mode: ChoiceMode) -> None:
    assert narrowed(ToolChoice(mode), ITEMS, frozenset()) is None


def test_rule_14_needs_a_name_for_every_item_of_the_caller() -> None:
    assert narrowed(ToolChoice(), (item("", own=True), *ITEMS), frozenset()) is None


def test_rule_14_narrows_to_something_or_not_at_all() -> None:
    assert narrowed(ToolChoice(), (item("a"),), frozenset()) is None
