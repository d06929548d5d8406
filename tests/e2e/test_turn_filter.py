"""Filter mode: the request's own array, narrowed (modes, rules 2, 3 and 12)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.world import (
    World,
    chat,
    choice,
    choice_of,
    letter,
    letters_of,
    outcome,
    reason,
    refused,
    schema,
    target,
)

MakeWorld = Callable[..., World]


def offer(letters: str) -> list[bytes]:
    return [chat(x) for x in letters]


def test_only_what_is_offered_is_answered_in_the_sessions_order(world: MakeWorld) -> None:
    alice = world(mode="filter").client
    first = alice.turn(ranked="cxa", offered=offer("abcd"))
    assert (letters_of(first), outcome(first), first.receipt.candidates_ignored) == ("ca", "SEEDED", 1)
    second = alice.turn(ranked="dcab", offered=offer("dcba"))
    assert letters_of(second) == "cadb"
    assert second.stable_prefix == 2


def test_shuffled_offers_give_equal_bytes_row_18(world: MakeWorld) -> None:
    alice = world(mode="filter").client
    first = alice.turn(ranked="abcd", offered=offer("abcdef"))
    for shuffled in ("fedcba", "cafebd"):
        again = alice.turn(ranked="abcd", offered=offer(shuffled))
        assert (outcome(again), again.receipt.surface_digest) == ("REUSED", first.receipt.surface_digest)
        assert [t.definition for t in again.tools] == [t.definition for t in first.tools]


def test_each_kept_item_has_the_callers_exact_bytes_of_this_turn(world: MakeWorld) -> None:
    alice = world(mode="filter").client
    alice.turn(ranked="ab", offered=offer("ab"))
    spaced = json.dumps(json.loads(chat("a")), indent=2, sort_keys=True).encode()
    answer = alice.turn(ranked="ab", offered=[chat("b"), spaced])
    assert (letters_of(answer), answer.tools[0].definition, answer.tools[1].definition) == ("ab", spaced, chat("b"))
    assert (answer.stable_prefix, outcome(answer)) == (0, "UPDATED")
    strict = chat("a", strict=True)
    assert alice.turn(ranked="ab", offered=[strict]).tools[0].definition == strict


def test_tools_not_offered_are_hidden_and_come_back(world: MakeWorld) -> None:
    alice = world(mode="filter").client
    alice.turn(ranked="abcd", offered=offer("abcd"))
    answer = alice.turn(offered=offer("ad"))
    assert (letters_of(answer), answer.receipt.hidden, answer.receipt.removed_incapable) == ("ad", 2, 0)
    assert letters_of(alice.turn(offered=offer("dcba"))) == "abcd"


def test_seeds_are_max_tools_in_filter_mode_and_growth_is_bounded_after(world: MakeWorld) -> None:
    alice = world(mode="filter", max_tools=10, top_k=3).client
    assert letters_of(alice.turn(ranked="abcdefghijkl", offered=offer("abcdefghijkl"))) == "abcdefghij"
    assert letters_of(alice.turn("s2", ranked="ab", offered=offer("abcdef"))) == "ab"
    assert letters_of(alice.turn("s2", ranked="abcdef", offered=offer("abcdef"))) == "abc"


def test_the_threshold_and_preserve_count(world: MakeWorld) -> None:
    alice = world(mode="filter", relevance_threshold=0.5, preserve_count=2).client
    assert letters_of(alice.turn(ranked={"a": 0.9, "b": 0.4, "c": 0.3}, offered=offer("abcd"))) == "ab"
    assert letters_of(alice.turn("s2", ranked={"a": 0.4, "b": 0.3, "c": 0.2}, offered=offer("abcd"))) == "ab"
    assert letters_of(alice.turn("s3", ranked={"a": 0.9, "b": 0.8, "c": 0.7}, offered=offer("abcd"))) == "abc"


def test_growth_and_bounds_win_over_preserve_count(world: MakeWorld) -> None:
    alice = world(mode="filter", max_tools=3, max_new_tools_per_turn=1, preserve_count=5).client
    assert letters_of(alice.turn(ranked="abcdef", offered=offer("abcdef"))) == "abc"
    alice.turn("s2", ranked={"a": 1.0}, offered=offer("a"))
    assert letters_of(alice.turn("s2", ranked="abcdef", offered=offer("abcdef"))) == "ab"


def test_callers_own_items_are_kept_first_by_default(world: MakeWorld) -> None:
    alice = world(mode="filter").client
    web = b'{"type":"web_search"}'
    answer = alice.turn(ranked="ab", offered=[chat("a"), chat("own"), web, chat("b")])
    assert letters_of(answer) == "[own][]ab"
    assert answer.receipt.caller_owned == 2
    assert answer.tools[1].definition == web


def test_caller_tools_drop(world: MakeWorld) -> None:
    alice = world(mode="filter", caller_tools="drop").client
    answer = alice.turn(ranked="ab", offered=[chat("a"), chat("own"), b'{"type":"web_search"}', chat("b")])
    assert (letters_of(answer), answer.receipt.offered_dropped, answer.receipt.caller_owned) == ("ab", 2, 0)


def test_caller_tools_rank(world: MakeWorld) -> None:
    alice = world(mode="filter", caller_tools="rank").client
    offered = [chat("own"), chat("a"), chat("other"), chat("b")]
    answer = alice.select("s", candidates=["crm/b", "caller/own"], offered=offered)
    assert [t.name for t in answer.tools] == ["b", "own"]
    assert answer.tools[1].definition == chat("own")
    answer = alice.select("s", offered=[chat("a")])
    assert ([t.name for t in answer.tools], answer.receipt.hidden) == ([], 2)
    answer = alice.select("s", offered=list(reversed(offered)), called_tools=["own"])
    assert [(t.name, t.pinned) for t in answer.tools] == [("b", False), ("own", True)]


def test_caller_tools_in_rank_mode_are_policys_too(world: MakeWorld) -> None:
    place = world(mode="filter", caller_tools="rank")
    place.permit('permit (principal, action, resource) unless { resource == Tool::"caller/own" };')
    answer = place.client.select("s", candidates=["caller/own", "caller/other"], offered=[chat("own"), chat("other")])
    assert [t.name for t in answer.tools] == ["other"]


def test_no_bypass_by_one_byte(world: MakeWorld) -> None:
    place = world(mode="filter")
    place.forbid("b")
    answer = place.client.turn(ranked="ab", offered=[chat("a"), chat("b"), chat("b2")])
    assert (letters_of(answer), answer.receipt.offered_dropped) == ("[b2]a", 0)
    answer = place.client.turn(ranked="ab", offered=[chat("a"), chat("b", description="tool b ")])
    assert (letters_of(answer), answer.receipt.offered_dropped) == ("a", 1)
    odd = b'{"type":"function","function":{"name":"b"},"b":1}'
    assert place.client.turn(ranked="a", offered=[odd]).receipt.offered_dropped == 1


def test_another_definition_of_a_permitted_tool_is_the_callers(world: MakeWorld) -> None:
    alice = world(mode="filter").client
    alice.turn(ranked="ab", offered=offer("ab"))
    mine = chat("b", version=3)
    answer = alice.turn(ranked="ab", called="b", offered=[chat("a"), mine])
    assert (letters_of(answer), answer.receipt.hidden, alice.pins()) == ("[b]a", 1, "")
    assert answer.tools[0].definition == mine


def test_all_denied_takes_tools_and_choice_together_row_4(world: MakeWorld) -> None:
    place = world(mode="filter")
    place.forbid("abc")
    answer = place.client.turn(ranked="abc", offered=offer("abc"), tool_choice=choice("REQUIRED"))
    assert (letters_of(answer), choice_of(answer), reason(answer)) == ("", ("AUTO", [], False), "TOOL_CHOICE_DROPPED")


def test_the_named_tool_is_kept_though_ranked_last_row_4(world: MakeWorld) -> None:
    place = world(mode="filter", max_tools=2)
    answer = place.client.turn(ranked="acb", offered=offer("abc"), tool_choice=choice("NAMED", "b"))
    assert (letters_of(answer), choice_of(answer)) == ("ba", ("NAMED", ["b"], False))
    place.forbid("b")
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn(ranked="acb", offered=offer("abc"), tool_choice=choice("NAMED", "b"))
    place.forbid("")
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn(ranked="acb", offered=offer("ac"), tool_choice=choice("NAMED", "b"))


def test_required_but_not_offered_is_an_error_core_and_called_are_skipped(world: MakeWorld) -> None:
    place = world(mode="filter", core_tools=["crm/k"])
    answer = place.client.turn(ranked="a", called="c", offered=offer("ab"))
    assert (letters_of(answer), answer.receipt.called_ignored) == ("a", 1)
    answer = place.client.turn(ranked="a", called="c", offered=offer("abck"))
    assert letters_of(answer) == "akc"
    place.route(mode="filter", required_tools=["crm/r"])
    with refused("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE"):
        place.client.turn(ranked="a", offered=offer("ab"))
    assert "r" in letters_of(place.client.turn(offered=offer("abr")))


def test_exact_duplicates_collapse_and_unequal_ones_are_refused_row_5(world: MakeWorld) -> None:
    alice = world(mode="filter").client
    answer = alice.turn(ranked="a", offered=[chat("a"), chat("own"), chat("a"), chat("own")])
    assert letters_of(answer) == "[own]a"
    with refused("INVALID_ARGUMENT", "INVALID_REQUEST", "offered_tools[2].definition"):
        alice.turn(ranked="a", offered=[chat("a"), chat("own"), chat("own", 2)])


def test_a_catalog_change_turns_the_old_offer_into_the_callers(world: MakeWorld) -> None:
    place = world(mode="filter")
    place.client.turn(ranked="ab", offered=offer("ab"))
    place.put(letter("b", 2))
    stale = place.client.turn(offered=offer("ab"))
    assert letters_of(stale) == "[b]a"
    fresh = place.client.turn(offered=[chat("a"), chat("b", 2)])
    assert letters_of(fresh) == "ab"


def test_on_no_match_is_bounded_by_what_is_offered(world: MakeWorld) -> None:
    alice = world(mode="filter", max_tools=3).client
    answer = alice.turn(offered=offer("zyxwv"))
    assert (letters_of(answer), outcome(answer), alice.stored()) == ("vwx", "UNSEEDED", "")


@pytest.mark.parametrize("ranked", ["", "abcdefgh"])
def test_a_hard_cap_counts_everything_row_3(world: MakeWorld, ranked: str) -> None:
    tools = [letter(f"t{i:03d}") for i in range(120)]
    alice = world(tools=tools, mode="filter", max_tools=128).client
    offered = [chat(t["name"]) for t in tools] + [chat(f"own{i}") for i in range(15)]
    scores = {t["name"]: 1.0 for t in tools} if ranked else {}
    answer = alice.turn(ranked=scores, offered=offered)
    assert (len(answer.tools), answer.receipt.caller_owned) == (128, 15)


def test_other_formats_are_recognized_by_content(world: MakeWorld) -> None:
    alice = world(mode="filter").client
    for name, key in (
        ("ANTHROPIC_MESSAGES", "input_schema"),
        ("MCP", "inputSchema"),
        ("OPENAI_RESPONSES", "parameters"),
    ):
        item = {"name": "a", "description": "tool a", key: schema()}
        if name.startswith("OPENAI"):
            item["type"] = "function"
        given = json.dumps(item).encode()
        answer = alice.turn(name, ranked="a", offered=[given], target=target(name))
        assert (letters_of(answer), answer.tools[0].definition) == ("a", given)
