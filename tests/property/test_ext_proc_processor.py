"""Whatever a body holds, the processor ends in a body or in a denial, never in another error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ext_proc import JWT, PATHS, FakeApplication
from toolbelay.catalog.formats import WireFormat
from toolbelay.ext_proc.calls import called_names, read_response, without_denied
from toolbelay.ext_proc.faults import DenialError
from toolbelay.ext_proc.head import RequestHead
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.ext_proc.processor import Processor

FORMATS = [WireFormat.OPENAI_CHAT, WireFormat.OPENAI_RESPONSES, WireFormat.ANTHROPIC_MESSAGES]
WORDS = [
    "role", "user", "assistant", "tool", "content", "type", "text", "function", "function_call", "tool_calls", "name",
    "tool_use", "tool_result", "input", "parameters", "input_schema", "object", "custom", "cache_control", "tools",
    "tool_choice", "allowed_tools", "mode", "auto", "required", "any", "description", "ephemeral", "message",
    "choices", "output", "defer_loading", "\x00", "\ud800", "é",
]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)


async def process(processor: Processor, wire_format: WireFormat, body: bytes) -> bytes | None:
    headers = {":method": (b"POST",), ":path": (PATHS[wire_format].encode(),), "x-toolbelay-token": (JWT.encode(),)}
    try:
        return (await processor.rewrite(RequestHead(headers, {}, wire_format), body)).body
    except DenialError as denial:
        if denial.status != 400:
            raise
        return None


@given(
    st.sampled_from(FORMATS),
    st.dictionaries(st.sampled_from(["messages", "input", "tools", "tool_choice", "x"]), VALUES),
)
@settings(max_examples=400, deadline=None)
def test_odd_requests(wire_format: WireFormat, parts: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", **parts}).encode()
    processor = FakeApplication().processor(ExtProcOptions(deadline=30))
    new = asyncio.run(process(processor, wire_format, body))
    if new is not None:
        found = json.loads(new)
        assert {k: v for k, v in found.items() if k not in ("tools", "tool_choice")} == {
            k: v for k, v in json.loads(body).items() if k not in ("tools", "tool_choice")
        }


@given(st.sampled_from(FORMATS), st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_bytes(wire_format: WireFormat, body: bytes) -> None:
    assert asyncio.run(process(FakeApplication().processor(ExtProcOptions(deadline=30)), wire_format, body)) is None


@given(
    st.sampled_from(FORMATS), st.dictionaries(st.sampled_from(["choices", "content", "output", "stop_reason"]), VALUES)
)
@settings(max_examples=300, deadline=None)
def test_odd_answers(wire_format: WireFormat, parts: dict[str, Any]) -> None:
    text = json.dumps(parts).encode()
    response = read_response(text)
    assert response is not None
    names = called_names(response, wire_format)
    if not names:
        return
    left = without_denied(response, wire_format, dict.fromkeys(names[:1], "NOT_AUTHORIZED"))
    if left is not None:
        again = read_response(left)
        assert again is not None
        assert names[0] not in called_names(again, wire_format)
