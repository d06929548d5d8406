"""The whole stack behind the deployed Envoy configuration: the service's process, SQL, Valkey, and an upstream."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest

from tests.support.envoy import Envoy, Upstream
from tests.support.routed import routed
from tests.support.service import PERMIT_ALL, SECRET, Service, free_port, token, tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

TOOLS = [
    tool(
        "weather/get_weather",
        "Current weather of a city",
        {"type": "object", "properties": {"city": {"type": "string"}}},
    ),
    tool("crm/find_account", "Finds a customer account by name"),
    tool("crm/delete_account", "Deletes a customer account"),
]
POLICY = PERMIT_ALL + '\nforbid (principal, action, resource == Tool::"crm/delete_account");'


class Router:
    """Envoy, the service behind it, and the upstream."""

    def __init__(self, service: Service, envoy: Envoy, upstream: Upstream) -> None:
        self.service, self.envoy, self.upstream = service, envoy, upstream

    def post(self, messages: list[dict[str, Any]], session: str, tenant: str = "acme", **body: Any) -> httpx.Response:
        headers = {"x-toolbelay-token": token(tenant=tenant), "x-session-id": session}
        return httpx.post(
            f"{self.envoy.url}/v1/chat/completions",
            json={"model": "m", "messages": messages, **body},
            headers=headers,
            timeout=20,
        )

    def names(self) -> list[str]:
        """What the model was offered last."""
        tools = json.loads(self.upstream.last().body).get("tools", [])
        return [item["function"]["name"] for item in tools]


@pytest.fixture(scope="module")
def stack_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    with routed(tmp_path_factory.mktemp("router"), TOOLBELAY_EXT_PROC_AUTHORIZE_CALLS="true") as made:
        for tenant in ("acme", "other"):
            routes = {"default": {"strategy": "keyword", "on_no_match": "none"}}
            made.service.apply(TOOLS, {"all.cedar": POLICY}, routes, tenant=tenant)
        made.start()
        yield Router(made.service, made.envoy, made.upstream)


@pytest.fixture
def router(stack_of_module: Router) -> Router:
    """The module's stack, with an upstream that has seen nothing."""
    upstream = stack_of_module.upstream
    upstream.received.clear()
    upstream.answer = b'{"ok":true}'
    return stack_of_module


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(name: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": name, "arguments": "{}"}}],
    }


def test_a_session_through_the_router(router: Router) -> None:
    history = [user("weather in London")]
    first = router.post(history, "s1")
    assert first.status_code == 200, first.text
    assert router.names() == ["get_weather"]
    assert "outcome=SEEDED" in first.headers["x-toolbelay-receipt"]
    history += [calls("get_weather"), {"role": "tool", "tool_call_id": "1", "content": "find account, delete account"}]
    step = router.post(history, "s1")
    assert router.names() == ["get_weather"]
    assert "turn=2;" in step.headers["x-toolbelay-receipt"]
    assert "pinned=1" in step.headers["x-toolbelay-receipt"]
    prefix = router.upstream.last().body.partition(b'"tools":[')[2][:-2]
    history += [{"role": "assistant", "content": "Rain."}, user("now find the customer account of Ann, then delete it")]
    router.post(history, "s1")
    assert router.names() == ["get_weather", "find_account"]
    assert router.upstream.last().body.partition(b'"tools":[')[2].startswith(prefix)


def test_policy_is_the_last_word(router: Router) -> None:
    choice = {"type": "function", "function": {"name": "delete_account"}}
    denied = router.post([user("delete it")], "s2", tool_choice=choice)
    assert denied.status_code == 403
    assert denied.json()["error"]["code"] == "required_tool_unavailable"
    assert not router.upstream.received
    router.upstream.answer = json.dumps({"choices": [{"message": calls("delete_account")}]}).encode()
    made_up = router.post([user("weather in London")], "s2")
    assert made_up.status_code == 403
    assert made_up.json()["error"]["code"] == "tool_call_denied"
    router.upstream.answer = json.dumps({"choices": [{"message": calls("get_weather")}]}).encode()
    assert router.post([user("weather in London")], "s2").content == router.upstream.answer
    service = router.service.client()
    pinned = {t.tool_id for t in service.session("s2").tools if t.pinned}
    assert pinned == {"weather/get_weather"}


def test_a_revoked_tool_leaves_at_the_next_request(router: Router) -> None:
    router.post([user("weather in London")], "s3", "other")
    assert router.names() == ["get_weather"]
    forbid = 'forbid (principal, action, resource in Toolset::"weather");'
    router.service.apply(policies={"more.cedar": forbid}, tenant="other")
    router.post([user("weather in London")], "s3", "other")
    assert router.names() == []


def test_tokens_are_checked(router: Router) -> None:
    url = f"{router.envoy.url}/v1/chat/completions"
    body = {"model": "m", "messages": [user("hi")]}
    for value in (None, "x", token() + "x", "\u00ff", token(tenant="nobody")):
        headers = [] if value is None else [(b"x-toolbelay-token", value.encode("latin-1"))]
        assert httpx.post(url, json=body, headers=headers, timeout=20).status_code in (401, 404)
    forged = "Bearer " + token()
    assert httpx.post(url, json=body, headers={"authorization": forged}, timeout=20).status_code == 401
    assert not router.upstream.received


def test_the_service_stops_in_order(router: Router) -> None:
    assert router.post([user("weather in London")], "s4").status_code == 200
    assert router.service.terminate() == 0
    assert router.post([user("weather in London")], "s4").status_code == 503
    router.service.start()
    wait_until(lambda: router.post([user("weather in London")], "s4").status_code == 200)


def test_the_processor_alone(router: Router) -> None:
    """`toolbelay ext-proc`: the same application without the API's listener."""
    port = free_port()
    metrics = f"127.0.0.1:{free_port()}"
    environment = {**router.service.environment, "PATH": "", "TOOLBELAY_EXT_PROC_LISTEN": ""}
    environment["TOOLBELAY_METRICS_LISTEN"] = metrics
    process = subprocess.Popen(
        [sys.executable, "-m", "toolbelay.cli.main", "ext-proc", "--listen", f"127.0.0.1:{port}"],
        env=environment,
        stderr=subprocess.PIPE,
    )
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=20)
        wait_until(lambda: "toolbelay_ready 1.0" in httpx.get(f"http://{metrics}/metrics", timeout=5).text)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
        assert SECRET.encode() not in said
    finally:
        process.kill()
        process.wait()
