"""AdminService over gRPC: the apply stream, reading it back, explaining, ending sessions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.service import PERMIT_ALL, Service, tool
from tests.support.world import Player, World, caller_route, letter, letters_of, outcome, refused
from toolbelay.v1 import admin_pb2 as pb

MakeWorld = Callable[..., World]
KINDS = {"tools": pb.ApplyChunk.KIND_TOOLS, "policy": pb.ApplyChunk.KIND_POLICY, "routes": pb.ApplyChunk.KIND_ROUTES}
INVALID = ("INVALID_ARGUMENT", "INVALID_REQUEST")


def admin(place: World | Service, tenant: str = "") -> Player:
    service = place.service if isinstance(place, World) else place
    return Player(service, "root", tenant or place.tenant, roles=("toolbelay.admin",))  # type: ignore[union-attr]


def header(**options: Any) -> pb.ApplyConfigRequest:
    return pb.ApplyConfigRequest(header=pb.ApplyHeader(**options))


def chunk(kind: str, content: str, name: str = "") -> pb.ApplyConfigRequest:
    names = {"tools": "tools.jsonl", "policy": "all.cedar", "routes": "routes.yaml"}
    return pb.ApplyConfigRequest(
        chunk=pb.ApplyChunk(kind=KINDS[kind], name=name or names[kind], content=content.encode())
    )


END = pb.ApplyConfigRequest(end=pb.ApplyEnd())


def lines(*tools: dict[str, Any]) -> pb.ApplyConfigRequest:
    return chunk("tools", "\n".join(json.dumps(t) for t in tools))


def apply(client: Player, *messages: pb.ApplyConfigRequest) -> pb.ApplyConfigResponse:
    answer: pb.ApplyConfigResponse = client.admin.ApplyConfig(iter(messages), metadata=client._metadata, timeout=20)
    return answer


def config(client: Player) -> list[pb.GetConfigResponse]:
    return list(client.admin.GetConfig(pb.GetConfigRequest(), metadata=client._metadata, timeout=20))


def changes(answer: pb.ApplyConfigResponse) -> list[tuple[str, str, str]]:
    return [
        (c.kind, c.name, pb.ConfigChange.Action.Name(c.action).removeprefix("ACTION_").lower()) for c in answer.changes
    ]


def as_apply(items: Sequence[pb.GetConfigResponse], **options: Any) -> Iterator[pb.ApplyConfigRequest]:
    """What GetConfig gave, as a stream that applies it."""
    yield header(**options)
    for item in items:
        if item.HasField("tool"):
            yield chunk("tools", item.tool.definition.decode() + "\n")
        elif item.HasField("policy"):
            yield chunk("policy", item.policy.text, item.policy.name)
    routes = {i.route.name: json.loads(i.route.json) for i in items if i.HasField("route")}
    yield chunk("routes", json.dumps({"routes": routes}))
    yield END


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    return f"admin-{request.node.name}"


def test_a_stream_applies_everything_at_once(turn_service: Service, tenant: str) -> None:
    root = admin(turn_service, tenant)
    routes = chunk("routes", json.dumps({"routes": {"default": caller_route()}}))
    answer = apply(root, header(), lines(letter("a"), letter("b")), chunk("policy", PERMIT_ALL), routes, END)
    assert (answer.generation, answer.changed) == (1, True)
    assert changes(answer) == [
        ("policy", "all.cedar", "added"),
        ("route", "default", "added"),
        ("tool", "crm/a", "added"),
        ("tool", "crm/b", "added"),
    ]
    selected = turn_service.client(tenant=tenant).select("s", candidates=["crm/b", "crm/a"])
    assert (letters_of(selected), selected.receipt.generation) == ("ba", 1)


def test_an_apply_is_in_force_when_it_is_acknowledged(world: MakeWorld) -> None:
    place = world(letters="ab")
    root = admin(place)
    for n in range(5):
        answer = apply(root, header(), lines(letter("a", n + 1)), END)
        turn = place.client.turn(ranked="ab")
        assert turn.receipt.generation == answer.generation
        assert f"v{n + 1}".encode() in next(t for t in turn.tools if t.name == "a").definition


def test_a_change_of_nothing_keeps_the_number(world: MakeWorld) -> None:
    place = world(letters="ab")
    answer = apply(admin(place), header(), lines(letter("b"), letter("a")), chunk("policy", PERMIT_ALL), END)
    assert (answer.generation, answer.changed, changes(answer)) == (place.generation, False, [])


def test_a_dry_run_tells_and_changes_nothing(world: MakeWorld) -> None:
    place = world(letters="ab")
    before = config(admin(place))
    answer = apply(admin(place), header(dry_run=True, prune=True), lines(letter("a", 2), letter("c")), END)
    assert (answer.generation, answer.changed) == (place.generation, True)
    assert changes(answer) == [
        ("tool", "crm/a", "changed"),
        ("tool", "crm/b", "removed"),
        ("tool", "crm/c", "added"),
    ]
    assert config(admin(place)) == before


def test_prune_removes_what_is_not_listed_of_the_kinds_that_came(world: MakeWorld) -> None:
    place = world(letters="abc")
    answer = apply(admin(place), header(), lines(letter("a")), END)
    assert not answer.changed
    answer = apply(admin(place), header(prune=True), lines(letter("a")), END)
    assert changes(answer) == [("tool", "crm/b", "removed"), ("tool", "crm/c", "removed")]
    assert letters_of(place.client.turn(ranked="abc")) == "a"
    answer = apply(admin(place), header(prune=True), chunk("policy", PERMIT_ALL, "other.cedar"), END)
    assert changes(answer) == [("policy", "all.cedar", "removed"), ("policy", "other.cedar", "added")]


def test_the_expected_generation_guards_against_others(world: MakeWorld) -> None:
    place = world(letters="a")
    with refused("FAILED_PRECONDITION", "GENERATION_CONFLICT") as said:
        apply(admin(place), header(expected_generation=place.generation + 1), lines(letter("b")), END)
    assert said.metadata["generation"] == str(place.generation)
    with refused("FAILED_PRECONDITION", "GENERATION_CONFLICT"):
        apply(admin(place), header(expected_generation=0), lines(letter("b")), END)
    answer = apply(admin(place), header(expected_generation=place.generation), lines(letter("b")), END)
    assert answer.generation == place.generation + 1


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "end"),
        ([header(), lines(letter("z"))], "end"),
        ([lines(letter("z")), END], "header"),
        ([END], "header"),
        ([pb.ApplyConfigRequest()], "header"),
        ([header(), header(), END], "header"),
        ([header(), pb.ApplyConfigRequest(), END], None),
        ([header(), pb.ApplyConfigRequest(chunk=pb.ApplyChunk(name="x", content=b"{}")), END], "chunk.kind"),
        ([header(), chunk("policy", PERMIT_ALL), chunk("policy", PERMIT_ALL), END], "config"),
        ([header(), chunk("policy", PERMIT_ALL, "a/b.cedar"), END], "config"),
        ([header(), chunk("policy", "permit (principal"), END], "config"),
        ([header(), chunk("policy", "permit (principal, action, resource) when { principal.dept };"), END], "config"),
        ([header(), chunk("policy", "permit (principal == ?principal, action, resource);"), END], "config"),
        ([header(), chunk("routes", "routes: {default: {strategy: guess}}"), END], "config"),
        ([header(), chunk("routes", "routes: {default: {colour: red}}"), END], "config"),
        ([header(), chunk("tools", "{"), END], "config"),
        ([header(), lines({**letter("z"), "toolset": "caller"}), END], "config"),
        ([header(), lines(letter("z"), letter("z", 2)), END], "config"),
        ([header(), chunk("tools", '{"toolset":"t","name":"n","input_schema":{"a":1,"a":2}}'), END], "config"),
    ],
)
def test_a_stream_that_is_not_right_changes_nothing(
    world: MakeWorld, messages: list[pb.ApplyConfigRequest], field: str | None
) -> None:
    place = world(letters="ab")
    root = admin(place)
    before = config(root)
    with refused(*INVALID) as said:
        apply(root, *messages)
    if field is not None:
        assert said.fields[0] == field
    assert config(root) == before


def test_the_configuration_reads_back_and_applies_without_a_change(world: MakeWorld) -> None:
    tools = [
        letter("a", tags=["y", "x"], annotations={"readOnlyHint": True, "openWorldHint": False}, requires=["vision"]),
        tool("crm/Ünï code", 'says "hi"\n', {"type": "object", "properties": {"z": {"maximum": 1e2}, "a": {}}}),
        tool("other/plain"),
    ]
    rules = {"a.cedar": PERMIT_ALL, "b.cedar": '@id("x") forbid (principal, action, resource == Tool::"crm/a");'}
    routes = {"default": caller_route(max_tools=9), "bare": {}, "agents": {"profile": "agentic", "top_k": 5}}
    place = world(tools=tools, policies=rules, routes=routes)
    root = admin(place)
    items = config(root)
    assert {i.generation for i in items} == {place.generation}
    assert [i.tool.tool_id for i in items if i.HasField("tool")] == ["crm/a", "crm/Ünï code", "other/plain"]
    assert {i.policy.name: i.policy.text for i in items if i.HasField("policy")} == rules
    assert {i.route.name for i in items if i.HasField("route")} == set(routes)
    answer = apply(root, *as_apply(items, prune=True))
    assert (changes(answer), answer.generation) == ([], place.generation)
    assert config(root) == items


def test_a_copied_configuration_gives_equal_answers(world: MakeWorld, turn_service: Service, tenant: str) -> None:
    place = world(letters="abc", seed_tools=2)
    apply(admin(turn_service, tenant), *as_apply(config(admin(place))))
    original = place.client.turn(ranked="cab")
    copy = turn_service.client(tenant=tenant).select("s", candidates={"crm/c": 3.0, "crm/a": 2.0, "crm/b": 1.0})
    assert [t.definition for t in copy.tools] == [t.definition for t in original.tools]
    assert copy.receipt.surface_digest == original.receipt.surface_digest


def test_explain_says_what_decided(world: MakeWorld) -> None:
    rules = (
        '@id("support") permit (principal in Role::"support", action, resource);\n'
        '@id("night") forbid (principal, action == Action::"call", resource) when { context.route == "night" };'
    )
    place = world(letters="ab", policies={"p.cedar": rules}, routes={"default": caller_route(), "night": {}})
    root = admin(place)

    def explain(**fields: Any) -> pb.ExplainDecisionResponse:
        request = pb.ExplainDecisionRequest(**{"subject": "bob", "tool_id": "crm/a", **fields})
        answer: pb.ExplainDecisionResponse = root.admin.ExplainDecision(request, metadata=root._metadata, timeout=10)
        return answer

    answer = explain(roles=["support"])
    assert (answer.in_catalog, answer.generation) == (True, place.generation)
    assert (answer.advertise.allowed, answer.call.allowed) == (True, True)
    assert list(answer.advertise.policies) == ["p.cedar#support"]
    answer = explain(roles=["support"], route="night")
    assert (answer.advertise.allowed, answer.call.allowed) == (True, False)
    assert list(answer.call.policies) == ["p.cedar#night"]
    answer = explain()
    assert (answer.advertise.allowed, list(answer.advertise.policies)) == (False, [])
    assert not explain(tool_id="crm/nope", roles=["support"]).in_catalog
    with refused("NOT_FOUND", "ROUTE_NOT_FOUND"):
        explain(route="nope")
    for fields, field in (
        ({"subject": ""}, "subject"),
        ({"subject": "x\0"}, "subject"),
        ({"tool_id": ""}, "tool_id"),
        ({"roles": ["r"] * 257}, "roles"),
        ({"model": "m" * 257}, "model"),
        ({"route": "r" * 129}, "route"),
    ):
        with refused(*INVALID, field):
            explain(**fields)


def test_the_admin_role_is_needed_and_the_tenant_is_the_tokens(world: MakeWorld) -> None:
    place, other = world(letters="a"), world(letters="b")
    alice = place.client
    for call in (
        lambda: apply(alice, header(), END),
        lambda: config(alice),
        lambda: alice.admin.ExplainDecision(pb.ExplainDecisionRequest(), metadata=alice._metadata),
        lambda: alice.admin.EndSessions(pb.EndSessionsRequest(whole_tenant=True), metadata=alice._metadata),
    ):
        with refused("PERMISSION_DENIED", "ADMIN_ROLE_REQUIRED"):
            call()
    assert [i.tool.tool_id for i in config(admin(other)) if i.HasField("tool")] == ["crm/b"]
    anonymous = place.client.admin.GetConfig(pb.GetConfigRequest(), metadata=())
    with refused("UNAUTHENTICATED", "TOKEN_MISSING"):
        next(anonymous)


def end(root: Player, **scope: Any) -> pb.EndSessionsResponse:
    answer: pb.EndSessionsResponse = root.admin.EndSessions(
        pb.EndSessionsRequest(**scope), metadata=root._metadata, timeout=10
    )
    return answer


def test_ending_a_principals_sessions(world: MakeWorld) -> None:
    place = world(letters="abcd", seed_tools=1)
    bob = place.as_("bob")
    for session in ("1", "2"):
        place.client.turn(session, ranked="a")
    bob.turn("1", ranked="b")
    answer = end(admin(place), principal=pb.PrincipalRef(subject="alice"))
    assert (answer.ended, answer.generation) == (2, place.generation)
    assert [place.client.session(s).turn for s in "12"] == [0, 0]
    assert bob.stored("1") == "b"
    assert end(admin(place), principal=pb.PrincipalRef(subject="alice")).ended == 0
    again = place.client.turn("1", ranked="c")
    assert (letters_of(again), outcome(again), again.receipt.turn) == ("c", "SEEDED", 1)


def test_ending_the_tenants_sessions_raises_the_generation(world: MakeWorld) -> None:
    place, other = world(letters="abcd", seed_tools=1), world(letters="abcd", seed_tools=1)
    bob = place.as_("bob")
    for player in (place.client, bob, other.client):
        player.turn(ranked="a", turn_id="1")
    answer = end(admin(place), whole_tenant=True)
    assert answer.generation == place.generation + 1
    for player in (place.client, bob):
        assert player.session("s").turn == 0
        assert player.verdicts("s", ["b", "nope"]) == ["ALLOWED", "NOT_IN_CATALOG"]
        again = player.turn(ranked="c", turn_id="1")
        assert (letters_of(again), outcome(again), again.receipt.turn) == ("c", "SEEDED", 1)
        assert (again.receipt.replayed, again.receipt.generation) == (False, answer.generation)
        assert player.stored() == "c"
    assert other.client.stored() == "a"


@pytest.mark.parametrize(
    ("scope", "field"),
    [
        ({}, "scope"),
        ({"whole_tenant": False}, "scope"),
        ({"principal": pb.PrincipalRef()}, "principal.subject"),
        ({"principal": pb.PrincipalRef(subject="x" * 1025)}, "principal.subject"),
    ],
)
def test_ending_needs_a_scope(world: MakeWorld, scope: dict[str, Any], field: str) -> None:
    place = world(letters="a")
    with refused(*INVALID, field):
        end(admin(place), **scope)
