"""Whose session it is: principals, tenants, routes, bound tokens, and the end of a session."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from tests.support.service import PERMIT_ALL, Client, tool
from tests.support.world import World, caller_route, letter, letters_of, outcome, refused, schema
from toolbelay.v1 import selection_pb2 as pb

MakeWorld = Callable[..., World]


def test_principals_share_no_session(world: MakeWorld) -> None:
    place = world(seed_tools=2)
    bob = place.as_("bob")
    place.client.turn(ranked="ab", called="x")
    assert bob.session("s").turn == 0
    assert letters_of(bob.turn(ranked="cd")) == "cd"
    bob.end("s")
    assert place.client.stored() == "xab"


def test_a_crafted_session_id_reaches_nobody_row_23(world: MakeWorld) -> None:
    place = world(seed_tools=2)
    place.as_("alice").turn("chat-1", ranked="ab")
    for subject, session in (("mallory", "alice::chat-1"), ("alice::", "chat-1"), ("a", "lice::chat-1"), ("al", "{x}")):
        assert place.as_(subject).session(session).turn == 0
        assert letters_of(place.as_(subject).turn(session, ranked="cd")) == "cd"
    assert place.as_("alice").stored("chat-1") == "ab"


def test_tenants_share_nothing_row_39(world: MakeWorld) -> None:
    one, two = world(tools=[], seed_tools=2), world(tools=[], seed_tools=2)
    for place, secret in ((one, "A-secret"), (two, "B-secret")):
        place.service.apply([tool("crm/report", secret, schema())], tenant=place.tenant)
    for _ in range(20):
        for place, own, other in ((one, b"A-secret", b"B-secret"), (two, b"B-secret", b"A-secret")):
            (item,) = place.client.select("s", candidates=["crm/report"], query="report").tools
            assert own in item.definition
            assert other not in item.definition


def test_routes_keep_sessions_apart_and_the_default_has_two_names(world: MakeWorld) -> None:
    place = world(routes={"default": caller_route(seed_tools=2), "wide": caller_route(seed_tools=3)})
    alice = place.client
    assert letters_of(alice.turn(ranked="abcd")) == "ab"
    assert letters_of(alice.turn(ranked="efgh", route="wide")) == "efg"
    assert letters_of(alice.turn(route="default")) == "ab"
    assert (alice.stored(), alice.stored(route="wide")) == ("ab", "efg")
    alice.end("s", route="wide")
    assert (alice.stored(), alice.stored(route="wide")) == ("ab", "")


def test_policy_sees_the_resolved_route_the_mode_and_the_model(world: MakeWorld) -> None:
    place = world(
        routes={"default": caller_route(), "night": caller_route(mode="filter")},
        policies={
            "a.cedar": 'permit (principal, action, resource == Tool::"crm/a") when { context.route == "default" };\n'
            'permit (principal, action, resource == Tool::"crm/b") when { context.model == "gpt-x" };\n'
            'permit (principal, action, resource == Tool::"crm/c") when { context.mode == "add" };'
        },
    )
    alice = place.client
    assert letters_of(alice.turn("1", ranked="abcd")) == "ac"
    assert letters_of(alice.turn("1", ranked="abcd", target=pb.Target(model="gpt-x"))) == "acb"
    answer = alice.turn("1")
    assert (letters_of(answer), answer.receipt.removed_unauthorized) == ("ac", 1)


def test_roles_scopes_and_subject_decide(world: MakeWorld) -> None:
    place = world(
        policies={
            "a.cedar": 'permit (principal in Role::"support", action, resource == Tool::"crm/a");\n'
            'permit (principal, action, resource == Tool::"crm/b") when { principal.scopes.contains("files") };\n'
            'permit (principal == User::"carol", action, resource == Tool::"crm/c");'
        }
    )
    for subject, claims, seen in (
        ("alice", {}, ""),
        ("alice", {"roles": ("support",)}, "a"),
        ("alice", {"scopes": ("files",)}, "b"),
        ("carol", {}, "c"),
    ):
        assert letters_of(place.as_(subject, **claims).turn("", ranked="abc")) == seen, (subject, claims)


def test_without_any_policy_nobody_may_use_anything(world: MakeWorld) -> None:
    answer = world(policies={}).client.turn(ranked="ab", called="c")
    assert (letters_of(answer), answer.receipt.called_ignored, answer.receipt.candidates_ignored) == ("", 1, 2)


def test_a_policy_that_fails_denies(world: MakeWorld) -> None:
    place = world(
        policies={
            "a.cedar": PERMIT_ALL + '\nforbid (principal, action, resource == Tool::"crm/b") '
            "when { 9223372036854775807 + 1 > 0 };"
        }
    )
    assert letters_of(place.client.turn(ranked="abc")) == "ac"


def test_a_bound_token_serves_its_session_only(world: MakeWorld) -> None:
    place = world(seed_tools=1)
    bound = place.as_("alice", session="s")
    assert letters_of(bound.turn(ranked="a")) == "a"
    for call in (
        lambda: bound.turn("other", ranked="a"),
        lambda: bound.session("other"),
        lambda: bound.end("other"),
        lambda: bound.authorize("other", ["a"]),
    ):
        with refused("PERMISSION_DENIED", "SESSION_MISMATCH"):
            call()
    assert outcome(bound.turn("", ranked="a")) == "STATELESS"


def test_unknown_routes_and_tenants_are_not_found(world: MakeWorld) -> None:
    place = world()
    nobody = place.service.client(tenant="never applied")
    for call in (
        lambda: place.client.turn(ranked="a", route="nope"),
        lambda: place.client.session("s", route="nope"),
        lambda: place.client.end("s", route="nope"),
        lambda: place.client.authorize("s", ["a"], route="nope"),
        lambda: nobody.select("s", candidates=["crm/a"]),
        lambda: nobody.session("s"),
        lambda: nobody.authorize("s", ["a"]),
    ):
        with refused("NOT_FOUND", "ROUTE_NOT_FOUND"):
            call()


def test_there_is_no_anonymous_selection_row_23(world: MakeWorld) -> None:
    place = world()
    for bearer in ("", "nonsense"):
        with pytest.raises(grpc.RpcError) as caught:
            Client(place.service.channel, bearer).select("s")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_get_session_shows_identities_only(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    assert alice.session("s") == pb.GetSessionResponse()
    first = alice.turn(ranked="ab")
    alice.turn(called="b")
    shown = alice.session("s")
    assert [(t.tool_id, t.pinned, t.first_seen_turn, t.last_called_turn) for t in shown.tools] == [
        ("crm/a", False, 1, 0),
        ("crm/b", True, 1, 2),
    ]
    assert (shown.turn, shown.revision) == (2, first.receipt.revision + 1)
    assert shown.created_at.ToMilliseconds() <= shown.last_seen_at.ToMilliseconds()
    life = shown.expires_at.ToMilliseconds() - shown.last_seen_at.ToMilliseconds()
    assert 3_590_000 <= life <= 3_600_500


def test_end_session_is_idempotent_and_the_next_turn_is_the_first(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    alice.end("never")
    alice.turn(ranked="ab", called="x", turn_id="1")
    alice.end("s")
    alice.end("s")
    assert alice.session("s") == pb.GetSessionResponse()
    assert alice.verdicts("s", ["x", "nope"]) == ["ALLOWED", "NOT_IN_CATALOG"]
    answer = alice.turn(ranked="cd", turn_id="1")
    assert (letters_of(answer), outcome(answer), answer.receipt.turn) == ("cd", "SEEDED", 1)
    assert not answer.receipt.replayed


def test_a_new_tool_of_another_tenant_is_no_candidate(world: MakeWorld) -> None:
    one, two = world(letters="a"), world(letters="b")
    one.put(letter("x"))
    answer = two.client.turn(ranked="xb", called="x")
    assert (letters_of(answer), answer.receipt.candidates_ignored, answer.receipt.called_ignored) == ("b", 1, 1)
