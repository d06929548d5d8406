"""Every RPC under schema-aware random messages: no INTERNAL, no UNKNOWN, no crash, and nobody else's state touched."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fault_world import TOOLS
from tests.support.served import served
from tests.support.service import Service, ids, token, tool
from toolbelay.v1 import admin_pb2, selection_pb2

pytestmark = pytest.mark.faults

EXAMPLES = int(os.environ.get("SOAK_FUZZ_EXAMPLES", "400"))
FORBIDDEN: Final = {"INTERNAL", "UNKNOWN", "UNIMPLEMENTED", "DATA_LOSS", "DEADLINE_EXCEEDED", "CANCELLED"}
SERVICES: Final[tuple[ServiceDescriptor, ...]] = (
    selection_pb2.DESCRIPTOR.services_by_name["ToolSelectionService"],
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
)
METHODS: Final = [method for service in SERVICES for method in service.methods]
A, B = TOOLS[:2]
F = FieldDescriptor

_odd_text = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["", " ", "a:b", "{x}", "{tb}:s:1", "\x00", "\u202e", "🦉", "x" * 129, "\n", "../..", "alice::chat-1"]
    ),
)
_names = st.one_of(st.sampled_from(["a", "b", "c", "crm/a", "crm/b", "mine", "caller/mine"]), _odd_text)
_NUMBERS: Final = {
    F.TYPE_INT32: (-(2**31), 2**31 - 1),
    F.TYPE_INT64: (-(2**63), 2**63 - 1),
    F.TYPE_UINT32: (0, 2**32 - 1),
    F.TYPE_UINT64: (0, 2**64 - 1),
}
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "name", "function", "properties", "$ref", "anyOf"]), inner, max_size=4
        ),
    ),
    max_leaves=8,
)
_line = st.one_of(
    st.builds(lambda name: json.dumps(tool(f"crm/{name}")).encode(), st.sampled_from("abcdxyz")),
    _json.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40),
)
_definition = st.one_of(
    st.builds(
        lambda name, schema: json.dumps(
            {"type": "function", "function": {"name": name, "parameters": schema}}
        ).encode(),
        st.sampled_from(["a", "b", "mine", "x y", ""]),
        st.one_of(st.just({"type": "object", "properties": {}}), _json),
    ),
    st.builds(
        lambda name: json.dumps({"name": name, "input_schema": {"type": "object"}}).encode(),
        st.sampled_from(["a", "mine"]),
    ),
    _line,
)
_policy = st.one_of(
    st.sampled_from(
        [b"permit (principal, action, resource);", b'forbid (principal, action, resource == Tool::"crm/a");']
    ),
    st.binary(max_size=60),
)
_routes = st.one_of(_json.map(lambda value: json.dumps({"routes": value}).encode()), st.binary(max_size=60))
# What a field's name says of it, so that messages get past the first checks more often than noise would.
_BY_NAME: Final[dict[str, st.SearchStrategy[Any]]] = {
    "route": st.one_of(st.sampled_from(["", "default", "words", "none"]), _odd_text),
    "session_id": st.one_of(st.sampled_from(["", "s", "t"]), _odd_text),
    "called_tools": _names,
    "name": _names,
    "names": _names,
    "tool_id": _names,
    "caller_tools": _names,
    "definition": _definition,
    "content": st.one_of(_line, _policy, _routes),
    "score": st.one_of(st.floats(0, 1), st.floats()),
    "min_generation": st.one_of(st.just(0), st.integers(0, 2**64 - 1)),
}


def _one(field: Any, depth: int) -> st.SearchStrategy[Any]:
    known = _BY_NAME.get(field.name)
    if known is not None and field.type in {F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_DOUBLE, F.TYPE_UINT64}:
        return known
    if field.type == F.TYPE_MESSAGE:
        return _messages(GetMessageClass(field.message_type), depth - 1)
    if field.type == F.TYPE_ENUM:
        numbers = st.sampled_from([value.number for value in field.enum_type.values])
        return st.one_of(numbers, st.integers(-5, 10**6))
    if field.type in _NUMBERS:
        least, most = _NUMBERS[field.type]
        return st.one_of(st.sampled_from([0, 1, least, most]), st.integers(least, most))
    if field.type == F.TYPE_BOOL:
        return st.booleans()
    if field.type == F.TYPE_BYTES:
        return st.binary(max_size=40)
    if field.type == F.TYPE_STRING:
        return _odd_text
    return st.floats()


def _messages(kind: type[Message], depth: int = 3) -> st.SearchStrategy[Message]:
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in kind.DESCRIPTOR.fields:
        if field.type == F.TYPE_MESSAGE and depth <= 0:
            continue
        one = _one(field, depth)
        fields[field.name] = st.lists(one, max_size=4) if field.is_repeated else one
    return st.fixed_dictionaries({}, optional=fields).map(lambda given_: kind(**given_))


def _wire(kind: type[Message]) -> st.SearchStrategy[bytes]:
    """Valid messages mostly; cut, changed and random bytes too."""
    whole = _messages(kind).map(lambda message: message.SerializeToString())
    return st.one_of(
        whole,
        whole,
        whole,
        st.tuples(whole, st.integers(0, 100)).map(lambda t: t[0][: t[1]]),
        st.tuples(whole, st.binary(max_size=8), st.integers(0, 60)).map(lambda t: t[0][: t[2]] + t[1] + t[0][t[2] :]),
        st.binary(max_size=100),
    )


def _stream(kind: type[Message]) -> st.SearchStrategy[list[bytes]]:
    """Streams of ApplyConfig: a header, chunks, an end more often than not."""
    header = st.builds(lambda dry, prune: kind(header={"dry_run": dry, "prune": prune}), st.booleans(), st.booleans())
    chunk = st.builds(
        lambda part, name, content: kind(chunk={"kind": part, "name": name, "content": content}),
        st.integers(0, 3),
        st.sampled_from(["tools.jsonl", "all.cedar", "routes.yaml", "", "x" * 300]),
        st.one_of(_line, _policy, _routes),
    )
    orderly = st.builds(lambda first, parts: [first, *parts, kind(end={})], header, st.lists(chunk, max_size=3)).map(
        lambda messages: [message.SerializeToString() for message in messages]
    )
    return st.one_of(orderly, st.lists(_wire(kind), max_size=4))


class Fuzzed:
    """A service of which the tenant `fuzz` is played with, and the tenant `acme` must not notice."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.control = service.client("control")
        bearer = token("fuzzer", "fuzz", roles=["toolbelay.admin"])
        self._metadata = (("authorization", f"Bearer {bearer}"),)
        self.seen: Counter[tuple[str, str]] = Counter()

    def call(self, method: MethodDescriptor, sent: Any) -> str:
        """The name of the code that a call ends with."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        channel, plain = self.service.channel, {"request_serializer": bytes, "response_deserializer": bytes}
        try:
            if method.client_streaming:
                channel.stream_unary(path, **plain)(iter(sent), metadata=self._metadata, timeout=20)
            elif method.server_streaming:
                for _ in channel.unary_stream(path, **plain)(sent, metadata=self._metadata, timeout=20):
                    pass
            else:
                channel.unary_unary(path, **plain)(sent, metadata=self._metadata, timeout=20)
        except grpc.RpcError as error:
            failed: Any = error
            code = str(failed.code().name)
            if code in FORBIDDEN:
                raise AssertionError(f"{method.name}: {code} {failed.details()} for {sent!r}") from None
            return code
        return "OK"


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    routes = {"default": {"strategy": "caller"}, "words": {"strategy": "keyword", "mode": "filter"}}
    with served(tmp_path_factory.mktemp("fuzz")) as service:
        for tenant in ("acme", "fuzz"):
            service.apply(
                [tool(t) for t in TOOLS], {"all.cedar": "permit (principal, action, resource);"}, routes, tenant=tenant
            )
        yield Fuzzed(service.start())


def _sent(method: MethodDescriptor) -> st.SearchStrategy[Any]:
    kind = GetMessageClass(method.input_type)
    return _stream(kind) if method.client_streaming else _wire(kind)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_random_messages(fuzzed: Fuzzed, method: MethodDescriptor) -> None:
    before = ids(fuzzed.control.select("kept", candidates=[A, B], called_tools=["a"], turn_id="1"))
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize="SOAK_FUZZ_EXAMPLES" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    @given(_sent(method))
    def play(sent: Any) -> None:
        seen[fuzzed.call(method, sent)] += 1

    play()
    assert seen["OK"] > 0, seen
    assert sum(seen.values()) - seen["OK"] > 0 or method.name == "GetConfig", seen
    assert fuzzed.service.process.poll() is None
    after = fuzzed.control.select("kept", candidates=[A, B], turn_id="2")
    assert ids(after) == before
    assert "Traceback" not in fuzzed.service.log.read_text()
    assert "internal_error" not in fuzzed.service.log.read_text()


def test_all_methods_at_once(fuzzed: Fuzzed) -> None:
    """Messages drawn beforehand, sent from many threads; the control session goes on."""
    drawn: list[tuple[MethodDescriptor, Any]] = []
    for method in METHODS:
        drawn += [(method, sent) for sent in _draw(_sent(method), 40)]
    play: Callable[[tuple[MethodDescriptor, Any]], str] = lambda item: fuzzed.call(*item)  # noqa: E731
    with ThreadPoolExecutor(16) as threads:
        codes = Counter(threads.map(play, drawn))
    assert codes["OK"]
    assert ids(fuzzed.control.select("kept", candidates=[A, B]))[:1] == [A]


def _draw(strategy: st.SearchStrategy[Any], count: int) -> Sequence[Any]:
    found: list[Any] = []

    @settings(max_examples=count, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found
