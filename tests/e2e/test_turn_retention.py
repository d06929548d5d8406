"""A session's turns over gRPC: what stays, what comes, what leaves (rules 2, 4, 5, 6 and 8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.world import (
    World,
    chat,
    letter,
    letters_of,
    origins_of,
    outcome,
    reason,
    target,
)

MakeWorld = Callable[..., World]


def test_a_session_seeds_reuses_and_grows(world: MakeWorld) -> None:
    alice = world(seed_tools=3).client
    first = alice.turn(ranked="abcdef")
    assert (letters_of(first), outcome(first), first.stable_prefix, first.receipt.turn) == ("abc", "SEEDED", 0, 1)
    second = alice.turn(ranked="cab")
    assert (letters_of(second), outcome(second), second.stable_prefix) == ("abc", "REUSED", 3)
    assert [t.definition for t in second.tools] == [t.definition for t in first.tools]
    assert second.receipt.surface_digest == first.receipt.surface_digest
    assert (second.receipt.turn, second.receipt.revision) == (2, first.receipt.revision)
    third = alice.turn(ranked="fedcba")
    assert (letters_of(third), outcome(third), third.stable_prefix) == ("abcfe", "UPDATED", 3)
    assert origins_of(third)[3:] == ["ADDED_RELEVANT"] * 2
    assert third.receipt.surface_digest != first.receipt.surface_digest
    assert (third.receipt.strategy, second.receipt.strategy) == ("caller", "caller")


def test_growth_goes_by_score_and_then_by_tool_id(world: MakeWorld) -> None:
    alice = world(seed_tools=3).client
    assert letters_of(alice.turn(ranked={"c": 1, "a": 1, "b": 1, "z": 2, "y": -5})) == "zab"


def test_candidates_that_are_unknown_or_denied_are_skipped_and_counted(world: MakeWorld) -> None:
    place = world(seed_tools=8)
    place.forbid("b")
    answer = place.client.turn(ranked={"a": 3, "b": 2, "nope": 1, "c": 0})
    assert (letters_of(answer), answer.receipt.candidates_ignored) == ("ac", 2)


def test_a_threshold_of_the_route_gates_seed_and_growth(world: MakeWorld) -> None:
    alice = world(similarity_threshold=0.5, on_no_match="none").client
    low = alice.turn(ranked={"a": 0.4})
    assert (letters_of(low), outcome(low), reason(low)) == ("", "UNSEEDED", "NO_MATCH")
    assert letters_of(alice.turn(ranked={"a": 0.5, "b": 0.49})) == "a"
    assert letters_of(alice.turn(ranked={"b": 0.49, "c": 0.6})) == "ac"


def test_called_tools_are_pinned_and_missing_ones_appended(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    alice.turn(ranked="ab")
    answer = alice.turn(ranked="cdef", called="bzy")
    assert letters_of(answer) == "abzycd"
    assert [t.pinned for t in answer.tools] == [False, True, True, True, False, False]
    assert origins_of(answer) == ["RETAINED"] * 2 + ["ADDED_CALLED"] * 2 + ["ADDED_RELEVANT"] * 2
    tools = {t.tool_id: t for t in alice.session("s").tools}
    assert (tools["crm/z"].first_seen_turn, tools["crm/z"].last_called_turn) == (2, 2)
    assert (tools["crm/b"].first_seen_turn, tools["crm/b"].last_called_turn) == (1, 2)
    assert tools["crm/c"].last_called_turn == 0


def test_unknown_and_ineligible_calls_are_counted_and_never_stored_row_26(world: MakeWorld) -> None:
    place = world(seed_tools=1)
    place.forbid("d")
    answer = place.client.turn(ranked="a", called=["b", "nope", "searchsearchsearch", "d", "c", "b", "crm/e"])
    assert (letters_of(answer), answer.receipt.called_ignored) == ("cba", 4)
    assert (place.client.stored(), place.client.pins()) == ("cba", "cb")


def test_names_run_together_cost_one_call_not_the_turn_row_26(world: MakeWorld) -> None:
    alice = world(seed_tools=1).client
    answer = alice.turn(ranked="a", called=["search" * 100, "b"])
    assert (letters_of(answer), answer.receipt.called_ignored) == ("ba", 1)
    assert alice.verdicts("s", ["search" * 100, "b"]) == ["NOT_ADVERTISED", "ALLOWED"]


def test_whole_history_and_new_calls_give_the_same_state(world: MakeWorld) -> None:
    alice = world(max_tools=5, seed_tools=5).client
    history = ""
    for new in ("b", "xa", "", "b", "yz", "x", "bbx", "w"):
        history += new
        alice.turn("new", ranked="abcde", called=new)
        alice.turn("whole", ranked="abcde", called=history)
        alice.turn("window", ranked="abcde", called=history[-6:])
        assert alice.session("new").tools == alice.session("whole").tools == alice.session("window").tools


def test_a_history_reported_again_costs_nothing_and_moves_nothing(world: MakeWorld) -> None:
    alice = world(seed_tools=4).client
    alice.turn(ranked="abcd")
    first = alice.turn(called="cb")
    before = alice.session("s")
    for _ in range(3):
        again = alice.turn(called="cb")
        assert (outcome(again), again.receipt.revision) == ("REUSED", first.receipt.revision)
    assert alice.session("s").tools == before.tools


def test_compacted_and_empty_histories_lose_nothing_row_27(world: MakeWorld) -> None:
    alice = world(seed_tools=4).client
    alice.turn(ranked="abcd")
    for n in range(10):
        alice.turn(ranked="abcd", called="ab"[: 1 + n % 2])
    for called in ("", "", "b", "a"):
        answer = alice.turn(called=called)
        assert (letters_of(answer), alice.pins()) == ("abcd", "ab")
        assert answer.stable_prefix == 4


def test_a_full_session_evicts_the_newest_unpinned_for_a_call(world: MakeWorld) -> None:
    alice = world(max_tools=5, seed_tools=3).client
    alice.turn(ranked="abc")
    alice.turn(ranked="de")
    answer = alice.turn(called="x", ranked="fgh")
    assert (letters_of(answer), answer.receipt.evicted, answer.stable_prefix) == ("abcdx", 1, 4)
    answer = alice.turn(called="wvuts")
    assert (letters_of(answer), answer.receipt.evicted) == ("wvuts", 5)
    answer = alice.turn(called="w")
    assert outcome(answer) == "REUSED"
    assert letters_of(alice.turn(called="a")) == "wutsa"


def test_growth_stays_within_cap_and_budget_over_thirty_topics_row_21(world: MakeWorld) -> None:
    tools = [letter(f"t{i:03d}") for i in range(120)]
    alice = world(tools=tools, max_tools=24).client
    before: list[str] = []
    changes = 0
    for topic in range(30):
        answer = alice.turn(ranked={f"t{topic * 4 + i:03d}": 4.0 - i for i in range(4)}, called=["t001"])
        now = [t.tool_id for t in answer.tools]
        assert len(now) <= 24
        if topic:
            assert now[: len(before)] == before
            assert len(now) - len(before) <= 2
        changes += now != before
        before = now
    for _ in range(10):
        answer = alice.turn(ranked={f"t{116 + i:03d}": 4.0 - i for i in range(4)}, called=["t001"])
        assert outcome(answer) == "REUSED"


def test_revocation_in_mid_session(world: MakeWorld) -> None:
    place = world(seed_tools=4)
    alice = place.client
    alice.turn(ranked="abcd", called="b")
    place.forbid("bc")
    answer = alice.turn(called="b")
    assert letters_of(answer) == "ad"
    assert (answer.receipt.removed_unauthorized, answer.receipt.called_ignored) == (2, 1)
    assert answer.receipt.generation == place.generation
    assert alice.stored() == "ad"
    place.forbid("")
    assert letters_of(alice.turn()) == "ad"


def test_an_unrelated_change_disturbs_no_session(world: MakeWorld) -> None:
    place = world(letters="abcdef", seed_tools=3)
    first = place.client.turn(ranked="abc")
    place.put(letter("z"), letter("f", 7))
    place.forbid("e")
    place.remove("d")
    answer = place.client.turn()
    assert (outcome(answer), answer.receipt.surface_digest) == ("REUSED", first.receipt.surface_digest)
    assert answer.receipt.generation > first.receipt.generation


def test_a_changed_definition_goes_to_the_end_with_its_pin(world: MakeWorld) -> None:
    place = world(seed_tools=4)
    alice = place.client
    alice.turn(ranked="abcd")
    alice.turn(called="b")
    place.put(letter("b", 2), letter("c", 2))
    answer = alice.turn(ranked="ef")
    assert letters_of(answer) == "adbcef"
    assert origins_of(answer)[2:4] == ["ADDED_CHANGED"] * 2
    assert [t.pinned for t in answer.tools][2:4] == [True, False]
    assert (answer.receipt.removed_changed, answer.stable_prefix) == (2, 1)
    assert outcome(alice.turn()) == "REUSED"


def test_changed_and_denied_at_once_is_denied(world: MakeWorld) -> None:
    place = world(seed_tools=2)
    place.client.turn(ranked="ab")
    place.put(letter("a", 2))
    place.forbid("a")
    answer = place.client.turn()
    assert (letters_of(answer), answer.receipt.removed_unauthorized, answer.receipt.removed_changed) == ("b", 1, 0)


def test_tags_hints_and_requires_are_no_part_of_the_definition(world: MakeWorld) -> None:
    place = world(seed_tools=2)
    place.client.turn(ranked="ab")
    place.put(letter("a", tags=["x"], annotations={"readOnlyHint": True}, requires=["vision"]))
    answer = place.client.turn(target=target(capabilities=["vision"]))
    assert (letters_of(answer), outcome(answer)) == ("ab", "REUSED")
    answer = place.client.turn()
    assert (letters_of(answer), answer.receipt.removed_incapable, answer.receipt.hidden) == ("b", 1, 1)


def test_removal_and_return(world: MakeWorld) -> None:
    place = world(letters="abcd", seed_tools=3)
    alice = place.client
    alice.turn(ranked="abc", called="a")
    kept = place.tools["a"]
    place.remove("a")
    answer = alice.turn(called="a")
    assert (letters_of(answer), answer.receipt.removed_unavailable, answer.receipt.called_ignored) == ("bc", 1, 1)
    place.put(kept)
    assert letters_of(alice.turn()) == "bc"
    answer = alice.turn(called="a")
    assert (letters_of(answer), answer.tools[2].name) == ("bca", "a")


def test_hidden_tools_come_back_in_their_old_place(world: MakeWorld) -> None:
    place = world(seed_tools=5)
    place.put(letter("b", requires=["vision"]), letter("d", requires=["vision", "audio"]))
    alice = place.client
    both = target(capabilities=["audio", "vision"])
    assert letters_of(alice.turn(ranked="abcde", target=both)) == "abcde"
    answer = alice.turn()
    assert (letters_of(answer), answer.receipt.hidden, answer.receipt.removed_incapable) == ("ace", 2, 2)
    assert alice.stored() == "abcde"
    assert letters_of(alice.turn(target=target(capabilities=["vision"]))) == "abce"
    answer = alice.turn(target=both)
    assert (letters_of(answer), answer.receipt.hidden) == ("abcde", 0)


def test_a_cap_of_the_target_hides_in_order_and_gives_back(world: MakeWorld) -> None:
    alice = world(seed_tools=6).client
    alice.turn(ranked="abcdef")
    alice.turn(called="e")
    answer = alice.turn(ranked="xyz", called="f", target=target(max_tools=3))
    assert (letters_of(answer), answer.receipt.hidden, answer.receipt.evicted) == ("aef", 3, 0)
    assert letters_of(alice.turn()) == "abcdef"


def test_the_cap_counts_the_callers_own_tools_row_3(world: MakeWorld) -> None:
    alice = world(seed_tools=6).client
    alice.turn(ranked="abcdef")
    answer = alice.turn(offered=[chat("own1"), chat("own2")], target=target(max_tools=5))
    assert letters_of(answer) == "[own1][own2]abc"
    answer = alice.turn(offered=[chat(f"own{i}") for i in range(7)], target=target(max_tools=5))
    assert (len(answer.tools), answer.receipt.hidden) == (7, 6)
    assert letters_of(alice.turn()) == "abcdef"


def test_openais_own_limit_holds_without_a_number_row_3(world: MakeWorld) -> None:
    tools = [letter(f"t{i:03d}") for i in range(128)]
    alice = world(tools=tools, max_tools=128, seed_tools=128, top_k=128).client
    ranked = {t["name"]: 200.0 - i for i, t in enumerate(tools)}
    own = [chat(f"own{i}") for i in range(15)]
    answer = alice.turn(ranked=ranked, offered=own)
    assert (len(answer.tools), answer.receipt.caller_owned) == (128, 15)
    answer = alice.turn("s2", ranked=ranked, offered=own, target=target("ANTHROPIC_MESSAGES"))
    assert len(answer.tools) == 128 + 15


def test_a_caller_owned_tool_shadows_the_catalogs(world: MakeWorld) -> None:
    alice = world(seed_tools=3).client
    alice.turn(ranked="abc")
    alice.turn(called="b")
    answer = alice.turn(offered=[chat("b", description="mine")], called="b")
    assert (letters_of(answer), answer.receipt.hidden, answer.receipt.called_ignored) == ("[b]ac", 1, 0)
    assert answer.stable_prefix == 0
    assert letters_of(alice.turn()) == "abc"


def test_caller_owned_tools_count_in_the_stable_prefix(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    own = [chat("o1"), chat("o2")]
    alice.turn(ranked="ab", offered=own)
    answer = alice.turn(offered=own)
    assert (outcome(answer), answer.stable_prefix) == ("REUSED", 4)
    answer = alice.turn(offered=[*own, chat("o3")])
    assert (outcome(answer), answer.stable_prefix) == ("UPDATED", 2)
    answer = alice.turn(offered=[chat("o2"), chat("o1"), chat("o3")])
    assert answer.stable_prefix == 0


def test_late_seeding(world: MakeWorld) -> None:
    alice = world(letters="abcdefgh", seed_tools=3, core_tools=["crm/g"], on_no_match="all").client
    answer = alice.turn(called="h")
    assert (letters_of(answer), outcome(answer), reason(answer)) == ("ghabc", "UNSEEDED", "NO_QUERY")
    assert alice.stored() == "gh"
    answer = alice.turn(ranked={"nope": 1.0})
    assert (letters_of(answer), outcome(answer), reason(answer)) == ("ghabc", "UNSEEDED", "NO_MATCH")
    answer = alice.turn(ranked="fedcba")
    assert (letters_of(answer), outcome(answer), answer.stable_prefix) == ("ghfed", "SEEDED", 2)
    answer = alice.turn(ranked={"nope": 1.0})
    assert (letters_of(answer), outcome(answer)) == ("ghfed", "REUSED")


@pytest.mark.parametrize(("on_no_match", "answered"), [("core", "c"), ("all", "cabde"), ("none", "c")])
def test_on_no_match(world: MakeWorld, on_no_match: str, answered: str) -> None:
    alice = world(letters="abcdefgh", seed_tools=4, core_tools=["crm/c"], on_no_match=on_no_match).client
    answer = alice.turn()
    assert (letters_of(answer), outcome(answer), alice.stored()) == (answered, "UNSEEDED", "c")


def test_on_no_match_defaults_to_all_without_core_tools(world: MakeWorld) -> None:
    place = world(letters="abcdef", seed_tools=3)
    place.forbid("b")
    answer = place.client.turn(query="hi")
    assert (letters_of(answer), origins_of(answer), place.client.stored()) == ("acd", ["SEEDED"] * 3, "")


def test_zero_matches_never_exceed_the_budget_row_3(world: MakeWorld) -> None:
    tools = [letter(f"t{i:03d}") for i in range(300)]
    for strategy in ("keyword", "caller"):
        alice = world(tools=tools, strategy=strategy, max_tools=20).client
        answer = alice.turn(query="zzzzqqqq")
        assert len(answer.tools) == 8


def test_static_is_core_then_by_tool_id_without_growth(world: MakeWorld) -> None:
    place = world(letters="abcdef", strategy="static", seed_tools=3, core_tools=["crm/e"])
    answer = place.client.turn()
    assert (letters_of(answer), outcome(answer), answer.receipt.strategy) == ("eabc", "SEEDED", "static")
    answer = place.client.turn(query="anything", ranked="def")
    assert (letters_of(answer), outcome(answer)) == ("eabc", "REUSED")
    assert letters_of(place.client.turn(called="f")) == "eabcf"


def test_pinning_can_be_switched_off_in_mid_session(world: MakeWorld) -> None:
    place = world(seed_tools=3)
    place.client.turn(ranked="abc", called="b")
    place.route(seed_tools=3, pin_called_tools=False)
    answer = place.client.turn(called="ax")
    assert (letters_of(answer), place.client.pins(), answer.receipt.pinned) == ("bac", "", 0)


def test_bounds_that_shrink_and_grow_in_mid_session(world: MakeWorld) -> None:
    place = world(seed_tools=8)
    alice = place.client
    alice.turn(ranked="abcdefgh")
    alice.turn(called="gc")
    place.route(max_tools=4)
    answer = alice.turn(ranked="xyz")
    assert (letters_of(answer), answer.receipt.evicted, alice.stored()) == ("abcg", 4, "abcg")
    place.route(max_tools=5)
    assert letters_of(alice.turn(ranked="xyz")) == "abcgx"
    place.route(max_tools=1)
    assert letters_of(alice.turn()) == "c"


def test_replace_stale(world: MakeWorld) -> None:
    place = world(max_tools=4, top_k=4, when_full="replace_stale", stale_after_turns=2)
    alice = place.client
    alice.turn(ranked="abcd", called="d")
    assert letters_of(alice.turn(ranked="wxyz")) == "dabc"
    answer = alice.turn(ranked="wxyz")
    assert (letters_of(answer), answer.receipt.evicted) == ("dawx", 2)
    assert letters_of(alice.turn(ranked="wxyz")) == "dwxy"
    assert outcome(alice.turn(ranked="wxyz")) == "REUSED"


def test_regenerate_and_title_calls_on_one_session_row_31(world: MakeWorld) -> None:
    alice = world(seed_tools=3).client
    alice.turn(ranked="abc", turn_id="1")
    alice.turn(called="b", turn_id="2")
    alice.turn(called="bx", turn_id="3")
    alice.turn(called="bxy", turn_id="4")
    before = alice.session("s")
    toolless = alice.turn(target=target(supports_tools=False))
    assert (outcome(toolless), len(toolless.tools)) == ("STATELESS", 0)
    assert alice.session("s").tools == before.tools
    edited = alice.turn(called="bx", query="edited", turn_id="3")
    assert letters_of(edited) == "abcxy"
    assert sorted(alice.pins()) == ["b", "x", "y"]
    for called in ("bxy", "bx", "bxyz"):
        assert letters_of(alice.turn(called=called)).startswith("abcxy")
