"""Decisions by class and from memory equal tool-by-tool evaluation of the whole set, whatever the policies look at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolbelay.authority.compiled import CompiledPolicies, PolicyContext
from toolbelay.authority.eligibility import Eligibility
from toolbelay.authority.entities import Action, tool_entity, uid, user_entity
from toolbelay.authority.policy import validate_policies
from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool, ToolHints
from toolbelay.storage.port import PolicyFile

OVERFLOW = "9223372036854775807"


CONDITIONS = (
    *("true", "false", "resource.readOnly", "resource.destructive", "resource.idempotent", "resource.openWorld"),
    *("resource.openWorld == true", "resource has readOnly", "resource has name", "principal has dept"),
    *('resource.tags.contains("public")', 'resource.tags.containsAll(["public", "danger"])'),
    *('resource.tags.containsAny(["public", "x"])', '["public"].containsAll(resource.tags)'),
    *('["public"].containsAny(resource.tags)', "resource.tags.isEmpty()", 'resource.tags == ["public"]'),
    *('["public", "danger"] != resource.tags', '[["public"]].contains(resource.tags)'),
    *('resource.name == "get"', '"get" != resource.name', '["get", "x"].contains(resource.name)'),
    *('resource.name like "g*"', "resource.name == resource.toolset", "resource.tags.contains(resource.name)"),
    *('resource.toolset == "crm"', 'resource in Toolset::"crm"', 'resource in [Toolset::"crm", Toolset::"git"]'),
    *('resource is Tool in Toolset::"crm"', 'resource == Tool::"crm/get"', 'resource in Tool::"crm/get"'),
    *('resource != Tool::"crm/get"', '[Tool::"crm/get", Tool::"git/a\\"b"].contains(resource)'),
    *('Tool::"crm/get".readOnly', '!Tool::"crm/get".readOnly', 'Tool::"crm/get" has name'),
    *('Tool::"crm/get" in Toolset::"crm"', 'Tool::"crm/get".tags.contains("danger")'),
    *('(if resource.readOnly then resource else Tool::"crm/get").destructive', "[resource].contains(resource)"),
    *('{it: resource}.it == Tool::"crm/get"', "{it: resource}.it.openWorld", '{it: resource}.it.name == "get"'),
    *('principal in Role::"r1"', 'principal in [Role::"r1", Role::"r2"]', 'principal is User in Role::"r1"'),
    *('principal.roles.contains("r1")', 'principal.roles.containsAll(["r1", "r2"])', 'principal.roles == ["r1"]'),
    *("principal.roles.isEmpty()", "principal.roles.contains(resource.name)", '["r1"].containsAll(principal.roles)'),
    *('principal in (if context.mode == "add" then Role::"r1" else Role::"r2")', 'principal.scopes == ["read"]'),
    *('principal.scopes.contains("read")', 'principal.scopes.containsAny(["read"])', "principal.scopes.isEmpty()"),
    *('principal.subject == "ann"', '["ann"].contains(principal.subject)', 'principal.subject like "a*"'),
    *('principal.issuer == "idp"', 'principal.issuer like "i*"', 'principal.tenant == "t1"'),
    *('principal == User::"ann"', 'principal in User::"ann"', '[User::"ann"].contains(principal)'),
    *('principal in [User::"ann", User::"bob"]', 'principal != User::"ann"', '[principal].contains(User::"ann")'),
    *('User::"ann".scopes.contains("read")', 'User::"ann" in Role::"r1"', 'User::"ann".issuer == "idp"'),
    *('(if context.mode == "add" then User::"ann" else principal).subject == "ann"', "principal.hasTag(resource.name)"),
    *('{who: principal}.who == User::"ann"', '{who: principal}.who.scopes.contains("read")'),
    *('context.route == "default"', '["default"].contains(context.route)', 'context.route like "d*"'),
    *('context.model == "gpt-5"', 'context.model like "gpt*"', 'context.mode == "add"', "context has route"),
    *('context == {route: "default", model: "gpt-5", mode: "add"}', "context.route == context.model"),
    '["put", context.model].contains(resource.name)',
    '[Tool::"crm/get", (if resource.readOnly then resource else Tool::"git/x")].contains(resource)',
    *('{it: context}.it.mode == "add"', "context.model == resource.name"),
    f'{OVERFLOW} + (if resource.name == "get" then 1 else 0) > 0',
    f'{OVERFLOW} + (if principal in Role::"r2" then 1 else 0) > 0',
    f"{OVERFLOW} + (if resource.idempotent then 1 else 0) > 0",
)
SCOPES_OF_POLICIES = (
    *("principal", "principal is User", 'principal in Role::"r1"', 'principal is User in Role::"r1"'),
    *('principal == User::"ann"', 'principal in User::"ann"'),
)
ACTIONS = (
    *("action", 'action == Action::"advertise"', 'action == Action::"call"', 'action in [Action::"call"]'),
    'action in [Action::"advertise", Action::"call"]',
)
RESOURCES = (
    *("resource", "resource is Tool", 'resource in Toolset::"crm"', 'resource is Tool in Toolset::"git"'),
    *('resource == Tool::"crm/get"', 'resource in Tool::"crm/get"'),
)


def tool(toolset: str, name: str, tags: set[str], *hints: bool) -> Tool:
    return Tool(
        tool_id=f"{toolset}/{name}",
        toolset=toolset,
        name=name,
        exposed_name="x",
        description=b'""',
        input_schema=b"{}",
        fingerprint=b"",
        tags=frozenset(tags),
        hints=ToolHints(*hints),
    )


BASE = Principal("t1", "idp", "ann", frozenset({"r1"}), frozenset({"read"}))
# Neighbours that differ in one thing each: whoever forgets that thing answers one with the other's decision.
PRINCIPALS = (
    BASE,
    replace(BASE, tenant="t2"),
    replace(BASE, issuer="other"),
    replace(BASE, subject="bob"),
    replace(BASE, roles=frozenset()),
    replace(BASE, roles=frozenset({"r1", "r2"})),
    replace(BASE, roles=frozenset({"get"})),
    replace(BASE, scopes=frozenset()),
    replace(BASE, scopes=frozenset({"read", "write"})),
    replace(BASE, subject="bob", scopes=frozenset(), roles=frozenset({"r2"})),
)
TOOLS = (
    tool("crm", "get", {"public"}),
    tool("crm", "set", {"public"}),
    tool("git", "get", {"public"}),
    tool("crm", "see", set()),
    tool("crm", "put", {"public", "danger"}),
    tool("crm", "del", {"public", "get"}),
    tool("crm", "a", {"public"}, True),
    tool("crm", "b", {"public"}, False, False),
    tool("crm", "c", {"public"}, False, True, True),
    tool("crm", "d", {"public"}, False, True, False, False),
    tool("git", 'a"b', {"danger"}, True, False, True, False),
    tool("caller", "get", set()),
    tool("caller", "mine", set()),
)
CONTEXTS = (
    PolicyContext("default", "gpt-5", "add"),
    PolicyContext("other", "gpt-5", "add"),
    PolicyContext("default", "claude", "add"),
    PolicyContext("default", "gpt-5", "filter"),
    PolicyContext("get", "get", "add"),
)


def reference(policies: cedarpy.PolicySet, who: Principal, action: Action, tool: Tool, context: PolicyContext) -> bool:
    """Put one tool to the whole set, with nothing but this request's own entities."""
    result = cedarpy.is_authorized(
        {
            "principal": uid("User", who.subject),
            "action": uid("Action", action),
            "resource": uid("Tool", tool.tool_id),
            "context": {"route": context.route, "model": context.model, "mode": context.mode},
        },
        policies,
        [user_entity(who), tool_entity(tool)],
    )
    return result.decision is cedarpy.Decision.Allow and not result.diagnostics.errors


def check(texts: Sequence[str], cases: Sequence[tuple[Principal, PolicyContext, Action]], way: str) -> None:
    files = [PolicyFile(f"{number:02}.cedar", text) for number, text in enumerate(texts)]
    assert validate_policies(files) == []
    compiled = CompiledPolicies.compile(files)
    whole = cedarpy.PolicySet.from_str("\n".join(texts))
    eligibility = Eligibility()
    catalog = {tool.tool_id: tool for tool in TOOLS}
    for who, context, action in cases:
        view = eligibility.view(compiled, who, context.route, context.model, context.mode)
        if way == "permits_many":
            view.permits_many(TOOLS, action)
        elif way == "prepare":
            asyncio.run(view.prepare(TOOLS, action))
        elif way == "prepare_catalog":
            asyncio.run(view.prepare_catalog(catalog, action))
        for asked in TOOLS:
            expected = reference(whole, who, action, asked, context)
            assert view.permits(asked, action) is expected, (texts, who, context, action, asked.tool_id)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_condition_alone_is_decided_by_all_that_it_looks_at(condition: str) -> None:
    text = f"permit (principal, action, resource) when {{ {condition} }};"
    if OVERFLOW in condition or 'Tool::"' in condition or 'User::"' in condition:  # may fail: a failing forbid denies
        text = f"permit (principal, action, resource); forbid (principal, action, resource) unless {{ {condition} }};"
    cases: list[tuple[Principal, PolicyContext, Action]] = [(who, CONTEXTS[0], "advertise") for who in PRINCIPALS]
    cases += [(BASE, context, "advertise") for context in CONTEXTS]
    check([text], cases, "permits_many")


@pytest.mark.parametrize("principal", SCOPES_OF_POLICIES)
@pytest.mark.parametrize("resource", RESOURCES)
def test_each_scope_alone_is_decided_by_all_that_it_names(principal: str, resource: str) -> None:
    cases: list[tuple[Principal, PolicyContext, Action]] = [
        (who, CONTEXTS[0], action) for who in PRINCIPALS[:6] for action in both
    ]
    for action_scope in ACTIONS:
        check([f"permit ({principal}, {action_scope}, {resource});"], cases, "permits")


both: tuple[Action, ...] = ("advertise", "call")
clauses = st.lists(
    st.tuples(st.sampled_from(["when", "unless"]), st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2)),
    max_size=2,
).map(lambda parts: " ".join(f"{word} {{ {' || '.join(conditions)} }}" for word, conditions in parts))
policies = st.builds(
    lambda effect, principal, action, resource, clause: f"{effect} ({principal}, {action}, {resource}) {clause};",
    st.sampled_from(["permit", "permit", "forbid"]),
    st.sampled_from(["principal", *SCOPES_OF_POLICIES]),
    st.sampled_from(["action", *ACTIONS]),
    st.sampled_from(["resource", *RESOURCES]),
    clauses,
)
actions: st.SearchStrategy[Action] = st.sampled_from(both)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(policies, min_size=1, max_size=5),
    st.lists(
        st.tuples(st.sampled_from(PRINCIPALS), st.sampled_from(CONTEXTS), actions), min_size=4, max_size=8, unique=True
    ),
    st.sampled_from(["permits", "permits_many", "prepare", "prepare_catalog"]),
)
def test_class_decisions_equal_tool_by_tool_evaluation(
    texts: list[str], cases: list[tuple[Principal, PolicyContext, Action]], way: str
) -> None:
    check(texts, cases * 2, way)  # the second time from memory


@settings(max_examples=40, deadline=None)
@given(st.lists(policies, min_size=1, max_size=6), st.sampled_from(PRINCIPALS), st.sampled_from(CONTEXTS), actions)
def test_extracts_keep_reasons_and_errors(
    texts: list[str], who: Principal, context: PolicyContext, action: Action
) -> None:
    compiled = CompiledPolicies.compile([PolicyFile("p", "\n".join(texts))])
    text = "\n".join(texts)
    for asked, decision in zip(TOOLS, compiled.decisions(who, action, TOOLS, context), strict=True):
        request = {
            "principal": uid("User", who.subject),
            "action": uid("Action", action),
            "resource": uid("Tool", asked.tool_id),
            "context": context.json(),
        }
        whole = cedarpy.is_authorized(request, text, [user_entity(who), tool_entity(asked)])
        names = sorted(f"p#{int(name.removeprefix('policy')) + 1}" for name in whole.diagnostics.reasons)
        assert list(decision.policies) == names
        assert len(decision.errors) == len(whole.diagnostics.errors)
        assert compiled.decide(who, action, asked, context) == decision
