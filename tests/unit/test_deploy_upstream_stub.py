"""The compose file's stub of a model API says which tools reached it."""

from __future__ import annotations

import json
import runpy
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

STUB = runpy.run_path(str(Path(__file__).parents[2] / "deploy" / "upstream" / "stub.py"))["Stub"]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with ThreadingHTTPServer(("127.0.0.1", 0), STUB) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_address[1]}", trust_env=False) as client:
            yield client
        server.shutdown()
        thread.join()


def _tools(response: httpx.Response) -> list[str]:
    body: dict[str, Any] = response.json()
    tools: list[str] = json.loads(body["choices"][0]["message"]["content"])["tools"]
    return tools


BODY = {"model": "m", "tools": [{"type": "function", "function": {"name": "b"}}, {"name": "a"}, {"type": "web_search"}]}


def test_it_names_the_tools_in_order(client: httpx.Client) -> None:
    assert _tools(client.post("/v1/chat/completions", json=BODY)) == ["b", "a", "web_search"]
    assert _tools(client.post("/v1/messages", json={"model": "m"})) == []


def test_it_reads_chunked_bodies(client: httpx.Client) -> None:
    encoded = json.dumps(BODY).encode()
    chunks = (encoded[start : start + 7] for start in range(0, len(encoded), 7))
    assert _tools(client.post("/v1/chat/completions", content=chunks)) == ["b", "a", "web_search"]


def test_it_is_healthy_and_refuses_nonsense(client: httpx.Client) -> None:
    assert client.get("/healthz").status_code == 200
    assert client.post("/", content=b"[1]").status_code == 400
    assert client.post("/", content=b"{").status_code == 400
