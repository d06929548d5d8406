"""The tool_choice that goes back with an answer (rules 13 and 14). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from toolbelay.application.turn import CALLER_OWNED, ChoiceMode, SelectedItem, ToolChoice

_OMIT = ToolChoice(ChoiceMode.AUTO)


def answer_choice(choice: ToolChoice, items: Sequence[SelectedItem]) -> tuple[ToolChoice, bool]:
    """The choice consistent with the items, and whether the caller's demand had to be dropped."""
    if not items:
        return _OMIT, choice.mode in (ChoiceMode.REQUIRED, ChoiceMode.ALLOWED)
    if choice.mode is not ChoiceMode.ALLOWED:
        return choice, False
    here = {item.name for item in items if item.name}
    names = tuple(name for name in dict.fromkeys(choice.names) if name in here)
    if not names:
        return ToolChoice(ChoiceMode.NONE), True
    return ToolChoice(ChoiceMode.ALLOWED, names, choice.required), False


def narrowed(choice: ToolChoice, items: Sequence[SelectedItem], relevant: frozenset[str]) -> ToolChoice | None:
    """ALLOWED over the part of the list that this turn needs; `None` where narrowing does not apply.

    `relevant`: tool ids that the turn's ranking, or the route, wants callable.
    """
    if choice.mode not in (ChoiceMode.AUTO, ChoiceMode.REQUIRED):
        return None
    if any(not item.name for item in items if item.origin == CALLER_OWNED):
        return None
    names = tuple(item.name for item in items if item.origin == CALLER_OWNED or item.pinned or item.tool_id in relevant)
    if not names:
        return None
    return ToolChoice(ChoiceMode.ALLOWED, names, choice.mode is ChoiceMode.REQUIRED)
