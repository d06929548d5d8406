"""Rule 9: which requests are one turn."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from toolbelay.application.turn import ChoiceMode, SelectRequest, Target, ToolChoice
from toolbelay.application.turn_key import turn_key
from toolbelay.catalog.formats import WireFormat
from toolbelay.planner.model import Scored
from toolbelay.sessions.port import TurnKey

SECRET = b"a key of thirty-two bytes or more"
REQUEST = SelectRequest(turn_id="1", query="q", called_tools=("a", "b"), target=Target(capabilities=frozenset("xyz")))


def key(request: SelectRequest, offered: tuple[str, ...] = ("o",), secret: bytes = SECRET) -> TurnKey:
    made = turn_key(secret, request, offered)
    assert made is not None
    return made


def test_without_a_turn_id_there_is_no_key() -> None:
    assert turn_key(SECRET, replace(REQUEST, turn_id=""), ()) is None


def test_a_key_has_eight_bytes_of_identity_and_sixteen_of_content() -> None:
    assert (len(key(REQUEST).identity), len(key(REQUEST).content)) == (8, 16)


@pytest.mark.parametrize(
    "same",
    [
        {"candidates": (Scored("a/a", 1.0),)},
        {"session_id": "other"},
        {"route": "other"},
        {"min_generation": 7},
        {"offered_tools": (b"{}",)},
        {"target": Target(capabilities=frozenset("zyx"))},
    ],
)
def test_what_is_no_part_of_the_content(same: dict[str, object]) -> None:
    assert key(replace(REQUEST, **same)) == key(REQUEST)


@pytest.mark.parametrize(
    "other",
    [
        {"query": "r"},
        {"called_tools": ("a",)},
        {"called_tools": ("b", "a")},
        {"called_tools": ("ab",)},
        {"choice": ToolChoice(ChoiceMode.REQUIRED)},
        {"choice": ToolChoice(ChoiceMode.ALLOWED, ("a",))},
        {"choice": ToolChoice(ChoiceMode.ALLOWED, ("a",), required=True)},
        {"target": Target()},
        {"target": replace(REQUEST.target, format=WireFormat.MCP)},
        {"target": replace(REQUEST.target, model="m")},
        {"target": replace(REQUEST.target, max_tools=1)},
    ],
)
def test_what_is_part_of_the_content(other: dict[str, object]) -> None:
    changed = key(replace(REQUEST, **other))
    assert changed.content != key(REQUEST).content
    assert changed.identity == key(REQUEST).identity


def test_another_turn_id_is_another_turn() -> None:
    other = key(replace(REQUEST, turn_id="2"))
    assert other.identity != key(REQUEST).identity
    assert other.content != key(REQUEST).content


def test_fields_do_not_run_into_each_other() -> None:
    base = SelectRequest(turn_id="1")
    assert key(replace(base, called_tools=("a",)), ()).content != key(base, ("a",)).content
    assert key(replace(base, query="a"), ()).content != key(replace(base, called_tools=("a",)), ()).content


def test_the_key_is_keyed() -> None:
    assert key(REQUEST, secret=b"another key of thirty-two bytes.") != key(REQUEST)
