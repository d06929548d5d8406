"""AuthorizeToolCalls: which of the model's calls may be dispatched, and which of them pin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.service import PERMIT_ALL
from tests.support.world import World, chat, letter, letters_of, outcome, target
from toolbelay.v1 import selection_pb2 as pb

MakeWorld = Callable[..., World]


def test_one_decision_per_call_in_order(world: MakeWorld) -> None:
    place = world(seed_tools=3)
    place.client.turn(ranked="abc")
    answer = place.client.authorize("s", ["b", "nope", "b", "own", "z"], caller_tools=["own", "a"])
    assert [(d.call_id, d.name, d.tool_id) for d in answer.decisions] == [
        ("c0", "b", "crm/b"),
        ("c1", "nope", ""),
        ("c2", "b", "crm/b"),
        ("c3", "own", ""),
        ("c4", "z", ""),
    ]
    assert place.client.verdicts("s", ["b", "nope", "own", "z"], caller_tools=["own"]) == [
        "ALLOWED", "NOT_ADVERTISED", "CALLER_OWNED", "NOT_ADVERTISED",
    ]  # fmt: skip
    assert (answer.state_checked, answer.generation) == (True, place.generation)


def test_call_ids_may_be_empty_and_repeat(world: MakeWorld) -> None:
    alice = world(seed_tools=1).client
    alice.turn(ranked="a")
    calls = [pb.ToolCall(call_id=i, name="a") for i in ("", "", "x", "x")]
    answer = alice.selection.AuthorizeToolCalls(
        pb.AuthorizeToolCallsRequest(session_id="s", calls=calls), metadata=alice._metadata
    )
    assert [(d.call_id, d.verdict) for d in answer.decisions] == [(c.call_id, pb.VERDICT_ALLOWED) for c in calls]


def test_caller_tools_come_before_everything(world: MakeWorld) -> None:
    alice = world(seed_tools=1).client
    alice.turn(ranked="a")
    answer = alice.authorize("s", ["a"], caller_tools=["a"])
    assert (answer.decisions[0].verdict, answer.decisions[0].tool_id) == (pb.VERDICT_CALLER_OWNED, "")
    assert alice.pins() == ""
    assert alice.verdicts("", ["a"], caller_tools=["a"]) == ["CALLER_OWNED"]


def test_a_tool_removed_while_stored_is_not_in_the_catalog(world: MakeWorld) -> None:
    place = world(seed_tools=2)
    place.client.turn(ranked="ab")
    place.remove("a")
    answer = place.client.authorize("s", ["a"])
    assert place.client.verdicts("s", ["a"]) == ["NOT_IN_CATALOG"]
    assert answer.decisions[0].tool_id == ""
    assert "crm/a" in [t.tool_id for t in place.client.session("s").tools]
    place.client.turn()
    assert place.client.verdicts("s", ["a"]) == ["NOT_ADVERTISED"]


def test_a_changed_definition_comes_before_policy(world: MakeWorld) -> None:
    place = world(seed_tools=2)
    place.client.turn(ranked="ab")
    place.put(letter("a", 2))
    place.forbid("ab")
    answer = place.client.authorize("s", ["a", "b"])
    assert place.client.verdicts("s", ["a", "b"]) == ["DEFINITION_CHANGED", "NOT_AUTHORIZED"]
    assert [d.tool_id for d in answer.decisions] == ["crm/a", "crm/b"]
    place.forbid("")
    place.client.turn()
    assert place.client.verdicts("s", ["a"]) == ["ALLOWED"]


@pytest.mark.parametrize("denied", ["advertise", "call"])
def test_both_actions_must_be_permitted(world: MakeWorld, denied: str) -> None:
    place = world(seed_tools=2)
    place.client.turn(ranked="ab")
    rule = f'forbid (principal, action == Action::"{denied}", resource == Tool::"crm/a");'
    place.permit(f"{PERMIT_ALL}\n{rule}")
    assert place.client.verdicts("s", ["a", "b"]) == ["NOT_AUTHORIZED", "ALLOWED"]
    assert place.client.pins() == "b"


def test_advertise_only_tools_are_shown_but_not_called(world: MakeWorld) -> None:
    place = world(seed_tools=2, policies={"p.cedar": 'permit (principal, action == Action::"advertise", resource);'})
    assert letters_of(place.client.turn(ranked="ab")) == "ab"
    assert place.client.verdicts("s", ["a"]) == ["NOT_AUTHORIZED"]
    assert place.client.verdicts("", ["a"]) == ["NOT_AUTHORIZED"]


def test_allowed_calls_are_pinned_as_by_a_turn(world: MakeWorld) -> None:
    place = world(seed_tools=4)
    alice = place.client
    alice.turn(ranked="abcd")
    alice.authorize("s", ["c", "nope", "a", "c"])
    assert alice.pins() == "ac"
    tools = {t.tool_id: t.last_called_turn for t in alice.session("s").tools}
    assert (tools["crm/a"], tools["crm/c"], tools["crm/b"]) == (1, 1, 0)
    before = alice.session("s")
    alice.authorize("s", ["c"])
    assert alice.session("s").revision == before.revision
    answer = alice.turn(called="ac")
    assert (outcome(answer), answer.receipt.pinned, answer.receipt.turn) == ("REUSED", 2, 2)
    assert alice.session("s").tools == before.tools


def test_pins_of_calls_and_of_turns_are_one_order(world: MakeWorld) -> None:
    alice = world(max_tools=3, seed_tools=3).client
    alice.turn(ranked="abc")
    alice.authorize("s", ["b", "a", "c"])
    alice.turn(called="bac")
    alice.authorize("s", ["b"])
    alice.turn(called="bacbx")
    assert alice.stored() == "bcx"


def test_a_hidden_tool_counts_as_advertised(world: MakeWorld) -> None:
    place = world(seed_tools=3)
    place.put(letter("a", requires=["vision"]))
    place.client.turn(ranked="abc", target=target(capabilities=["vision"]))
    assert letters_of(place.client.turn(target=target(max_tools=1))) == "b"
    assert place.client.verdicts("s", ["a", "c"]) == ["ALLOWED", "ALLOWED"]
    assert place.client.pins() == "ac"


def test_without_a_session_policy_alone_decides_and_nothing_is_pinned(world: MakeWorld) -> None:
    place = world()
    place.forbid("b")
    for session in ("", "absent"):
        answer = place.client.authorize(session, ["a", "b", "nope"])
        assert not answer.state_checked
        assert [d.tool_id for d in answer.decisions] == ["crm/a", "", ""]
        assert place.client.verdicts(session, ["a", "b", "nope"]) == ["ALLOWED", "NOT_IN_CATALOG", "NOT_IN_CATALOG"]
    assert place.client.session("absent").turn == 0


def test_an_unseeded_session_is_not_checked(world: MakeWorld) -> None:
    alice = world(letters="abcd", seed_tools=2).client
    alice.turn(called="d")
    answer = alice.authorize("s", ["a", "b", "d", "nope"])
    assert not answer.state_checked
    assert alice.verdicts("s", ["a", "b", "nope"]) == ["ALLOWED", "ALLOWED", "NOT_IN_CATALOG"]
    assert alice.pins() == "d"
    alice.turn(ranked="ab")
    assert alice.authorize("s", ["a"]).state_checked
    assert alice.verdicts("s", ["c"]) == ["NOT_ADVERTISED"]


def test_a_route_that_does_not_pin(world: MakeWorld) -> None:
    alice = world(seed_tools=2, pin_called_tools=False).client
    alice.turn(ranked="ab")
    assert alice.verdicts("s", ["a"]) == ["ALLOWED"]
    assert alice.pins() == ""


def test_sticky_disabled_is_not_checked(world: MakeWorld) -> None:
    alice = world(enabled=False).client
    answer = alice.authorize("s", ["a"])
    assert (answer.state_checked, answer.decisions[0].verdict) == (False, pb.VERDICT_ALLOWED)


def test_the_model_feeds_the_policy(world: MakeWorld) -> None:
    rule = 'permit (principal, action, resource) when { context.model == "gpt-x" };'
    place = world(seed_tools=1, policies={"p.cedar": rule})
    model = pb.Target(model="gpt-x")
    place.client.turn(ranked="a", target=model)
    assert place.client.verdicts("s", ["a"], target=model) == ["ALLOWED"]
    assert place.client.verdicts("s", ["a"], target=pb.Target(model="gpt-y")) == ["NOT_AUTHORIZED"]


def test_a_callers_call_never_pins_the_catalogs_tool_row_71(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    alice.turn(ranked="ab")
    answer = alice.turn(offered=[chat("a", description="mine")], called="a")
    assert (letters_of(answer), answer.receipt.called_ignored) == ("[a]b", 0)
    assert alice.verdicts("s", ["a", "b"], caller_tools=["a"]) == ["CALLER_OWNED", "ALLOWED"]
    assert alice.pins() == "b"


def test_authorizing_renews_the_session_but_takes_no_turn_row_30(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    alice.turn(ranked="ab")
    before = alice.session("s")
    alice.authorize("s", ["nope"])
    after = alice.session("s")
    assert (after.turn, after.revision, after.tools) == (before.turn, before.revision, before.tools)
    assert after.last_seen_at.ToMilliseconds() >= before.last_seen_at.ToMilliseconds()


def test_no_calls_no_decisions(world: MakeWorld) -> None:
    alice = world(seed_tools=1).client
    alice.turn(ranked="a")
    answer = alice.authorize("s", [])
    assert (len(answer.decisions), answer.state_checked) == (0, True)
