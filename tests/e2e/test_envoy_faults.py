"""A processor that is killed, frozen or fails in the middle of a request: the body goes on whole, or not at all (row 60)."""

from __future__ import annotations

import gzip
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.support.envoy import Envoy, Upstream, envoy_binary
from tests.support.envoy_stack import (
    CHAT,
    FAILS_OPEN,
    HEADERS,
    MODES,
    RENDERED,
    Stack,
    chunks,
    mode_changes,
    open_stack,
)
from tests.support.ext_proc import JWT, PATHS, FakeApplication, chat_body
from tests.support.require import require
from toolbelay.ext_proc.options import ExtProcOptions

pytestmark = pytest.mark.e2e

BODY = chat_body(CHAT, "x" * 60_000)
REWRITTEN = BODY.replace(b'\\/"\n}', b'\\/","tools":[' + RENDERED[CHAT] + b"]\n}")
QUICK = {"message_timeout: 1s": "message_timeout: 0.5s", "interval: 10s, timeout: 5s": "interval: 1s, timeout: 0.5s"}


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make(resources: ExitStack) -> Callable[..., Stack]:
    return lambda *args, **options: open_stack(resources, *args, **options)


class Own:
    """A processor in its own process, Envoy and the upstream."""

    def __init__(self, resources: ExitStack, changes: dict[str, str]) -> None:
        require(envoy_binary)
        command = [sys.executable, "-m", "tests.support.ext_proc_main"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        resources.enter_context(self.process)
        resources.callback(self.process.kill)
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        self.upstream = Upstream()
        resources.callback(self.upstream.close)
        self.envoy = Envoy(port, self.upstream.port, changes)
        resources.callback(self.envoy.close)
        self.envoy.start()

    def post(self, body: bytes | Iterator[bytes]) -> httpx.Response:
        return httpx.post(self.envoy.url + PATHS[CHAT], content=body, headers=HEADERS, timeout=20)

    def interrupted(self, number: signal.Signals) -> Iterator[bytes]:
        """A body in whose middle the processor gets a signal."""
        for at, chunk in enumerate(chunks(BODY, 10_000)):
            if at == 3:
                self.process.send_signal(number)
                if number == signal.SIGKILL:
                    self.process.wait(10)
            yield chunk


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("fails_open", [False, True])
@pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED"])
def test_row_60_killed_or_frozen_in_the_middle_of_a_body(
    resources: ExitStack, mode: str, fails_open: bool, number: signal.Signals
) -> None:
    own = Own(resources, {**mode_changes(mode), **QUICK, **(FAILS_OPEN if fails_open else {})})
    assert own.post(chunks(BODY, 10_000)).status_code == 200
    assert own.upstream.received.pop().body == REWRITTEN
    answer = own.post(own.interrupted(number))
    assert answer.status_code in ((200, 503, 504) if fails_open else (503, 504))
    assert [got.body for got in own.upstream.received] == ([BODY] if answer.status_code == 200 else [])
    if mode != "FULL_DUPLEX_STREAMED":
        assert (answer.status_code == 200) is fails_open


@pytest.mark.parametrize("fails_open", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_row_60_an_error_inside_body_handling(make: Callable[..., Stack], mode: str, fails_open: bool) -> None:
    """Not only the errors that were thought of."""
    changes = {**mode_changes(mode), **(FAILS_OPEN if fails_open else {})}
    stack = make(changes, app=FakeApplication(error=RuntimeError("secret")))
    for sent in (BODY, chunks(BODY, 9_000)):
        answer = stack.post(sent)
        assert answer.status_code in ((200, 503) if fails_open else (503,))
        assert "secret" not in answer.text
        assert [got.body for got in stack.upstream.received] == ([BODY] if answer.status_code == 200 else [])
        stack.upstream.received.clear()


def test_streamed_is_refused_unless_it_was_chosen(resources: ExitStack, make: Callable[..., Stack]) -> None:
    """Beside fail-open, a processor that dies there leaves half a body: the answer says what to set instead."""
    stack = make({**mode_changes("STREAMED"), **FAILS_OPEN})
    stack.processor.close()
    assert stack.post(BODY).status_code == 200  # down is Envoy's to decide
    stack.upstream.received.clear()
    changes = {**mode_changes("STREAMED"), "message_timeout: 1s": "message_timeout: 2s", **FAILS_OPEN}
    refused = make(changes, ExtProcOptions(), allow_streamed=False)
    for sent in (BODY, chunks(BODY, 9_000)):
        answer = refused.post(sent)
        assert answer.status_code == 503
        assert "ALLOW_STREAMED" in answer.json()["error"]["message"]
    assert not refused.upstream.received


def test_a_model_may_think_longer_than_any_timeout_of_the_processor(make: Callable[..., Stack]) -> None:
    stack = make(
        {"timeout: 5s\n                      # Above": "timeout: 0.5s\n                      # Above", **QUICK}
    )
    stack.upstream.may_answer.clear()
    resume = threading.Timer(2.0, stack.upstream.may_answer.set)
    resume.start()
    answer = stack.post(BODY)
    resume.join()
    assert answer.status_code == 200
    assert "x-toolbelay-receipt" in answer.headers


TRAILERS = {
    "normalize_path: true": "normalize_path: true\n                http_protocol_options: {enable_trailers: true}"
}


def raw_post(stack: Stack, parts: list[bytes], trailers: bytes = b"", **more: str) -> int:
    """Send a chunked body in exactly these parts; the status of the answer."""
    headers = {**HEADERS, "host": "x", "transfer-encoding": "chunked", "connection": "close", **more}
    lines = [f"POST {PATHS[CHAT]} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items()), "", ""]
    with socket.create_connection(("127.0.0.1", stack.envoy.port), timeout=20) as connection:
        connection.sendall("\r\n".join(lines).encode())
        for part in parts:
            connection.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        connection.sendall(b"0\r\n" + trailers + b"\r\n")
        answer = b""
        while received := connection.recv(65536):
            answer += received
    return int(answer.split()[1])


@pytest.mark.parametrize("mode", MODES)
def test_row_59_trailers_behind_a_compressed_body(make: Callable[..., Stack], mode: str) -> None:
    """STREAMED sees its end too late to put it back, BUFFERED_PARTIAL never: refused or untouched, never lost."""
    stack = make({**TRAILERS, **mode_changes(mode)})
    body = gzip.compress(BODY)
    status = raw_post(stack, [body[:50], body[50:]], b"x-checksum: 1\r\n", **{"content-encoding": "gzip"})
    assert status == (400 if mode == "STREAMED" else 200)
    went_on = {"STREAMED": [], "BUFFERED_PARTIAL": [BODY]}.get(mode, [REWRITTEN])
    assert [gzip.decompress(got.body) for got in stack.upstream.received] == went_on


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_row_59_trailers_and_an_empty_last_chunk(make: Callable[..., Stack], mode: str, sends: bool) -> None:
    """Each message is answered once and in order: no spurious response, no stall."""
    changes = {**TRAILERS, **mode_changes(mode)}
    if sends and not mode.startswith("FULL"):
        changes["request_body_mode: BUFFERED"] = (
            f"{changes['request_body_mode: BUFFERED']}\n{' ' * 24}request_trailer_mode: SEND"
        )
    stack = make(changes)
    at = BODY.index(b'"model"') + 3
    for parts in ([BODY], [BODY[:at], BODY[at:]], [BODY[:at], BODY[at:30_000], BODY[30_000:]]):
        for trailers in (b"", b"x-checksum: 1\r\n"):
            assert raw_post(stack, parts, trailers) == 200
            assert stack.upstream.last().body == REWRITTEN
    assert JWT not in str(stack.upstream.last().headers)
