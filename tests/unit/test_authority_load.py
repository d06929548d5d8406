"""Row 66: many policies, tools and roles at once. Nothing is parsed for a call, and the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cedarpy
import pytest

from toolbelay.authority.compiled import CompiledPolicies, PolicyContext
from toolbelay.authority.eligibility import Eligibility, EligibilityView
from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool, ToolHints
from toolbelay.storage.port import PolicyFile

TOOLS = {
    f"s{n % 30}/t{n}": Tool(f"s{n % 30}/t{n}", f"s{n % 30}", f"t{n}", "x", b'""', b"{}", b"", frozenset(), ToolHints())
    for n in range(300)
}
RULES = [f'permit (principal in Role::"r{n}", action, resource in Toolset::"s{n % 30}");' for n in range(150)]
RULES += [
    f'forbid (principal, action, resource == Tool::"s{n % 30}/t{n}") unless {{ principal in Role::"r{n + 1}" }};'
    for n in range(50)
]
# 4,500 roles that no policy names, and for each caller a few others that some do.
ROLES = [{f"r{3 * n + m}" for m in range(10)} | {f"x{90 * n + m}" for m in range(90)} for n in range(50)]
CALLERS = [Principal("acme", "idp", f"u{n}", frozenset(roles), frozenset()) for n, roles in enumerate(ROLES)]


def compiled(rules: Sequence[str]) -> CompiledPolicies:
    return CompiledPolicies.compile([PolicyFile("p.cedar", "\n".join(rules))])


class Cedar:
    """Counts what is asked of Cedar, and refuses to parse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches, self.asked, self.made = 0, 0, 0
        self._batch, self._policy_set = cedarpy.is_authorized_batch, cedarpy.PolicySet
        monkeypatch.setattr(cedarpy, "is_authorized_batch", self._authorized)
        monkeypatch.setattr(cedarpy, "PolicySet", SimpleNamespace(from_str=self._refuse, from_pst=self._from_pst))

    def _authorized(self, asked: list[Any], policies: Any, entities: Any) -> Any:
        assert isinstance(policies, self._policy_set), "policy text, to be parsed for this call"
        self.batches += 1
        self.asked += len(asked)
        return self._batch(asked, policies, entities)

    def _from_pst(self, tree: Any) -> Any:
        self.made += 1
        return self._policy_set.from_pst(tree)

    @staticmethod
    def _refuse(*_: object) -> None:
        raise AssertionError("parsed after the policies were compiled")


def views(memory: Eligibility, policies: CompiledPolicies) -> list[EligibilityView]:
    return [memory.view(policies, who, "default", "m", "add") for who in CALLERS]


def permitted(one: EligibilityView) -> list[str]:
    return [tool.tool_id for tool in TOOLS.values() if one.permits(tool)]


async def test_fifty_callers_at_once_share_what_was_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, policies = Eligibility(), compiled(RULES)
    with monkeypatch.context() as patch:
        cedar = Cedar(patch)
        turns = 0
        learning = asyncio.gather(*(one.prepare_catalog(TOOLS) for one in views(memory, policies)))
        while not learning.done():
            turns += 1
            await asyncio.sleep(0)
        await learning
        first = [permitted(one) for one in views(memory, policies)]
        batches, made = cedar.batches, cedar.made
        assert cedar.asked * 5 < len(CALLERS) * len(TOOLS)  # one of each kind that the policies tell apart
        assert turns > len(CALLERS)  # the loop was given back in between: one caller learns at a time
        again = [permitted(one) for one in views(memory, policies)]
        assert again == first
        assert (cedar.batches, cedar.made) == (batches, made)  # a known decision costs nothing of Cedar
    # What was learned equals what Cedar says of each tool by itself.
    context = PolicyContext("default", "m", "add")
    for who, found in list(zip(CALLERS, first, strict=True))[:2]:
        alone = [t.tool_id for t in TOOLS.values() if policies.decide(who, "advertise", t, context).allowed]
        assert found == alone
        assert 0 < len(alone) < len(TOOLS)


async def test_a_changed_policy_holds_for_the_next_call_and_leaves_the_running_one_alone() -> None:
    memory, before = Eligibility(), compiled(RULES)
    running = memory.view(before, CALLERS[0], "default", "m", "add")
    await running.prepare_catalog(TOOLS)
    old = permitted(running)
    revoked = old[0]
    rule = f'forbid (principal, action, resource == Tool::"{revoked}");'
    compiling = asyncio.create_task(asyncio.to_thread(compiled, [*RULES[1:], RULES[0], rule]))
    turns = 0
    while not compiling.done():
        turns += 1
        await asyncio.sleep(0)
    after = await compiling
    assert turns > 1  # calls are answered while the new set is read
    evaluated = memory.evaluated
    assert permitted(running) == old
    assert memory.evaluated == evaluated
    following = memory.view(after, replace(CALLERS[0]), "default", "m", "add")
    await following.prepare_catalog(TOOLS)
    assert permitted(following) == [tool_id for tool_id in old if tool_id != revoked]
