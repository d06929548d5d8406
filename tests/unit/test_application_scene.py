"""What a scene remembers: of one snapshot, one caller and one target, and not more than its bound."""

from __future__ import annotations

from collections.abc import Mapping

from toolbelay.application.offer import Offer
from toolbelay.application.scene import _MAX_FACTS, _MAX_MEMORIES, Scene
from toolbelay.application.turn import Target
from toolbelay.catalog.model import Tool
from toolbelay.catalog.offered import parse_offered
from toolbelay.catalog.routes import Route
from toolbelay.catalog.snapshot import TenantSnapshot, build_snapshot
from toolbelay.catalog.surface import Digester
from toolbelay.planner.model import Standing
from toolbelay.storage.port import TenantRows


class View:
    """Permits what it is told to, and counts the questions."""

    def __init__(self, denied: frozenset[str] = frozenset()) -> None:
        self.denied = denied
        self.asked = 0

    @property
    def memory(self) -> object:
        return self

    def permits(self, tool: Tool) -> bool:
        self.asked += 1
        return tool.tool_id not in self.denied

    def knows_catalog(self, tools: Mapping[str, Tool]) -> bool:
        return False

    async def prepare_catalog(self, tools: Mapping[str, Tool]) -> None:
        raise NotImplementedError


def snapshot(count: int) -> TenantSnapshot[None]:
    """Tools t00000 and on; every other one requires a capability."""
    names = [f"t{i:05d}" for i in range(count)]
    tools = [
        Tool(f"crm/{n}", "crm", n, n, b'""', b"{}", bytes(32), requires=frozenset("v" * (i % 2)))
        for i, n in enumerate(names)
    ]
    rows = TenantRows(
        tenant="acme", generation=1, since=0, session_epoch=0, tools=tools, removed=(), policies=(), routes=()
    )
    return build_snapshot(rows, None, lambda _: None, Digester(b"secret"))


def scene(held: TenantSnapshot[None], view: View, target: Target = Target(), offer: Offer = Offer()) -> Scene:  # noqa: B008
    return Scene(held, Route(), target, offer, view)


def test_facts_are_remembered_for_one_caller_and_target() -> None:
    held, view = snapshot(2), View()
    for _ in range(3):
        assert scene(held, view).eligible("crm/t00000")
        assert not scene(held, view).eligible("crm/t00001")
    assert view.asked == 2
    seeing = Target(capabilities=frozenset({"v"}))
    assert scene(held, view, seeing).eligible("crm/t00001")
    denying = View(frozenset({"crm/t00000"}))
    fact = scene(held, denying).fact("crm/t00000")
    assert fact is not None
    assert fact.standing is Standing.DENIED
    assert scene(held, view).eligible("crm/t00000")


def test_a_snapshot_of_a_newer_generation_remembers_nothing_of_the_older() -> None:
    older, newer = snapshot(1), snapshot(1)
    view = View()
    assert scene(older, view).eligible("crm/t00000")
    view.denied = frozenset({"crm/t00000"})
    assert not scene(newer, view).eligible("crm/t00000")


def test_an_offer_is_remembered_for_its_turn_alone() -> None:
    held, view = snapshot(1), View()
    offered = parse_offered([b'{"type":"function","function":{"name":"t00000"}}'], Target().format)
    owned = Offer(owned=offered, owned_names=frozenset({"t00000"}))
    assert not scene(held, view, offer=owned).eligible("crm/t00000")
    assert scene(held, view).eligible("crm/t00000")


def test_what_is_remembered_is_bounded_whatever_is_asked() -> None:
    held, view = snapshot(_MAX_FACTS * 2), View()
    for n in range(3):
        target = Target(capabilities=frozenset({str(n)}))
        assert sum(1 for _ in scene(held, view, target).eligible_ids()) == _MAX_FACTS
    small = snapshot(1)
    for n in range(_MAX_MEMORIES + 50):
        scene(small, view, Target(capabilities=frozenset({str(n)}))).fact("crm/t00000")
    for memories in (held.memory["facts"], small.memory["facts"]):
        assert len(memories) <= _MAX_MEMORIES
        assert all(len(memory.facts) <= _MAX_FACTS for memory in memories.values())
