"""The row of Envoy's external processor: a whole exchange, request headers and body, for one chat request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext

from bench import world
from bench.cases import PRINCIPALS, TURNS, Case
from bench.generator import Record
from bench.stage import bearer

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


def exchanges() -> Iterator[Record]:
    """Chat requests with a new text each, in sessions of their own, on the default route (hybrid)."""
    tokens = [bearer(f"user-{number}") for number in range(PRINCIPALS)]
    asked = world.queries(6)
    for turn in range(TURNS):
        number = turn % PRINCIPALS
        yield _exchange(tokens[number], f"chat-{number}", next(asked))


def ext_proc_case(port: int) -> Case:
    """`port`: of the processor's listener."""
    records = exchanges
    return Case(
        "ext_proc exchange, hybrid, 1,241 tools",
        records,
        method=PROCESS,
        port=port,
        remark="headers and body, a new query each",
    )


def _exchange(token: str, session: str, query: str) -> Record:
    named = {
        ":method": "POST",
        ":path": "/v1/chat/completions",
        "content-type": "application/json",
        "x-toolbelay-token": token,
        "x-session-id": session,
    }
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": query}]}
    headers: Any = ext.HttpHeaders(
        headers=base_pb2.HeaderMap(
            headers=[base_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in named.items()]
        )
    )
    return Record.of(
        "",
        ext.ProcessingRequest(request_headers=headers),
        ext.ProcessingRequest(request_body=ext.HttpBody(body=json.dumps(body).encode(), end_of_stream=True)),
    )
