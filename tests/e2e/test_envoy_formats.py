"""The three formats through Envoy and the real service: every byte outside `tools` and `tool_choice`, and what policy denies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.envoy import Envoy, Upstream
from tests.support.ext_proc import PATHS
from tests.support.routed import routed
from tests.support.service import PERMIT_ALL, token, tool
from toolbelay.catalog.formats import WireFormat

pytestmark = pytest.mark.e2e

CHAT, RESPONSES, ANTHROPIC = WireFormat.OPENAI_CHAT, WireFormat.OPENAI_RESPONSES, WireFormat.ANTHROPIC_MESSAGES
FORMATS = pytest.mark.parametrize("form", [CHAT, RESPONSES, ANTHROPIC])
OPENAI = pytest.mark.parametrize("form", [CHAT, RESPONSES])
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [
    tool("crm/find_account", "Finds a customer account by name"),
    tool("crm/delete_account", "Deletes a customer account"),
    tool("weather/get_weather", "Current weather of a city", SCHEMA),
]
POLICY = PERMIT_ALL + '\nforbid (principal, action, resource == Tool::"crm/delete_account");'
ROUTES: dict[str, dict[str, Any]] = {  # by tenant: clients cannot choose a route
    "add": {"strategy": "keyword", "on_no_match": "none"},
    "filter": {"mode": "filter", "strategy": "keyword", "on_no_match": "all"},
    "narrow": {"strategy": "keyword", "on_no_match": "none", "narrow": "allowed_tools"},
}


class Gateway:
    """Envoy, the service that checks calls too, and the upstream."""

    def __init__(self, envoy: Envoy, upstream: Upstream) -> None:
        self.envoy, self.upstream = envoy, upstream

    def post(self, form: WireFormat, tenant: str, text: str, members: str = "") -> tuple[httpx.Response, bytes]:
        """The answer and the body sent: `members` stand in the middle of white space and escapes."""
        key = "input" if form is RESPONSES else "messages"
        body = (
            f'{{ "model" : "m",{members}\n "{key}":[{{"role":"user","content":{json.dumps(text)}}}],'
            ' "parallel_tool_calls":true,"metadata":{"tools":"\\u00e9\\/"} , "n":1.0 }\n'
        ).encode()
        headers = {"content-type": "application/json", "x-toolbelay-token": token(tenant=tenant)}
        headers["x-session-id"] = f"{form.value}-{members.count('mcp')}"
        self.upstream.received.clear()
        return httpx.post(self.envoy.url + PATHS[form], content=body, headers=headers, timeout=20), body


@pytest.fixture(scope="module")
def gateway_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with routed(tmp_path_factory.mktemp("formats"), TOOLBELAY_EXT_PROC_AUTHORIZE_CALLS="true") as made:
        for tenant, route in ROUTES.items():
            made.service.apply(TOOLS, {"all.cedar": POLICY}, {"default": route}, tenant=tenant)
        made.start()
        yield Gateway(made.envoy, made.upstream)


@pytest.fixture
def gateway(gateway_of_module: Gateway) -> Gateway:
    gateway_of_module.upstream.answer = b'{"ok":true}'
    return gateway_of_module


def definition(form: WireFormat, name: str, description: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object"} if schema is None else schema
    if form is ANTHROPIC:
        return {"name": name, "description": description, "input_schema": schema, **more}
    flat = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", **({"function": flat} if form is CHAT else flat), **more}


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


BUILT_IN = {
    CHAT: ['{ "type":"custom", "custom":{"name":"shell"} }'],
    RESPONSES: ['{"type":"web_search" }', '{"type":"mcp","server_label":"d","server_url":"https:\\/\\/x"}'],
    ANTHROPIC: ['{"type":"web_search_20250305","name":"web_search" }'],
}


@FORMATS
def test_only_tools_change_and_the_breakpoint_moves(gateway: Gateway, form: WireFormat) -> None:
    own = compact(definition(form, "own", "x"))
    marked = own[:-1] + ',"cache_control":{"type":"ephemeral"}}'
    given = ' "tools" : [ ' + " , ".join([*BUILT_IN[form], marked]) + " ] ,"
    answer, sent = gateway.post(form, "add", "weather in London", given)
    assert answer.status_code == 200, answer.text
    # the catalog's schema keeps the bytes that it was applied with
    found = compact(definition(form, "get_weather", "Current weather of a city", 0)).replace(
        ":0", f":{json.dumps(SCHEMA)}"
    )
    wanted = ",".join([*BUILT_IN[form], own, found[:-1] + ',"cache_control":{"type":"ephemeral"}}'])
    whole = f' "tools" : [{wanted}] ,'
    assert gateway.upstream.last().body == sent.replace(given.encode(), whole.encode())


@FORMATS
def test_a_filter_leaves_the_callers_bytes_and_what_policy_permits(gateway: Gateway, form: WireFormat) -> None:
    find = json.dumps(definition(form, "find_account", "Finds a customer account by name"))
    delete = json.dumps(definition(form, "delete_account", "Deletes a customer account"))
    other = json.dumps(definition(form, "delete_account", "Deletes a customer account, almost"))
    for denied in (delete, other):
        given = f'"tools":[{find}, {denied}],'
        answer, sent = gateway.post(form, "filter", "delete the account", given)
        assert answer.status_code == 200, answer.text
        assert gateway.upstream.last().body == sent.replace(given.encode(), f'"tools":[{find}],'.encode())


@FORMATS
def test_row_4_no_tools_and_no_choice_leave_together(gateway: Gateway, form: WireFormat) -> None:
    choice = '{"type":"any"}' if form is ANTHROPIC else '"required"'
    delete = json.dumps(definition(form, "delete_account", "Deletes a customer account"))
    given = f'"tools":[{delete}],"tool_choice":{choice},'
    answer, sent = gateway.post(form, "filter", "delete", given)
    assert answer.status_code == 200
    assert gateway.upstream.last().body == sent.replace(given.encode() + b"\n ", b"")  # with the space behind them


@FORMATS
def test_row_4_a_denied_choice_is_an_error_in_the_callers_format(gateway: Gateway, form: WireFormat) -> None:
    named = definition(form, "delete_account", "Deletes a customer account")
    choice: dict[str, Any] = {"type": "tool" if form is ANTHROPIC else "function", "name": "delete_account"}
    if form is CHAT:
        choice = {"type": "function", "function": {"name": "delete_account"}}
    given = f'"tools":[{json.dumps(named)}],"tool_choice":{json.dumps(choice)},'
    answer, _ = gateway.post(form, "filter", "delete", given)
    assert answer.status_code == 403
    assert ("code" in answer.json()["error"]) is (form is not ANTHROPIC)
    assert not gateway.upstream.received


@OPENAI
def test_narrowing_leaves_the_list_and_comes_back_as_allowed_tools(gateway: Gateway, form: WireFormat) -> None:
    gateway.post(form, "narrow", "find the account")
    gateway.post(form, "narrow", "weather in London")
    body = json.loads(gateway.upstream.last().body)
    assert len(body["tools"]) == 2
    choice = body["tool_choice"]
    assert choice["type"] == "allowed_tools"
    (entry,) = choice.get("allowed_tools", choice)["tools"]
    assert entry.get("function", entry)["name"] == "get_weather"


def answer_of(form: WireFormat, *names: str) -> bytes:
    if form is RESPONSES:
        calls = [{"type": "function_call", "call_id": name, "name": name, "arguments": "{}"} for name in names]
        return json.dumps({"output": calls}).encode()
    if form is ANTHROPIC:
        uses = [{"type": "tool_use", "id": name, "name": name, "input": {}} for name in names]
        return json.dumps({"content": uses, "stop_reason": "tool_use"}).encode()
    made = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]
    return json.dumps({"choices": [{"message": {"content": None, "tool_calls": made}}]}).encode()


@FORMATS
def test_calls_are_authorized_before_the_client_sees_them(gateway: Gateway, form: WireFormat) -> None:
    given = f'"tools":[{json.dumps(definition(form, "own", "x"))}],'
    for names, status in (
        (("get_weather", "own"), 200),
        (("get_weather", "delete_account"), 200),
        (("delete_account",), 403),
        (("never_heard_of",), 403),
    ):
        gateway.upstream.answer = answer_of(form, *names)
        answer, _ = gateway.post(form, "add", "weather in London", given)
        assert answer.status_code == status
        calls = b'"name":"delete_account"' in answer.content.replace(b" ", b"")
        assert not calls
        assert (answer.content == gateway.upstream.answer) is ("own" in names)
        assert (b"get_weather" in answer.content) is ("get_weather" in names)
