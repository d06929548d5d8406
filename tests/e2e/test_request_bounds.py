"""Sections 2 and 9: each bound of a request, with its code, reason and field; nothing of the state moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tests.support.service import Client, token, tool
from tests.support.world import World, chat, choice, letters_of, refused, target
from toolbelay.client import ToolbelayClient
from toolbelay.v1 import selection_pb2 as pb

MakeWorld = Callable[..., World]
INVALID = ("INVALID_ARGUMENT", "INVALID_REQUEST")


def deep(levels: int) -> bytes:
    inner = '{"type":"object"}'
    for _ in range(levels - 1):
        inner = '{"not":' + inner + "}"
    return b'{"type":"function","function":{"name":"deep","parameters":' + inner.encode() + b"}}"


def named(text: str) -> bytes:
    return ('{"type":"function","function":{"name":"n","description":' + text + ',"parameters":{}}}').encode()


TOO_MUCH: list[tuple[str, dict[str, Any], str]] = [
    ("session_id", {"session_id": "s" * 129}, "session_id"),
    ("session_id-wide", {"session_id": "é" * 65}, "session_id"),
    ("session_id-nul", {"session_id": "a\0b"}, "session_id"),
    ("session_id-newline", {"session_id": "a\nb"}, "session_id"),
    ("session_id-bidi", {"session_id": "a\u202eb"}, "session_id"),
    ("turn_id", {"turn_id": "t" * 129}, "turn_id"),
    ("turn_id-control", {"turn_id": "\x1b"}, "turn_id"),
    ("route", {"route": "r" * 129}, "route"),
    ("query", {"query": "q" * (1024 * 1024 + 1)}, "query"),
    ("query-nul", {"query": "a\0b"}, "query"),
    ("called", {"called_tools": ["a"] * 257}, "called_tools"),
    ("called-name", {"called_tools": ["a" * 1025]}, "called_tools[0]"),
    ("called-nul", {"called_tools": ["a", "b\0"]}, "called_tools[1]"),
    ("offered", {"offered_tools": [pb.OfferedTool(definition=chat(f"n{i}")) for i in range(513)]}, "offered_tools"),
    ("candidates", {"candidates": [pb.RankedCandidate(tool_id=f"a/{i}") for i in range(4097)]}, "candidates"),
    ("candidate-nan", {"candidates": [pb.RankedCandidate(tool_id="a/a", score=float("nan"))]}, "candidates[0].score"),
    ("candidate-inf", {"candidates": [pb.RankedCandidate(tool_id="a/a", score=float("-inf"))]}, "candidates[0].score"),
    ("candidate-twice", {"candidates": [pb.RankedCandidate(tool_id="a/a")] * 2}, "candidates[1].tool_id"),
    ("candidate-id", {"candidates": [pb.RankedCandidate(tool_id="a/" + "b" * 300)]}, "candidates[0].tool_id"),
    ("model", {"target": pb.Target(model="m" * 257)}, "target.model"),
    ("model-nul", {"target": pb.Target(model="\0")}, "target.model"),
    ("format", {"target": pb.Target.FromString(b"\x08\x63")}, "target.format"),
    ("capabilities", {"target": pb.Target(capabilities=["c"] * 65)}, "target.capabilities"),
    ("capability", {"target": pb.Target(capabilities=["ok", "c" * 129])}, "target.capabilities[1]"),
    ("choice-names", {"tool_choice": choice("ALLOWED", *["a"] * 129)}, "tool_choice.names"),
    ("choice-mode", {"tool_choice": pb.ToolChoice.FromString(b"\x08\x63")}, "tool_choice.mode"),
    ("choice-named-none", {"tool_choice": choice("NAMED")}, "tool_choice.names"),
    ("choice-named-two", {"tool_choice": choice("NAMED", "a", "b")}, "tool_choice.names"),
    ("fingerprints", {"known_fingerprints": ["0" * 64] * 1025}, "known_fingerprints"),
]  # fmt: skip

BAD_OFFERS: list[tuple[str, bytes]] = [
    ("not-json", b"{"),
    ("not-an-object", b"[]"),
    ("empty", b""),
    ("not-utf8", b'{"type":"\xff"}'),
    ("too-long", named(json.dumps("x" * 65_600))),
    ("too-deep", deep(65)),
    ("number-too-long", named("1").replace(b'"parameters":{}', b'"parameters":{"maximum":' + b"9" * 1001 + b"}")),
    ("duplicate-key", named('"a","description":"b"')),
    ("nul", named('"a\\u0000b"')),
    ("lone-surrogate", named('"a\\ud800b"')),
    ("two-values", chat("a") + b"{}"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "field"), [c[1:] for c in TOO_MUCH], ids=[c[0] for c in TOO_MUCH])
def test_over_a_bound_is_refused_with_the_field(world: MakeWorld, fields: dict[str, Any], field: str) -> None:
    alice = world(letters="ab", seed_tools=1).client
    alice.turn(ranked="a")
    before = alice.session("s")
    request = pb.SelectToolsRequest(**{"session_id": "s", **fields})
    with refused(*INVALID, field) as said:
        alice.selection.SelectTools(request, metadata=alice._metadata)
    assert len(said.message) < 1000
    assert alice.session("s") == before


@pytest.mark.parametrize("definition", [c[1] for c in BAD_OFFERS], ids=[c[0] for c in BAD_OFFERS])
def test_an_offer_that_is_no_strict_json_object_is_refused(world: MakeWorld, definition: bytes) -> None:
    alice = world(letters="ab", seed_tools=1).client
    alice.turn(ranked="a")
    before = alice.session("s")
    with refused(*INVALID) as said:
        alice.turn(ranked="b", offered=[chat("fine"), definition])
    assert said.fields[0].startswith("offered_tools[1].definition")
    assert alice.session("s") == before


def test_what_is_just_within_the_bounds_is_answered(world: MakeWorld) -> None:
    alice = world(letters="ab", seed_tools=1).client
    answer = alice.select(
        "s" * 128,
        candidates={f"crm/x{i}": 1.0 for i in range(4095)} | {"crm/a": 2.0},
        offered=[chat(f"n{i}") for i in range(512)],
        turn_id="é" * 64,
        query="q" * (1024 * 1024),
        called_tools=["b"] * 256,
        target=target("ANTHROPIC_MESSAGES", model="m" * 256, capabilities=[f"c{i}" for i in range(64)]),
        tool_choice=choice("ALLOWED", *[f"n{i}" for i in range(128)]),
        known_fingerprints=["0" * 64] * 1024,
    )
    assert letters_of(answer).endswith("ba")
    assert (answer.receipt.candidates_ignored, answer.receipt.caller_owned) == (4095, 512)
    assert len(alice.select("", offered=[deep(64)]).tools) > 0


@pytest.mark.parametrize("junk", [b"\xff\xff\xff", b"\x12\x02\xff\xfe", b"\x12\x7f"])
def test_a_message_that_cannot_be_decoded_names_no_field(world: MakeWorld, junk: bytes) -> None:
    place = world(letters="a")
    call = place.service.channel.unary_unary(
        "/toolbelay.v1.ToolSelectionService/SelectTools", request_serializer=bytes, response_deserializer=bytes
    )
    with refused(*INVALID) as said:
        call(junk, metadata=place.client._metadata, timeout=5)
    assert said.fields == []


def test_a_message_over_eight_mebibytes_ends_at_the_wire(world: MakeWorld) -> None:
    place = world(letters="a")
    with pytest.raises(grpc.RpcError) as caught:
        place.client.select("s", query="q" * (9 * 1024 * 1024))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert letters_of(place.client.turn(ranked="a")) == "a"


def test_row_53_an_answer_over_grpcs_own_limit(world: MakeWorld) -> None:
    """128 tools of 60 kB: whole for a client that allows it, told to one that does not, small without definitions."""
    wide = {"type": "object", "properties": {"x": {"type": "string", "description": "x" * 60_000}}}
    tools = [tool(f"crm/t{n}", "a tool", wide) for n in range(128)]
    place = world(tools=tools, max_tools=128, seed_tools=128, top_k=128)
    asked: dict[str, Any] = {"candidates": [f"crm/t{n}" for n in range(128)]}
    whole = place.client.select("s", **asked)
    assert len(whole.tools) == 128
    assert whole.ByteSize() > 7_000_000
    bearer = token("alice", place.tenant)
    with grpc.insecure_channel(f"127.0.0.1:{place.service.port}") as channel:  # 4 MiB, gRPC's default
        with pytest.raises(grpc.RpcError) as caught:
            Client(channel, bearer).select("s", **asked)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        small = Client(channel, bearer).select("s", omit_definitions=True, **asked)
    assert [t.fingerprint for t in small.tools] == [t.fingerprint for t in whole.tools]
    with ToolbelayClient(f"127.0.0.1:{place.service.port}", token=bearer, timeout=10) as client:  # ours allows 24 MiB
        assert len(client.select_tools(pb.SelectToolsRequest(session_id="s")).tools) == 128


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"calls": [pb.ToolCall(name="a")] * 257}, "calls"),
        ({"calls": [pb.ToolCall(name="a", call_id="c" * 129)]}, "calls[0].call_id"),
        ({"calls": [pb.ToolCall(name="a", call_id="c\0")]}, "calls[0].call_id"),
        ({"calls": [pb.ToolCall(name="a"), pb.ToolCall(name="a\0")]}, "calls[1].name"),
        ({"calls": [pb.ToolCall(name="a" * 1025)]}, "calls[0].name"),
        ({"caller_tools": ["a"] * 513}, "caller_tools"),
        ({"session_id": "s" * 129}, "session_id"),
        ({"route": "r" * 129}, "route"),
        ({"target": pb.Target(model="m" * 257)}, "target.model"),
    ],
)
def test_authorize_has_bounds_too(world: MakeWorld, fields: dict[str, Any], field: str) -> None:
    alice = world(letters="a", seed_tools=1).client
    alice.turn(ranked="a")
    before = alice.session("s")
    request = pb.AuthorizeToolCallsRequest(**{"session_id": "s", **fields})
    with refused(*INVALID, field):
        alice.selection.AuthorizeToolCalls(request, metadata=alice._metadata)
    assert alice.session("s") == before


@pytest.mark.parametrize(("session", "route", "field"), [
    ("", "", "session_id"), ("s" * 129, "", "session_id"), ("a\0", "", "session_id"), ("s", "r" * 129, "route"),
])  # fmt: skip
def test_a_session_must_be_named(world: MakeWorld, session: str, route: str, field: str) -> None:
    alice = world(letters="a").client
    with refused(*INVALID, field):
        alice.session(session, route)
    with refused(*INVALID, field):
        alice.end(session, route)


def test_a_message_says_which_bound_and_how_much(world: MakeWorld) -> None:
    alice = world(letters="a").client
    with refused(*INVALID, "session_id") as said:
        alice.turn("s" * 140)
    assert "140" in said.message
    assert "128" in said.message
    with refused(*INVALID, "offered_tools") as said:
        alice.turn(offered=[chat(f"n{i}") for i in range(520)])
    assert "520" in said.message
    assert "512" in said.message


def test_no_message_echoes_what_was_sent(world: MakeWorld) -> None:
    alice = world(letters="a").client
    secret = "hunter2-hunter2"
    bad = b'{"type":"function","function":{"name":"n","description":"' + secret.encode() + b'","parameters":[}}'
    with refused(*INVALID) as said:
        alice.turn(offered=[bad])
    assert secret not in said.message
    with refused(*INVALID) as said:
        alice.turn("\n" + secret)
    assert secret not in said.message
