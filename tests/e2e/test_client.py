"""The Python client against the real service, a stopped one, and a hung one; and the example gateway."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.contract.test_server_shell import Certificates
from tests.support.envoy import Upstream
from tests.support.served import served
from tests.support.service import AUDIENCE, ISSUER, PERMIT_ALL, SECRET, Service, free_port, token, tool
from toolbelay.client import AsyncToolbelayClient, Tls, TokenMinter, ToolbelayCallError, ToolbelayClient
from toolbelay.v1 import selection_pb2 as pb

pytestmark = pytest.mark.e2e

TOOLS = [tool("weather/get_weather", "Current weather of a city"), tool("crm/find_account", "Finds a customer account")]
MINTER = TokenMinter.hs256(SECRET.encode(), issuer=ISSUER, audience=AUDIENCE)
ALICE = MINTER.for_user("alice", tenant="acme")
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "weather in London"}]}
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("client")) as made:
        made.apply(TOOLS, {"all.cedar": PERMIT_ALL}, {"default": {"strategy": "keyword", "on_no_match": "none"}})
        yield made.start()


def address(service: Service) -> str:
    return f"127.0.0.1:{service.port}"


def names(body: dict[str, Any]) -> list[str]:
    return [item["function"]["name"] for item in body.get("tools", [])]


async def test_a_session_with_the_async_client(service: Service) -> None:
    async with AsyncToolbelayClient(address(service), token=ALICE, timeout=10) as toolbelay:
        first = await toolbelay.prepare(BODY, session_id="a1", turn_id="t1")
        assert names(first.body) == ["get_weather"]
        again = await toolbelay.prepare(BODY, session_id="a1", turn_id="t1")
        assert again.answer is not None
        assert again.answer.receipt.replayed
        call = pb.AuthorizeToolCallsRequest(
            session_id="a1", calls=[pb.ToolCall(name="get_weather"), pb.ToolCall(name="x")]
        )
        decided = await toolbelay.authorize_tool_calls(call)
        assert [d.verdict for d in decided.decisions] == [pb.VERDICT_ALLOWED, pb.VERDICT_DENIED]
        session = await toolbelay.get_session("a1")
        assert [(t.tool_id, t.pinned) for t in session.tools] == [("weather/get_weather", True)]
        await toolbelay.end_session("a1")
        assert (await toolbelay.get_session("a1")).turn == 0


def test_a_session_with_the_blocking_client(service: Service) -> None:
    with ToolbelayClient(address(service), token=ALICE, timeout=10) as toolbelay:
        prepared = toolbelay.prepare(BODY, session_id="b1")
        assert names(prepared.body) == ["get_weather"]
        assert toolbelay.prepare(prepared.body | {"tools": []}, session_id="b1").body["tools"] == prepared.body["tools"]
        request = pb.AuthorizeToolCallsRequest(session_id="b1", calls=[pb.ToolCall(name="get_weather")])
        assert toolbelay.authorize_tool_calls(request).state_checked
        assert toolbelay.get_session("b1").turn == 2
        toolbelay.end_session("b1")


def test_refusals_say_why(service: Service) -> None:
    with ToolbelayClient(address(service), token=ALICE, timeout=10, on_error="caller_tools") as toolbelay:
        with pytest.raises(ToolbelayCallError) as caught:
            toolbelay.prepare(BODY, session_id="x" * 200)
        assert (caught.value.reason, caught.value.field) in (
            ("INVALID_REQUEST", "session_id"),
            ("TOKEN_INVALID", ""),  # the token is bound to the session
        )
        with pytest.raises(ToolbelayCallError) as caught:
            toolbelay.prepare(BODY, session_id="s", token=token(session="other"))
        assert caught.value.reason == "SESSION_MISMATCH"
        with pytest.raises(ToolbelayCallError) as caught:
            toolbelay.prepare(BODY, token="x")
        assert (caught.value.reason, caught.value.is_outage) == ("TOKEN_INVALID", False)
        with pytest.raises(ToolbelayCallError) as caught:
            toolbelay.prepare(BODY, session_id="s", min_generation=10**9)
        assert caught.value.reason == "GENERATION_NOT_REACHED"


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_stopped_and_a_hung_service(hangs: bool) -> None:
    """Every call ends by its timeout, and does what its caller chose."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if hangs:
            listener.listen()
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        body = {**BODY, "tools": [{"type": "function", "function": {"name": "own"}}], "tool_choice": "auto"}
        started = time.monotonic()
        async with AsyncToolbelayClient(target, token=ALICE, timeout=0.3) as toolbelay:
            with pytest.raises(ToolbelayCallError) as caught:
                await toolbelay.prepare(body, session_id="s")
            assert caught.value.is_outage
            assert (await toolbelay.prepare(body, on_error="no_tools")).body == BODY
            assert (await toolbelay.prepare(body, on_error="caller_tools")).body == body
        with ToolbelayClient(target, token=ALICE, timeout=0.3, on_error="no_tools") as blocking:
            prepared = blocking.prepare(body)
        assert prepared.body == BODY
        assert prepared.error is not None
        assert time.monotonic() - started < 30


async def test_a_token_may_be_fetched_and_is_in_the_deadline(service: Service) -> None:
    async def fetched(session_id: str) -> str:
        return ALICE(session_id)

    async def never(session_id: str) -> str:
        await asyncio.Event().wait()
        return session_id

    async with AsyncToolbelayClient(address(service), token=fetched, timeout=10) as toolbelay:
        assert names((await toolbelay.prepare(BODY, session_id="f1")).body) == ["get_weather"]
        with pytest.raises(ToolbelayCallError) as caught:
            await toolbelay.prepare(BODY, session_id="f1", token=never, timeout=0.05)
        assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_what_was_applied_is_read(service: Service) -> None:
    with ToolbelayClient(address(service), token=ALICE, timeout=10) as toolbelay:
        prepared = toolbelay.prepare(BODY, session_id="r1")
        assert prepared.answer is not None
        toolbelay.require_generation(prepared.answer.receipt.generation)
        toolbelay.prepare(BODY, session_id="r1")
        toolbelay.require_generation(10**9)
        with pytest.raises(ToolbelayCallError) as caught:
            toolbelay.prepare(BODY, session_id="r1")
        assert caught.value.reason == "GENERATION_NOT_REACHED"


def test_each_prepared_turn_has_an_id_of_its_own(service: Service) -> None:
    """So its tries are one turn, and two calls are two."""
    with ToolbelayClient(address(service), token=ALICE, timeout=10) as toolbelay:
        for turn in (1, 2):
            answer = toolbelay.prepare(BODY, session_id="own-ids").answer
            assert answer is not None
            assert (answer.receipt.turn, answer.receipt.replayed) == (turn, False)


class Flaky(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Unavailable for the first calls of each method."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        def behave(_request: bytes, context: grpc.ServicerContext) -> bytes:
            self.calls += 1
            if self.calls <= self.failures:
                context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
            return b""

        return grpc.unary_unary_rpc_method_handler(behave)


@pytest.mark.parametrize(("turn_id", "expected"), [("t1", 3), ("", 1)])
async def test_only_safe_calls_are_tried_again(turn_id: str, expected: int) -> None:
    for blocking in (False, True):
        handler = Flaky(2)
        server = grpc.server(futures.ThreadPoolExecutor(1))
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            request = pb.SelectToolsRequest(session_id="s", turn_id=turn_id)
            failed = None
            try:
                if blocking:
                    with ToolbelayClient(f"127.0.0.1:{port}", token="x", timeout=20) as sync_client:
                        sync_client.select_tools(request)
                else:
                    async with AsyncToolbelayClient(f"127.0.0.1:{port}", token="x", timeout=20) as client:
                        await client.select_tools(request)
            except ToolbelayCallError as error:
                failed = error
            assert handler.calls == expected
            assert (failed is None) is bool(turn_id)
        finally:
            server.stop(0).wait()


async def test_mutual_tls(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    key, certificate = made.make("server")
    authority = made.authority()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Flaky(0),))
    asks = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    target = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', asks)}"
    server.start()
    known = Tls(authority, *made.make("gateway"))
    try:
        async with AsyncToolbelayClient(target, token="x", timeout=20, tls=known) as client:
            await client.select_tools(pb.SelectToolsRequest())
        with ToolbelayClient(target, token="x", timeout=20, tls=known) as blocking:
            blocking.select_tools(pb.SelectToolsRequest())
        for stranger in (Tls(authority), None):
            with (
                ToolbelayClient(target, token="x", timeout=2, tls=stranger) as refused,
                pytest.raises(ToolbelayCallError) as caught,
            ):
                refused.select_tools(pb.SelectToolsRequest())
            assert caught.value.is_outage
    finally:
        server.stop(0).wait()


@contextmanager
def example_gateway(monkeypatch: pytest.MonkeyPatch, target: str, upstream: str) -> Iterator[str]:
    """The example's address, while it serves."""
    given = {
        "TOOLBELAY_ADDRESS": target,
        "TOOLBELAY_JWT_HS256_SECRET": SECRET,
        "TOOLBELAY_JWT_ISSUER": ISSUER,
        "TOOLBELAY_JWT_AUDIENCE": AUDIENCE,
        "TENANT": "acme",
        "UPSTREAM": upstream,
        "GATEWAY_KEYS": json.dumps({"sk-alice": "alice"}),
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    example = load(EXAMPLES / "gateway.py")
    server = example.serve(free_port())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/chat/completions"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        example.Gateway.toolbelay.close()


def load(path: Path) -> Any:
    """A module from a file that is in no package."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_gateway(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two turns: the order stays, what was called is pinned; refusals and failures have their own status."""
    upstream = Upstream()
    headers = {"authorization": "Bearer sk-alice", "x-session-id": "g1"}
    try:
        with example_gateway(monkeypatch, address(service), f"http://127.0.0.1:{upstream.port}") as url:
            answer = httpx.post(url, json=BODY, headers=headers, timeout=20)
            assert (answer.status_code, answer.json()) == (200, {"ok": True})
            first = json.loads(upstream.last().body)
            assert names(first) == ["get_weather"]
            call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
            more = [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "rain"},
                {"role": "user", "content": "now find the account of the customer"},
            ]
            second_turn = {**BODY, "messages": BODY["messages"] + more}
            assert httpx.post(url, json=second_turn, headers=headers, timeout=20).status_code == 200
            second = json.loads(upstream.last().body)
            assert names(second) == ["get_weather", "find_account"]
            assert second["tools"][0] == first["tools"][0]
            assert second["messages"] == second_turn["messages"]
            session = service.client().session("g1")
            assert [(one.tool_id, one.pinned) for one in session.tools] == [
                ("weather/get_weather", True),
                ("crm/find_account", False),
            ]
            assert httpx.post(url, json=BODY, headers={"authorization": "Bearer sk-bob"}, timeout=20).status_code == 401
            choice = {"type": "function", "function": {"name": "nobody"}}
            refused = httpx.post(url, json={**BODY, "tool_choice": choice}, headers=headers, timeout=20)
            assert refused.status_code == 403
            assert "REQUIRED_TOOL_UNAVAILABLE" in refused.text
            assert httpx.post(url, content=b"{", headers=headers, timeout=20).status_code == 400
    finally:
        upstream.close()
    with example_gateway(monkeypatch, f"127.0.0.1:{free_port()}", "http://127.0.0.1:1") as url:
        assert httpx.post(url, json=BODY, headers=headers, timeout=20).status_code == 503
    with example_gateway(monkeypatch, address(service), f"http://127.0.0.1:{free_port()}") as url:
        assert httpx.post(url, json=BODY, headers=headers, timeout=20).status_code == 502


def test_the_minimal_example(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOLBELAY_ADDRESS", address(service))
    monkeypatch.setenv("TOOLBELAY_TOKEN", token(session="readme"))
    load(EXAMPLES / "minimal.py").main()
    assert "get_weather" in capsys.readouterr().out
