"""Required, named and core tools, and the tool_choice that comes back (rules 3, 13 and 14)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.world import (
    World,
    chat,
    choice,
    choice_of,
    letters_of,
    origins_of,
    outcome,
    reason,
    refused,
    target,
)

MakeWorld = Callable[..., World]
OMIT: tuple[str, list[str], bool] = ("AUTO", [], False)


def test_the_order_of_admission_within_one_turn(world: MakeWorld) -> None:
    place = world(seed_tools=2, core_tools=["crm/k", "crm/l"], required_tools=["crm/r"])
    answer = place.client.turn(ranked="abc", called="yx", tool_choice=choice("NAMED", "n"), offered=[chat("own")])
    assert letters_of(answer) == "[own]rnklyxab"
    assert origins_of(answer) == [
        "CALLER_OWNED", "REQUIRED", "REQUIRED", "CORE", "CORE", "ADDED_CALLED", "ADDED_CALLED", "SEEDED", "SEEDED",
    ]  # fmt: skip
    assert choice_of(answer) == ("NAMED", ["n"], False)


def test_a_required_tool_that_is_denied_is_an_error_and_changes_nothing(world: MakeWorld) -> None:
    place = world(seed_tools=2, required_tools=["crm/r"])
    place.client.turn(ranked="ab")
    before = place.client.session("s")
    place.forbid("r")
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn(ranked="cd", called="x")
    assert place.client.session("s").tools == before.tools
    place.forbid("")
    assert letters_of(place.client.turn()) == "rab"


def test_a_required_tool_that_leaves_the_catalog_is_an_error(world: MakeWorld) -> None:
    place = world(required_tools=["crm/r"])
    place.client.turn(ranked="ab")
    place.remove("r")
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn()


def test_required_tools_that_exceed_the_targets_places(world: MakeWorld) -> None:
    place = world(required_tools=["crm/r", "crm/s"])
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOLS_EXCEED_CAPACITY"):
        place.client.turn(target=target(max_tools=1))
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOLS_EXCEED_CAPACITY"):
        place.client.turn(target=target(max_tools=3), offered=[chat("o1"), chat("o2")])
    assert place.client.session("s").turn == 0
    assert letters_of(place.client.turn(target=target(max_tools=2))) == "rs"


def test_required_tools_and_a_target_without_tools(world: MakeWorld) -> None:
    place = world(required_tools=["crm/r"])
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn(target=target(supports_tools=False))
    plain = world()
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        plain.client.turn(target=target(supports_tools=False), tool_choice=choice("NAMED", "a"))


def test_a_required_tool_shadowed_by_the_callers_is_an_error(world: MakeWorld) -> None:
    place = world(required_tools=["crm/r"])
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn(offered=[chat("r", description="mine")])


def test_a_required_tool_that_the_target_cannot_carry_is_an_error(world: MakeWorld) -> None:
    place = world(required_tools=["crm/r"])
    place.put({**place.tools["r"], "requires": ["vision"]})
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn()
    assert letters_of(place.client.turn(ranked="a", target=target(capabilities=["vision"]))) == "ra"


def test_required_evicts_and_is_not_pinned(world: MakeWorld) -> None:
    place = world(max_tools=3, seed_tools=3)
    place.client.turn(ranked="abc")
    place.route(max_tools=3, required_tools=["crm/r"])
    answer = place.client.turn()
    assert (letters_of(answer), answer.receipt.evicted, place.client.pins()) == ("abr", 1, "")
    place.client.turn(called="xyz")
    assert sorted(place.client.stored()) == ["r", "y", "z"]


@pytest.mark.parametrize("name", ["nope", "b"])
def test_a_named_tool_that_is_denied_or_unknown_is_an_error_never_another_row_4(world: MakeWorld, name: str) -> None:
    place = world()
    place.forbid("b")
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn(ranked="a", tool_choice=choice("NAMED", name))
    assert place.client.session("s").turn == 0


def test_a_named_tool_is_kept_for_its_turn_and_evictable_after(world: MakeWorld) -> None:
    alice = world(max_tools=3, seed_tools=3).client
    alice.turn(ranked="abc")
    answer = alice.turn(tool_choice=choice("NAMED", "n"))
    assert (letters_of(answer), origins_of(answer)[-1], alice.pins()) == ("abn", "REQUIRED", "")
    assert letters_of(alice.turn(called="x")) == "abx"


def test_a_named_caller_owned_tool_counts(world: MakeWorld) -> None:
    alice = world(seed_tools=1).client
    answer = alice.turn(ranked="a", offered=[chat("mine")], tool_choice=choice("NAMED", "mine"))
    assert (letters_of(answer), choice_of(answer)) == ("[mine]a", ("NAMED", ["mine"], False))


def test_a_named_tool_is_not_hidden_by_the_cap(world: MakeWorld) -> None:
    alice = world(seed_tools=4).client
    alice.turn(ranked="abcd", called="a")
    answer = alice.turn(tool_choice=choice("NAMED", "d"), target=target(max_tools=1))
    assert (letters_of(answer), choice_of(answer)) == ("d", ("NAMED", ["d"], False))
    assert letters_of(alice.turn()) == "abcd"


def test_core_tools_take_unpinned_places_and_yield_to_calls_last(world: MakeWorld) -> None:
    place = world(max_tools=3, seed_tools=3)
    alice = place.client
    alice.turn(ranked="abc", called="a")
    place.route(max_tools=3, core_tools=["crm/k"])
    assert letters_of(alice.turn()) == "abk"
    assert letters_of(alice.turn(called="x")) == "akx"
    assert letters_of(alice.turn(called="y")) == "axy"
    assert letters_of(alice.turn()) == "axy"


def test_ineligible_core_tools_are_skipped(world: MakeWorld) -> None:
    place = world(seed_tools=1, core_tools=["crm/k"])
    place.forbid("k")
    assert letters_of(place.client.turn(ranked="a")) == "a"


@pytest.mark.parametrize(("mode", "dropped"), [("REQUIRED", True), ("NONE", False), ("AUTO", False)])
def test_without_tools_the_choice_is_to_be_omitted_row_4(world: MakeWorld, mode: str, dropped: bool) -> None:
    place = world(policies={})
    for answer in (
        place.client.turn(ranked="a", tool_choice=choice(mode)),
        place.client.turn("", ranked="a", tool_choice=choice(mode)),
        place.client.turn(target=target(supports_tools=False), tool_choice=choice(mode)),
    ):
        assert (letters_of(answer), choice_of(answer)) == ("", OMIT)
        assert (reason(answer) == "TOOL_CHOICE_DROPPED") == dropped


@pytest.mark.parametrize("mode", ["AUTO", "REQUIRED", "NONE"])
def test_the_choice_comes_back_as_it_was(world: MakeWorld, mode: str) -> None:
    alice = world(seed_tools=2).client
    alice.turn(ranked="ab")
    answer = alice.turn(ranked="c", tool_choice=choice(mode))
    assert choice_of(answer) == (mode, [], False)
    assert letters_of(answer) == ("ab" if mode == "NONE" else "abc")


def test_an_unspecified_choice_reads_as_auto(world: MakeWorld) -> None:
    assert choice_of(world().client.turn(ranked="a")) == OMIT


def test_none_still_takes_calls_and_keeps_the_list(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    first = alice.turn(ranked="xy", called="a", tool_choice=choice("NONE"))
    assert (outcome(first), reason(first), alice.stored()) == ("UNSEEDED", "NO_QUERY", "a")
    alice.turn(ranked="xy")
    answer = alice.turn(ranked="cd", called="b", tool_choice=choice("NONE"))
    assert (letters_of(answer), alice.pins()) == ("axyb", "ab")


def test_allowed_is_intersected_row_4(world: MakeWorld) -> None:
    alice = world(seed_tools=3).client
    answer = alice.turn(
        ranked="abc", offered=[chat("own")], tool_choice=choice("ALLOWED", "z", "c", "own", "c", "a", required=True)
    )
    assert (letters_of(answer), choice_of(answer)) == ("[own]abc", ("ALLOWED", ["c", "own", "a"], True))
    answer = alice.turn(tool_choice=choice("ALLOWED", "z", "y", required=True))
    assert (letters_of(answer), choice_of(answer), reason(answer)) == (
        "abc",
        ("NONE", [], False),
        "TOOL_CHOICE_DROPPED",
    )


def test_narrowing_moves_nothing(world: MakeWorld) -> None:
    place = world(seed_tools=4, top_k=3, narrow="allowed_tools", core_tools=["crm/k"], required_tools=["crm/r"])
    alice = place.client
    alice.turn(ranked="abcd")
    alice.turn(called="d")
    answer = alice.turn(ranked="ax", offered=[chat("own")])
    assert letters_of(answer) == "[own]rkabcdx"
    assert choice_of(answer) == ("ALLOWED", ["own", "r", "k", "a", "d", "x"], False)
    answer = alice.turn(ranked="a", offered=[chat("own")], tool_choice=choice("REQUIRED"))
    assert (outcome(answer), choice_of(answer)) == ("REUSED", ("ALLOWED", ["own", "r", "k", "a", "d"], True))


def test_narrowing_is_for_auto_and_required_on_ranked_turns_of_openai_formats(world: MakeWorld) -> None:
    alice = world(seed_tools=3, narrow="allowed_tools").client
    alice.turn(ranked="abc")
    nameless = b'{"type":"web_search"}'
    assert choice_of(alice.turn(called="a")) == OMIT
    assert choice_of(alice.turn(ranked={"nope": 1.0})) == OMIT
    assert choice_of(alice.turn(ranked="a", offered=[nameless])) == OMIT
    assert choice_of(alice.turn(ranked="a", target=target("ANTHROPIC_MESSAGES"))) == OMIT
    assert choice_of(alice.turn(ranked="a", tool_choice=choice("NONE"))) == ("NONE", [], False)
    assert choice_of(alice.turn(ranked="a", tool_choice=choice("NAMED", "b"))) == ("NAMED", ["b"], False)
    assert choice_of(alice.turn(ranked="a", tool_choice=choice("ALLOWED", "b"))) == ("ALLOWED", ["b"], False)
    answer = alice.turn(ranked="b", target=target("OPENAI_RESPONSES"))
    assert choice_of(answer) == ("ALLOWED", ["a", "b"], False)


def test_narrow_is_off_by_default(world: MakeWorld) -> None:
    alice = world(seed_tools=3).client
    assert choice_of(alice.turn(ranked="abc")) == OMIT
