"""The memory of decisions: what is shared, what is not, and that it is bounded."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolbelay.authority.compiled import CompiledPolicies
from toolbelay.authority.eligibility import Eligibility, EligibilityView
from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool, ToolHints
from toolbelay.storage.port import PolicyFile

BASE = Principal("acme", "idp", "ann", frozenset({"support"}), frozenset({"read"}))
ROLE_ONLY = (
    'permit (principal in Role::"support", action, resource in Toolset::"crm") when { resource.tags.contains("a") };'
)


def compiled(text: str) -> CompiledPolicies:
    return CompiledPolicies.compile([PolicyFile("p.cedar", text)])


def tool(tool_id: str, *tags: str, hints: ToolHints | None = None) -> Tool:
    toolset, name = tool_id.split("/", 1)
    return Tool(tool_id, toolset, name, "x", b'""', b"{}", b"", frozenset(tags), hints or ToolHints())


def view(memory: Eligibility, policies: CompiledPolicies, who: Principal = BASE, *context: str) -> EligibilityView:
    route, model, mode = context or ("default", "gpt-5", "add")
    return memory.view(policies, who, route, model, mode)


def catalog(*tools: Tool) -> dict[str, Tool]:
    return {one.tool_id: one for one in tools}


def test_principals_of_equal_roles_share_what_no_policy_tells_apart() -> None:
    memory, policies, asked = Eligibility(), compiled(ROLE_ONLY), tool("crm/get", "a")
    for number in range(100):
        other = replace(BASE, subject=f"user{number}", issuer=f"i{number}", scopes=frozenset({f"s{number}"}))
        assert view(memory, policies, other, f"r{number}", f"m{number}", "filter").permits(asked)
    assert (memory.hits, memory.misses, memory.evaluated, len(memory)) == (99, 1, 1, 1)


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        (ROLE_ONLY, True),
        ('permit (principal == User::"bob", action, resource);', True),  # neither caller is bob
        ('permit (principal == User::"ann", action, resource);', False),
        ('permit (principal, action, resource) when { principal.subject == "ann" };', False),
        ('permit (principal, action, resource) when { principal.subject like "a*" };', False),
        ("permit (principal, action, resource) when { [principal].contains(principal) };", False),
    ],
)
def test_a_named_user_shares_nothing(text: str, shares: bool) -> None:
    memory, policies = Eligibility(), compiled(text)
    view(memory, policies)
    view(memory, policies, replace(BASE, subject="zoe"))
    assert memory.hits == int(shares)


@pytest.mark.parametrize(
    ("text", "who", "context"),
    [
        (ROLE_ONLY, replace(BASE, roles=frozenset()), ()),
        (ROLE_ONLY, replace(BASE, tenant="other"), ()),
        (
            'permit (principal, action, resource) when { principal.scopes.contains("read") };',
            replace(BASE, scopes=frozenset()),
            (),
        ),
        ('permit (principal, action, resource) when { principal.issuer == "idp" };', replace(BASE, issuer="x"), ()),
        ('permit (principal, action, resource) when { context.route == "default" };', BASE, ("x", "gpt-5", "add")),
        ('permit (principal, action, resource) when { context.model like "gpt*" };', BASE, ("default", "x", "add")),
        ('permit (principal, action, resource) when { context.mode == "add" };', BASE, ("default", "gpt-5", "filter")),
    ],
)
def test_a_changed_dependency_misses(text: str, who: Principal, context: tuple[str, ...]) -> None:
    memory, policies = Eligibility(), compiled(text)
    asked = tool("crm/get", "a")
    assert view(memory, policies).permits(asked)
    view(memory, policies, who, *context).permits(asked)
    assert (memory.hits, memory.misses, memory.evaluated) == (0, 2, 2)


def test_changed_policies_miss_and_equal_ones_of_a_new_generation_hit() -> None:
    memory, asked = Eligibility(), tool("crm/get", "a")
    assert view(memory, compiled(ROLE_ONLY)).permits(asked)
    assert view(memory, compiled(ROLE_ONLY)).permits(asked)
    assert memory.evaluated == 1
    assert not view(memory, compiled(ROLE_ONLY.replace("permit", "forbid"))).permits(asked)
    assert view(memory, compiled(ROLE_ONLY)).permits(asked)
    assert memory.evaluated == 2


def test_a_changed_tool_is_decided_anew() -> None:
    memory, policies = Eligibility(), compiled(ROLE_ONLY)
    assert view(memory, policies).permits(tool("crm/get", "a"))
    assert not view(memory, policies).permits(tool("crm/get"))
    assert view(memory, policies).permits(tool("crm/get", "a", hints=ToolHints(read_only=True)))


def test_actions_are_decided_apart() -> None:
    memory = Eligibility()
    policies = compiled('permit (principal, action == Action::"advertise", resource);')
    asked = tool("crm/get")
    opened = view(memory, policies)
    assert [opened.permits(asked, "advertise"), opened.permits(asked, "call")] == [True, False]
    assert [view(memory, policies).permits(asked, "call"), view(memory, policies).permits(asked)] == [False, True]


def test_only_named_tools_are_classes_of_their_own() -> None:
    memory = Eligibility()
    policies = compiled('permit (principal, action, resource); forbid (principal, action, resource == Tool::"crm/t7");')
    asked = [tool(f"crm/t{number}") for number in range(100)]
    verdicts = view(memory, policies).permits_many(asked)
    assert [number for number, allowed in enumerate(verdicts) if not allowed] == [7]
    assert memory.evaluated == 2


def test_two_tenants_alternate_without_mixing() -> None:
    memory = Eligibility()
    open_set, shut_set = compiled("permit (principal, action, resource);"), compiled("")
    mine, theirs = tool("crm/report", "a"), tool("crm/report")
    other = replace(BASE, tenant="other")
    for _ in range(100):
        assert view(memory, open_set).permits(mine)
        assert not view(memory, shut_set, other).permits(theirs)
        assert view(memory, open_set, other).permits(theirs)
    assert memory.evaluated == 3


def test_a_callers_tool_is_decided_by_its_own_id_and_floods_nothing() -> None:
    memory = Eligibility()
    policies = compiled(
        'permit (principal, action, resource == Tool::"caller/mine"); permit (principal, action, resource in Toolset::"crm") when { resource.name like "g*" };'
    )
    for number in range(1_000):
        opened = view(memory, policies)
        assert opened.permits(tool("caller/mine"))
        assert not opened.permits(tool(f"caller/get{number}"))
    assert memory.decisions <= 2
    assert len(memory._classes_of("acme", policies)) == 0


def test_a_tool_that_cannot_be_evaluated_poisons_no_class() -> None:
    memory, policies = Eligibility(), compiled("permit (principal, action, resource);")
    opened = view(memory, policies)
    assert opened.permits_many([tool("caller/\ud800"), tool("crm/get")]) == [False, True]
    assert not opened.permits(tool("caller/\ud800"))
    assert view(memory, policies).permits(tool("crm/get"))


def test_views_and_decisions_are_bounded_and_the_least_recent_leaves() -> None:
    memory = Eligibility(max_views=10, max_decisions=1_000)
    policies = compiled('permit (principal, action, resource) when { principal.subject like "u*" };')
    for number in range(50):
        assert view(memory, policies, replace(BASE, subject=f"u{number}")).permits(tool("crm/get"))
    assert len(memory) == 10
    assert memory.decisions == sum(held.size() for held in memory._views.values()) == 10

    small = Eligibility(max_views=100, max_decisions=200)
    by_name = compiled(
        'permit (principal, action, resource) when { resource.name like "t*" && principal.subject like "u*" };'
    )
    asked = [tool(f"crm/t{number}") for number in range(60)]
    held_on = view(small, by_name, replace(BASE, subject="u"))
    for number in range(20):
        assert all(view(small, by_name, replace(BASE, subject=f"u{number}")).permits_many(asked))
    assert all(held_on.permits_many(asked))  # dropped meanwhile: still right, no longer counted
    assert small.decisions == sum(held.size() for held in small._views.values()) <= 200


async def test_a_catalog_is_learned_once_and_shared_by_callers_at_once() -> None:
    memory, policies = Eligibility(), compiled(ROLE_ONLY)
    tools = catalog(*(tool(f"s{number % 50}/t{number}", f"g{number}") for number in range(2_000)), tool("crm/x", "a"))
    views = [view(memory, policies, replace(BASE, subject=f"u{number}")) for number in range(20)]
    await asyncio.gather(*(one.prepare_catalog(tools) for one in views))
    learned = memory.evaluated
    assert learned == 2  # the named toolset with the named tag, and all others
    assert [one.tool_id for one in tools.values() if views[0].permits(one)] == ["crm/x"]
    changed = {**tools, "crm/y": tool("crm/y", "b")}
    await views[0].prepare_catalog(changed)
    assert not views[0].permits(changed["crm/y"])
    assert memory.evaluated == learned + 1


async def test_learning_lets_other_tasks_run_in_between() -> None:
    memory = Eligibility()
    policies = compiled('permit (principal, action, resource) when { resource.name like "t*" };')
    tools = catalog(*(tool(f"crm/t{number}") for number in range(400)))
    turns = 0
    learning = asyncio.create_task(view(memory, policies).prepare_catalog(tools))
    while not learning.done():
        turns += 1
        await asyncio.sleep(0)
    await learning
    assert memory.evaluated == 400
    assert turns >= 400 / 64


async def test_a_cancelled_learner_leaves_the_rest_to_the_next() -> None:
    memory = Eligibility()
    policies = compiled('permit (principal, action, resource) when { resource.name like "t*" };')
    tools = catalog(*(tool(f"crm/t{number}") for number in range(400)))
    first = asyncio.create_task(view(memory, policies).prepare_catalog(tools))
    second = asyncio.create_task(view(memory, policies).prepare_catalog(tools))
    for _ in range(1_000):
        if memory.evaluated:
            break
        await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()
    assert all(view(memory, policies).permits(one) for one in tools.values())
    assert memory.evaluated == 400


async def test_prepare_learns_a_few_tools() -> None:
    memory, policies = Eligibility(), compiled(ROLE_ONLY)
    asked = [tool("crm/a", "a"), tool("crm/b", "a"), tool("crm/c"), tool("git/a", "a")]
    opened = view(memory, policies)
    await opened.prepare(asked)
    learned = memory.evaluated
    assert opened.permits_many(asked) == [True, True, False, False]
    assert memory.evaluated == learned


def test_an_explanation_is_made_anew_for_the_very_tool() -> None:
    policies = compiled(f'@id("crm") {ROLE_ONLY}')
    decision = view(Eligibility(), policies).explain(tool("crm/get", "a"), "call")
    assert (decision.allowed, decision.policies, decision.errors) == (True, ("p.cedar#crm",), ())


def test_failed_evaluations_deny_and_are_counted() -> None:
    memory = Eligibility()
    policies = compiled(
        'permit (principal, action, resource); forbid (principal, action, resource) when { User::"x".tenant == "y" };'
    )
    assert not view(memory, policies).permits(tool("crm/get"))
    assert memory.errors == 1
