"""A processor, the deployed Envoy configuration in front of it, and an upstream behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import httpx

from tests.support.envoy import Envoy, Received, Upstream, envoy_binary
from tests.support.ext_proc import JWT, PATHS, FakeApplication, ProcessorThread
from tests.support.require import require
from toolbelay.api.server import ListenOptions
from toolbelay.catalog.formats import WireFormat
from toolbelay.ext_proc.options import ExtProcOptions

CHAT, RESPONSES, ANTHROPIC = WireFormat.OPENAI_CHAT, WireFormat.OPENAI_RESPONSES, WireFormat.ANTHROPIC_MESSAGES
MODES = ["BUFFERED", "BUFFERED_PARTIAL", "STREAMED", "FULL_DUPLEX_STREAMED"]
HEADERS = {"content-type": "application/json", "x-toolbelay-token": JWT, "x-session-id": "s1"}
RENDERED = {
    CHAT: b'{"type":"function","function":{"name":"find","description":"Finds \\u00e9.","parameters":{"type":"object"}}}',
    RESPONSES: b'{"type":"function","name":"find","description":"Finds \\u00e9.","parameters":{"type":"object"}}',
    ANTHROPIC: b'{"name":"find","description":"Finds \\u00e9.","input_schema":{"type":"object"}}',
}
FAILS_OPEN = {"failure_mode_allow: false": "failure_mode_allow: true"}
SMALL_BUFFER = {"per_connection_buffer_limit_bytes: 10485760": "per_connection_buffer_limit_bytes: 32768"}


class Stack:
    """A processor, Envoy in front of it, and the upstream behind."""

    def __init__(self, processor: ProcessorThread, envoy: Envoy, upstream: Upstream) -> None:
        self.processor, self.envoy, self.upstream = processor, envoy, upstream
        self.client = httpx.Client(base_url=envoy.url, timeout=20)

    @property
    def app(self) -> FakeApplication:
        return self.processor.app

    def post(self, body: bytes | Iterator[bytes], wire_format: WireFormat = CHAT, **headers: str) -> httpx.Response:
        more = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.client.post(PATHS[wire_format], content=body, headers={**HEADERS, **more})

    def forwarded(self, body: bytes | Iterator[bytes], wire_format: WireFormat = CHAT, **headers: str) -> Received:
        answer = self.post(body, wire_format, **headers)
        assert answer.status_code == 200, answer.text
        return self.upstream.last()


def mode_changes(mode: str) -> dict[str, str]:
    trailers = "\n                        request_trailer_mode: SEND" if mode.startswith("FULL") else ""
    return {"request_body_mode: BUFFERED": f"request_body_mode: {mode}{trailers}"}


def open_stack(
    stack: ExitStack,
    changes: dict[str, str] | None = None,
    options: ExtProcOptions | None = None,
    app: FakeApplication | None = None,
    listen: ListenOptions | None = None,
    *,
    allow_streamed: bool = True,
) -> Stack:
    require(envoy_binary)
    streamed = any("request_body_mode: STREAMED" in new for new in (changes or {}).values())
    processor = ProcessorThread(
        replace(options or ExtProcOptions(), allow_streamed=streamed and allow_streamed), app, listen=listen
    )
    stack.callback(processor.close)
    upstream = Upstream()
    stack.callback(upstream.close)
    envoy = Envoy(processor.port, upstream.port, changes)
    stack.callback(envoy.close)
    envoy.start()
    opened = Stack(processor, envoy, upstream)
    stack.callback(opened.client.close)
    return opened


def chunks(body: bytes, size: int) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))
