"""The deployed Envoy configuration, a real Envoy, and an upstream that keeps the exact bytes that it gets."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.envoy import envoy_binary
from tests.support.envoy_stack import (
    ANTHROPIC,
    CHAT,
    FAILS_OPEN,
    HEADERS,
    MODES,
    RENDERED,
    RESPONSES,
    SMALL_BUFFER,
    Stack,
    chunks,
    mode_changes,
    open_stack,
)
from tests.support.ext_proc import JWT, PATHS, FakeApplication, chat_body
from tests.support.waiting import wait_until
from toolbelay.catalog.formats import WireFormat
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.planner.calls import Denial

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", params=MODES)
def each_mode(request: pytest.FixtureRequest) -> Iterator[Stack]:
    with ExitStack() as stack:
        yield open_stack(stack, mode_changes(request.param))


@pytest.fixture(scope="module")
def deployed() -> Iterator[Stack]:
    """The file as it is."""
    with ExitStack() as stack:
        yield open_stack(stack)


@pytest.fixture
def make() -> Iterator[Callable[..., Stack]]:
    with ExitStack() as stack:
        yield lambda *args, **options: open_stack(stack, *args, **options)


def test_envoy_validates_the_file(deployed: Stack) -> None:
    done = subprocess.run(
        [envoy_binary(), "--mode", "validate", "-c", deployed.envoy.config], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("wire_format", [CHAT, RESPONSES, ANTHROPIC])
def test_every_byte_outside_tools_stays(each_mode: Stack, wire_format: WireFormat) -> None:
    body = chat_body(wire_format)
    got = each_mode.forwarded(body, wire_format)
    assert got.body == body.replace(b'\\/"\n}', b'\\/","tools":[' + RENDERED[wire_format] + b"]\n}")
    assert got.header("content-length") in (None, str(len(got.body)))
    assert got.header("x-toolbelay-token") is None
    assert got.header("x-session-id") == "s1"


@pytest.mark.parametrize("size", [32_768, 32_769, 1_000_000, 6_000_000])
def test_row_59_bodies_of_every_size(each_mode: Stack, size: int) -> None:
    """Row 53 too: the largest are over gRPC's own 4 MiB."""
    filler = size - len(chat_body(CHAT, ""))
    body = chat_body(CHAT, "é" * (filler // 2) + "x" * (filler % 2))
    assert len(body) == size
    expected = body.replace(b'\\/"\n}', b'\\/","tools":[' + RENDERED[CHAT] + b"]\n}")
    assert each_mode.forwarded(body).body == expected
    assert each_mode.forwarded(chunks(body, 65_537)).body == expected


@pytest.mark.parametrize("size", [1, 3, 10])
def test_row_59_chunk_borders_anywhere(each_mode: Stack, size: int) -> None:
    body = chat_body(CHAT, "é😀", tools=[{"type": "function", "function": {"name": "own"}}])
    got = each_mode.forwarded(chunks(body, size))
    assert got.body == body.replace(b"}}]", b"}}," + RENDERED[CHAT] + b"]").replace(
        b'"tools" : [{"type": "function", ', b'"tools" : [{"type": "function", '
    )


def test_what_is_not_ours_passes_untouched(each_mode: Stack) -> None:
    bodies = [b"", b"hello", b"{}", b'{"messages":[]}', b'["model"]', b"\xef\xbb\xbfx", b'{"model":"m","messages":[']
    for body in bodies:
        assert each_mode.forwarded(body).body == body
        assert each_mode.forwarded(chunks(body, 4)).body == body
    assert each_mode.client.get("/v1/models").status_code == 200
    assert each_mode.upstream.last().method == "GET"
    large = bytes(12_000_000)
    assert each_mode.client.post("/v1/files", content=large, headers={"x-toolbelay-token": JWT}).status_code == 200
    assert each_mode.upstream.last().body == large
    assert each_mode.upstream.last().header("x-toolbelay-token") is None


def test_denials_end_in_every_mode(each_mode: Stack) -> None:
    before = len(each_mode.upstream.received)
    for body in (chat_body(CHAT), chunks(chat_body(CHAT), 20)):
        answer = each_mode.post(body, x_toolbelay_token="wrong")
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["code"] == "token_invalid"
    assert each_mode.post(chat_body(ANTHROPIC), ANTHROPIC, x_toolbelay_token="wrong").json()["type"] == "error"
    assert len(each_mode.upstream.received) == before


def test_the_receipt_comes_back(each_mode: Stack) -> None:
    assert "outcome=SEEDED;turn=1" in each_mode.post(chat_body(CHAT)).headers["x-toolbelay-receipt"]


def test_a_compressed_body_in_every_mode(each_mode: Stack) -> None:
    plain = each_mode.forwarded(chat_body(CHAT)).body
    got = each_mode.forwarded(gzip.compress(chat_body(CHAT)), content_encoding="gzip")
    assert got.header("content-encoding") == "gzip"
    assert gzip.decompress(got.body) == plain


def test_clients_cannot_choose_the_route(make: Callable[..., Stack]) -> None:
    stack = make(options=ExtProcOptions(route_header="x-toolbelay-route"))
    stack.forwarded(chat_body(CHAT), x_toolbelay_route="admin")
    assert stack.app.requests[-1].route == ""


def test_a_router_in_front_chooses_it_by_metadata(make: Callable[..., Stack]) -> None:
    """A filter before Toolbelay's, as a semantic router is one, sets dynamic metadata."""
    filter_before = """- name: choose
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata: [{metadata_namespace: toolbelay, value: {route: eu}}]
                  - name: strip"""
    stack = make({"- name: strip": filter_before})
    stack.forwarded(chat_body(CHAT))
    assert stack.app.requests[-1].route == "eu"


def test_row_59_the_buffer_limit_is_envoys_413(make: Callable[..., Stack]) -> None:
    stack = make(SMALL_BUFFER)
    assert stack.post(chat_body(CHAT, "x" * 30_000)).status_code == 200
    assert stack.post(chat_body(CHAT, "x" * 64_000)).status_code == 413
    assert stack.post(chat_body(CHAT)).status_code == 200


@pytest.mark.parametrize("mode", MODES)
def test_row_59_over_our_limit(make: Callable[..., Stack], mode: str) -> None:
    body = chat_body(CHAT, "x" * 50_000)
    stack = make(mode_changes(mode), ExtProcOptions(max_body_bytes=40_000))
    for sent in (body, chunks(body, 9_000)):
        assert stack.forwarded(sent).body == body
    stack = make(mode_changes(mode), ExtProcOptions(max_body_bytes=40_000, on_large_body="reject"))
    for sent in (body, chunks(body, 9_000)):
        assert stack.post(sent).status_code == 413
    assert not stack.upstream.received


def test_a_part_of_a_body_in_partial_mode_passes(make: Callable[..., Stack]) -> None:
    stack = make({**SMALL_BUFFER, **mode_changes("BUFFERED_PARTIAL")})
    body = chat_body(CHAT, "x" * 100_000)
    assert stack.forwarded(body).body == body


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fails_open", [False, True])
def test_row_60_outages(make: Callable[..., Stack], mode: str, fails_open: bool) -> None:
    """A request goes on whole, or not at all; what was withheld never goes on in part."""
    app = FakeApplication(error=ToolbelayError(ErrorReason.AUTHORITY_UNVERIFIABLE, "no"))
    stack = make({**mode_changes(mode), **(FAILS_OPEN if fails_open else {})}, None, app)
    body = chat_body(CHAT, "x" * 40_000)
    for sent in (body, chunks(body, 9_000)):
        answer = stack.post(sent)
        assert answer.status_code in ((200, 503) if fails_open else (503,))
        assert (answer.status_code == 200) is bool(stack.upstream.received)
        assert all(got.body == body for got in stack.upstream.received)
        assert all(got.header("x-toolbelay-token") is None for got in stack.upstream.received)
        stack.upstream.received.clear()
    if mode == "BUFFERED":
        assert answer.status_code == (200 if fails_open else 503)


@pytest.mark.parametrize("fails_open", [False, True])
def test_row_60_down_and_hanging(make: Callable[..., Stack], fails_open: bool) -> None:
    app = FakeApplication(delay=30)
    changes = {"message_timeout: 1s": "message_timeout: 0.3s", **(FAILS_OPEN if fails_open else {})}
    stack = make(changes, ExtProcOptions(deadline=20), app)
    hanging = stack.post(chat_body(CHAT)).status_code
    stack.processor.close()
    down = stack.post(chat_body(CHAT)).status_code
    assert (hanging, down) == ((200, 200) if fails_open else (504, 503))
    assert all(got.header("x-toolbelay-token") is None for got in stack.upstream.received)


def test_row_60_a_denial_is_not_turned_into_fail_open(make: Callable[..., Stack]) -> None:
    app = FakeApplication(error=ToolbelayError(ErrorReason.REQUIRED_TOOL_UNAVAILABLE, "no"))
    stack = make(FAILS_OPEN, None, app)
    assert stack.post(chat_body(CHAT)).status_code == 403
    assert not stack.upstream.received


def test_an_error_inside_ends_the_stream(make: Callable[..., Stack]) -> None:
    stack = make(app=FakeApplication(error=RuntimeError("secret")))
    answer = stack.post(chat_body(CHAT))
    assert answer.status_code == 503
    assert "secret" not in answer.text
    stack.app.error = None
    assert stack.post(chat_body(CHAT)).status_code == 200


def test_a_stopping_processor_leaves_requests_that_wait_for_the_model_alone(make: Callable[..., Stack]) -> None:
    stack = make()
    stack.upstream.may_answer.clear()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stack.post, chat_body(CHAT))
        wait_until(lambda: stack.upstream.received)
        stack.processor.close(grace=20)
        stack.upstream.may_answer.set()
        answer = waiting.result(20)
    assert (answer.status_code, answer.content) == (200, stack.upstream.answer)


def response_of(*names: str) -> bytes:
    calls = [{"id": n, "type": "function", "function": {"name": n, "arguments": "{}"}} for n in names]
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": calls}
    return json.dumps({"choices": [{"finish_reason": "tool_calls", "message": message}]}).encode()


@pytest.mark.parametrize("mode", MODES)
def test_denied_calls_never_reach_the_client(make: Callable[..., Stack], mode: str) -> None:
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    changes = mode_changes(mode)
    stack = make(changes, ExtProcOptions(authorize_calls=True), app)
    stack.upstream.answer = response_of("find", "drop")
    answer = stack.post(chat_body(CHAT))
    names = [call["function"]["name"] for call in answer.json()["choices"][0]["message"]["tool_calls"]]
    assert names == ["find"]
    stack.upstream.answer = response_of("drop")
    answer = stack.post(chat_body(CHAT))
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "tool_call_denied"
    stack.upstream.answer = response_of("find")
    answer = stack.post(chat_body(CHAT))
    assert answer.content == stack.upstream.answer
    assert "x-toolbelay-receipt" in answer.headers


OVERRIDES = {"allow_mode_override: true": "allow_mode_override: false"}
NO_ANSWERS = {"response_body_mode: BUFFERED": "response_body_mode: NONE"}


def test_checking_calls_fails_closed_whatever_envoy_hears(make: Callable[..., Stack]) -> None:
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    stack = make(OVERRIDES, ExtProcOptions(authorize_calls=True), app)
    stack.upstream.answer = response_of("drop")
    assert stack.post(chat_body(CHAT)).status_code == 403
    stack = make({**NO_ANSWERS, **OVERRIDES, **FAILS_OPEN}, ExtProcOptions(authorize_calls=True), app)
    answer = stack.post(chat_body(CHAT))
    assert answer.status_code == 503
    assert "response_body_mode" in answer.json()["error"]["message"]
    assert not stack.upstream.received


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL", "STREAMED"])
def test_a_streaming_answer_is_never_held_back(make: Callable[..., Stack], mode: str, checks: bool) -> None:
    """The client has the first event while the model still speaks."""
    stack = make(mode_changes(mode), ExtProcOptions(authorize_calls=checks))
    stack.upstream.answer = b"data: 1\n\n"
    stack.upstream.more = b"data: 2\n\n"
    stack.upstream.may_end.clear()
    stack.upstream.answer_headers = {"content-type": "text/event-stream"}
    with stack.client.stream("POST", PATHS[CHAT], content=chat_body(CHAT), headers=HEADERS) as answer:
        arriving = answer.iter_raw()
        assert next(arriving) == b"data: 1\n\n"
        stack.upstream.may_end.set()
        assert b"".join(arriving) == b"data: 2\n\n"


@pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL", "STREAMED"])
def test_an_answer_that_is_not_checked_may_be_of_any_size(make: Callable[..., Stack], mode: str) -> None:
    stack = make(mode_changes(mode))
    stack.upstream.answer = bytes(30_000_000)
    for path in (PATHS[CHAT], "/v1/models"):
        answer = stack.client.post(path, content=chat_body(CHAT), headers=HEADERS)
        assert (answer.status_code, len(answer.content)) == (200, 30_000_000)


def test_an_answer_that_cannot_be_checked_does_not_pass(make: Callable[..., Stack]) -> None:
    stack = make(options=ExtProcOptions(authorize_calls=True))
    for size, status in ((6_000_000, 200), (9_000_000, 502), (30_000_000, 500)):  # ours, then Envoy's own limit
        stack.upstream.answer = json.dumps({"x": "y" * size}).encode()
        assert stack.post(chat_body(CHAT)).status_code == status


def test_a_streaming_answer_passes_untouched(make: Callable[..., Stack]) -> None:
    app = FakeApplication(denied={"drop": Denial.NOT_AUTHORIZED})
    stack = make(options=ExtProcOptions(authorize_calls=True), app=app)
    stack.upstream.answer = b'data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"drop"}}]}}]}\n\n'
    stack.upstream.answer_headers = {"content-type": "text/event-stream"}
    assert stack.post(chat_body(CHAT)).content == stack.upstream.answer
    assert not app.authorized
