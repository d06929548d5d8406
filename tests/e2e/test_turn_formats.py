"""What an answer's bytes are: formats, omitted definitions, targets without tools, and turns without state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.service import apply_config, in_thread, tool
from tests.support.world import (
    World,
    caller_route,
    chat,
    letter,
    letters_of,
    outcome,
    reason,
    refused,
    schema,
    target,
)
from toolbelay.application.apply_bundle import ConfigBundle, SourceFile
from toolbelay.errors import ToolbelayError

MakeWorld = Callable[..., World]
SHAPES = {
    "OPENAI_CHAT": '{"type":"function","function":{"name":"a","description":"tool a","parameters":%s}}',
    "OPENAI_RESPONSES": '{"type":"function","name":"a","description":"tool a","parameters":%s}',
    "ANTHROPIC_MESSAGES": '{"name":"a","description":"tool a","input_schema":%s}',
    "MCP": '{"name":"a","description":"tool a","inputSchema":%s}',
}
ODD = '{"type": "object", "properties":{"z":{"const":9007199254740993},"a":{"default":1.0e2, "title":"\\u00e9é\\/"}}}'


@pytest.mark.parametrize("name", SHAPES)
def test_each_format_has_its_shape(world: MakeWorld, name: str) -> None:
    alice = world(seed_tools=1).client
    answer = alice.turn(ranked="a", target=target(name))
    assert json.loads(answer.tools[0].definition) == json.loads(SHAPES[name] % json.dumps(schema()))


def test_key_order_number_literals_and_escapes_survive(world: MakeWorld) -> None:
    place = world(seed_tools=1)
    line = '{"toolset":"crm","name":"odd","description":"caf\\u00e9 \\/ \\u2028","input_schema":' + ODD + "}"
    lines = ConfigBundle(tools=(SourceFile("tools.jsonl", line.encode()),))
    in_thread(apply_config(place.service.environment, place.tenant, lines))
    answer = place.client.turn(ranked="", called=["odd"])
    assert ODD.encode() in answer.tools[0].definition
    assert b'"caf\\u00e9 \\/ \\u2028"' in answer.tools[0].definition
    assert place.client.turn(called=["odd"]).tools[0].definition == answer.tools[0].definition


def test_a_change_of_form_alone_is_no_change(world: MakeWorld) -> None:
    place = world(seed_tools=1)
    first = place.client.turn(ranked="a")
    reordered = {"properties": {"value": {"type": "string"}}, "type": "object"}
    place.put(tool("crm/a", "tool a", reordered))
    answer = place.client.turn()
    assert (outcome(answer), answer.tools[0].definition) == ("REUSED", first.tools[0].definition)


def test_a_turn_in_another_format_has_no_stable_prefix_and_moves_nothing_row_29(world: MakeWorld) -> None:
    place = world(seed_tools=3)
    unions = {"type": "object", "anyOf": [{"required": ["value"]}], "properties": {"value": {"type": "string"}}}
    place.put(tool("crm/b", "tool b", unions))
    alice = place.client
    mcp = target("MCP", model="gpt-x")
    first = alice.turn(ranked="abc", called="b", target=mcp)
    assert letters_of(first) == "bac"
    other = alice.turn(called="b", target=target("ANTHROPIC_MESSAGES", model="claude-y"))
    assert (letters_of(other), other.stable_prefix, outcome(other)) == ("ac", 0, "UPDATED")
    assert (other.receipt.removed_incapable, other.receipt.hidden, alice.pins()) == (1, 1, "b")
    back = alice.turn(called="b", target=mcp)
    assert (letters_of(back), back.stable_prefix) == ("bac", 0)
    assert [t.definition for t in back.tools] == [t.definition for t in first.tools]


def test_stable_prefix_in_every_outcome(world: MakeWorld) -> None:
    place = world(seed_tools=4)
    alice = place.client
    assert alice.turn(ranked="abcd").stable_prefix == 0
    assert alice.turn().stable_prefix == 4
    assert alice.turn(ranked="e").stable_prefix == 4
    place.forbid("c")
    assert alice.turn().stable_prefix == 2
    assert alice.turn(target=target(max_tools=1)).stable_prefix == 1
    assert alice.turn().stable_prefix == 1
    place.forbid("a")
    assert alice.turn().stable_prefix == 0
    assert alice.turn("", ranked="bde").stable_prefix == 0
    alice.end("s")
    assert alice.turn(ranked="b").stable_prefix == 0


def test_definitions_can_be_left_out(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    full = alice.turn(ranked="ab", offered=[chat("own")])
    bare = alice.turn(offered=[chat("own")], omit_definitions=True)
    assert [t.definition for t in bare.tools] == [b""] * 3
    assert [t.fingerprint for t in bare.tools] == [t.fingerprint for t in full.tools]
    assert (outcome(bare), bare.stable_prefix) == ("REUSED", 3)
    assert bare.receipt.surface_digest == full.receipt.surface_digest
    known = alice.turn(offered=[chat("own")], known_fingerprints=[full.tools[1].fingerprint, "0" * 64])
    assert [bool(t.definition) for t in known.tools] == [True, False, True]
    assert all(len(t.fingerprint) == 64 for t in full.tools)
    web = b'{"type":"web_search"}'
    nameless = alice.turn("", offered=[web], known_fingerprints=[""])
    assert (nameless.tools[0].fingerprint, nameless.tools[0].definition) == ("", web)


def test_a_target_without_tools_touches_no_session(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    alice.turn(ranked="ab")
    before = alice.session("s")
    answer = alice.turn(ranked="cd", called="x", offered=[chat("own")], target=target(supports_tools=False))
    assert (len(answer.tools), outcome(answer), reason(answer)) == (0, "STATELESS", "TARGET_WITHOUT_TOOLS")
    assert (answer.receipt.turn, answer.receipt.revision, answer.stable_prefix) == (0, 0, 0)
    assert answer.receipt.generation > 0
    assert alice.session("s") == before
    alice.turn("never", target=target(supports_tools=False))
    assert alice.session("never").turn == 0


def test_no_session_is_an_ordinary_selection_each_time_row_23(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    for _ in range(2):
        answer = alice.turn("", ranked="abc", called="x", turn_id="1")
        assert (letters_of(answer), outcome(answer), reason(answer)) == ("xab", "STATELESS", "NO_SESSION")
        assert (answer.receipt.turn, answer.receipt.replayed, answer.stable_prefix) == (0, False, 0)
    assert letters_of(alice.turn("", ranked="de")) == "de"


def test_sticky_disabled_is_stateless(world: MakeWorld) -> None:
    place = world(seed_tools=2, enabled=False)
    answer = place.client.turn(ranked="abc", called="x")
    assert (letters_of(answer), outcome(answer), reason(answer)) == ("xab", "STATELESS", "STICKY_DISABLED")
    assert letters_of(place.client.turn(ranked="de")) == "de"
    assert place.client.session("s").turn == 0


def test_a_route_that_is_not_enabled_ranks_and_keeps_nothing(world: MakeWorld) -> None:
    route = caller_route(core_tools=["crm/k"]) | {"enabled": False}
    place = world(routes={"default": route})
    answer = place.client.turn(ranked="abc", called="x")
    assert (letters_of(answer), outcome(answer), reason(answer)) == ("kx", "STATELESS", "STICKY_DISABLED")
    assert place.client.session("s").turn == 0


@pytest.mark.parametrize("wrong", [-1, 17, 1.5])
def test_a_growth_out_of_bounds_is_refused_when_applied(world: MakeWorld, wrong: object) -> None:
    place = world(letters="a")
    with pytest.raises(ToolbelayError, match="max_new_tools_per_turn"):
        place.route(max_new_tools_per_turn=wrong)


def test_stickiness_switched_in_mid_session(world: MakeWorld) -> None:
    place = world(seed_tools=2)
    place.client.turn(ranked="ab")
    place.route(seed_tools=2, enabled=False)
    assert outcome(place.client.turn(ranked="cd")) == "STATELESS"
    place.route(seed_tools=2)
    assert letters_of(place.client.turn(ranked="cd")) == "abcd"


def test_a_stateless_turn_without_match_gives_the_routes_set(world: MakeWorld) -> None:
    alice = world(letters="abcde", seed_tools=2, required_tools=["crm/e"]).client
    answer = alice.turn("", called="d")
    assert (letters_of(answer), outcome(answer)) == ("edab", "STATELESS")


def test_min_generation(world: MakeWorld) -> None:
    place = world(seed_tools=2)
    answer = place.client.turn(ranked="ab", min_generation=place.generation)
    assert answer.receipt.generation == place.generation
    before = place.client.session("s").tools
    with refused("FAILED_PRECONDITION", "GENERATION_NOT_REACHED"):
        place.client.turn(ranked="cd", min_generation=place.generation + 1)
    assert place.client.session("s").tools == before


def test_token_estimates(world: MakeWorld) -> None:
    alice = world(letters="abcd", seed_tools=4).client
    answer = alice.turn(ranked="abcd")
    size = sum(len(t.definition) for t in answer.tools)
    assert answer.receipt.estimate.advertised == -(-size // 4)
    assert answer.receipt.estimate.whole_catalog == answer.receipt.estimate.advertised


@pytest.mark.parametrize("name", ["calendar.read", "user-profile/update", "Create CIFS Share", "x" * 76, "y" * 130])
def test_odd_names_are_mapped_and_called_back_row_6(world: MakeWorld, name: str) -> None:
    place = world(letters="a", seed_tools=2)
    place.service.apply([tool(f"crm/{name}", "odd")], tenant=place.tenant)
    answer = place.client.select("s", candidates=[f"crm/{name}", "crm/a"])
    exposed = answer.tools[0].name
    assert exposed.replace("-", "").replace("_", "").isalnum()
    assert len(exposed) <= 64
    assert json.loads(answer.tools[0].definition)["function"]["name"] == exposed
    answer = place.client.select("s", called_tools=[exposed])
    assert (answer.tools[0].tool_id, answer.tools[0].pinned) == (f"crm/{name}", True)


def test_two_servers_with_one_name_row_5(world: MakeWorld) -> None:
    tools = [tool("one/search", "first", schema(1)), tool("two/search", "second", schema(2))]
    place = world(tools=[], seed_tools=4)
    place.service.apply(tools, tenant=place.tenant)
    ids = {"one/search": 2.0, "two/search": 1.0}
    answer = place.client.select("s", candidates=ids)
    names = [t.name for t in answer.tools]
    assert (names[0], len(set(names))) == ("search", 2)
    mine = place.client.select("s", candidates=ids, offered=[chat("search", 9)])
    assert [t.name for t in mine.tools] == ["search", names[1]]
    assert [t.tool_id for t in mine.tools] == ["", "two/search"]
    again = place.client.select("s", candidates=ids)
    assert [t.name for t in again.tools] == names


def _of(answer: Any) -> list[str]:
    return [t.name for t in answer.tools]


def test_removing_the_owner_of_a_name_does_not_hand_it_on_row_71(world: MakeWorld) -> None:
    place = world(tools=[letter("z")], seed_tools=4)
    tools = [tool("one/search", "first", schema(1)), tool("two/search", "second", schema(2))]
    place.service.apply([letter("z"), *tools], tenant=place.tenant)
    names = _of(place.client.select("s", candidates=["one/search", "two/search"]))
    place.service.apply([letter("z"), tools[1]], tenant=place.tenant, prune=True)
    answer = place.client.select("s", called_tools=["search"])
    assert (_of(answer), answer.receipt.called_ignored) == ([names[1]], 1)
    assert not answer.tools[0].pinned
