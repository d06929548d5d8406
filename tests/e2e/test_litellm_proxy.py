"""The hook inside the real LiteLLM proxy, which is installed into an environment of its own: 750 MB, minutes.

Runs where E2E_LITELLM is set (`make e2e-litellm`); E2E_LITELLM_VENV names an environment to keep and use again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.model_api import ModelApi
from tests.support.served import served
from tests.support.service import AUDIENCE, ISSUER, SECRET, Service, free_port, tool
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not os.environ.get("E2E_LITELLM"), reason="installs 750 MB: `make e2e-litellm` or E2E_LITELLM=1 runs it"
    ),
]

ROOT = Path(__file__).parents[2]
LITELLM = "litellm[proxy]==1.108.7"
TOOLS = [
    tool("weather/get_weather", "Current weather of a city"),
    tool("crm/find_account", "Finds a customer account"),
    tool("ops/restart", "Restarts a server machine"),
]
POLICY = """
permit (principal in Role::"team:helpdesk", action, resource in Toolset::"weather");
permit (principal in Role::"team:helpdesk", action, resource in Toolset::"crm");
permit (principal in Role::"team:ops", action, resource);
"""
CONFIG = """
model_list:
  - model_name: gpt
    litellm_params: {{model: openai/gpt-x, api_base: "{upstream}/v1", api_key: none}}
  - model_name: claude
    litellm_params: {{model: anthropic/claude-x, api_base: "{upstream}", api_key: none}}
litellm_settings:
  callbacks: toolbelay.integrations.litellm.hook
general_settings:
  custom_auth: who.authenticate
"""
# The proxy's own answer to "which user is this key": here a table, elsewhere its database.
WHO = """
from litellm.proxy._types import UserAPIKeyAuth

KEYS = {
    "sk-alice": {"user_id": "alice", "team_id": "helpdesk"},
    "sk-olga": {"user_id": "olga", "team_id": "ops"},
    "sk-service": {},
}

async def authenticate(request, api_key):
    return UserAPIKeyAuth(api_key=api_key, **KEYS[api_key])
"""


@pytest.fixture(scope="module")
def proxy_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with LiteLLM and this checkout's toolbelay."""
    kept = os.environ.get("E2E_LITELLM_VENV")
    home = Path(kept) if kept else tmp_path_factory.mktemp("litellm") / "venv"
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv is not None, "uv comes with requirements-dev.txt"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(home)], check=True, timeout=60)
    install = [uv, "pip", "install", "--quiet", "--python", str(python), "--reinstall-package", "toolbelay"]
    subprocess.run([*install, LITELLM, str(ROOT)], check=True, timeout=400)
    return python


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("service")) as made:
        made.apply(TOOLS, {"teams.cedar": POLICY}, {"default": {"strategy": "keyword", "on_no_match": "none"}})
        yield made.start()


@pytest.fixture(scope="module")
def upstream() -> Iterator[ModelApi]:
    api = ModelApi()
    yield api
    api.close()


class Proxy:
    """A running proxy."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def post(self, path: str, body: dict[str, Any], key: str = "sk-alice", session: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} | ({"x-session-id": session} if session else {})
        return httpx.post(self.url + path, json=body, headers=headers, timeout=60)


@contextlib.contextmanager
def running(python: Path, folder: Path, upstream: ModelApi, target: str) -> Iterator[Proxy]:
    (folder / "config.yaml").write_text(CONFIG.format(upstream=upstream.url))
    (folder / "who.py").write_text(WHO)
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": f"sk-{secrets.token_hex(32)}",  # it does not start without one
        "TOOLBELAY_ADDRESS": target,
        "TOOLBELAY_JWT_HS256_SECRET": SECRET,
        "TOOLBELAY_JWT_ISSUER": ISSUER,
        "TOOLBELAY_JWT_AUDIENCE": AUDIENCE,
        "TOOLBELAY_HOOK_TENANT": "acme",
        "TOOLBELAY_HOOK_TIMEOUT": "10",
    }
    command: list[str | Path] = [
        python.parent / "litellm",
        "--config",
        "config.yaml",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    log = folder / "proxy.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: process.poll() is not None or is_up(port), timeout=120)
            assert process.poll() is None, log.read_text()[-3000:]
            yield Proxy(port)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/liveliness", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def proxy(
    proxy_python: Path, service: Service, upstream: ModelApi, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    with running(proxy_python, tmp_path_factory.mktemp("proxy"), upstream, f"127.0.0.1:{service.port}") as started:
        yield started


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "gpt", "messages": [{"role": "user", "content": "the weather in Paris"}, *messages], **more}


def names(body: dict[str, Any]) -> list[str]:
    return [item.get("function", item)["name"] for item in body.get("tools", [])]


def test_two_turns_of_a_chat(proxy: Proxy, service: Service, upstream: ModelApi) -> None:
    """The order stays, what was called is pinned, and the user is the proxy's."""
    assert proxy.post("/v1/chat/completions", chat(user="olga"), session="s1").status_code == 200
    first = upstream.bodies[-1]
    assert names(first) == ["get_weather"]
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    turn = chat(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "user", "content": "find the customer account, then restart the server machine"},
    )
    assert proxy.post("/v1/chat/completions", turn, session="s1").status_code == 200
    second = upstream.bodies[-1]
    assert names(second) == ["get_weather", "find_account"]  # alice's team may not restart anything
    assert second["tools"][0] == first["tools"][0]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool", "user"]
    pinned = {one.tool_id: one.pinned for one in service.client("alice").session("s1").tools}
    assert pinned == {"weather/get_weather": True, "crm/find_account": False}
    assert service.client("olga").session("s1").turn == 0


def test_the_other_two_formats(proxy: Proxy, upstream: ModelApi) -> None:
    body = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "restart the server machine"}]}
    answer = proxy.post("/v1/messages", body, key="sk-olga", session="s2")
    assert answer.status_code == 200, answer.text
    assert names(upstream.bodies[-1]) == ["restart"]
    assert "input_schema" in upstream.bodies[-1]["tools"][0]
    own = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
    asked = {"model": "gpt", "input": "restart the server machine", "tools": [own]}
    answer = proxy.post("/v1/responses", asked, key="sk-olga", session="s3")
    assert answer.status_code == 200, answer.text
    assert names(upstream.bodies[-1]) == ["mine", "restart"]
    assert upstream.bodies[-1]["tools"][1]["parameters"]["type"] == "object"


def test_refusals(proxy: Proxy, upstream: ModelApi) -> None:
    before = len(upstream.bodies)
    nobody = proxy.post("/v1/chat/completions", chat(user="alice"), key="sk-service")
    assert (nobody.status_code, "NO_USER" in nobody.text) == (403, True), nobody.text
    choice = {"type": "function", "function": {"name": "restart"}}
    denied = proxy.post("/v1/chat/completions", chat(tool_choice=choice), session="s4")
    assert (denied.status_code, "REQUIRED_TOOL_UNAVAILABLE" in denied.text) == (403, True), denied.text
    unreadable = proxy.post("/v1/chat/completions", chat(tool_choice="sometimes"), session="s4")
    assert unreadable.status_code == 400
    assert len(upstream.bodies) == before
    assert proxy.post("/v1/embeddings", {"model": "gpt", "input": "x", "tools": [{}]}).status_code == 403


def test_a_stopped_service_is_a_503(proxy_python: Path, upstream: ModelApi, tmp_path: Path) -> None:
    before = len(upstream.bodies)
    with running(proxy_python, tmp_path, upstream, f"127.0.0.1:{free_port()}") as proxy:
        answer = proxy.post("/v1/chat/completions", chat(), session="s5")
        assert answer.status_code == 503, answer.text
    assert len(upstream.bodies) == before
