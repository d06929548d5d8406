"""Indexes of tenants: what runs in the background ends with them."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.openai_stub import stub
from tests.support.rankable import catalog, tool
from toolbelay.application.indexes import MAX_OFFERED_INDEXES, TenantIndexes
from toolbelay.application.offer import Offer
from toolbelay.application.scene import Scene
from toolbelay.application.turn import Target
from toolbelay.catalog.model import Tool
from toolbelay.catalog.routes import Route
from toolbelay.catalog.snapshot import TenantSnapshot, build_snapshot
from toolbelay.catalog.surface import Digester
from toolbelay.ranking.port import RankQuery
from toolbelay.ranking.wiring import Endpoint, IndexMaker
from toolbelay.storage.port import TenantRows


def _snapshot(tenant: str, generation: int = 1) -> TenantSnapshot[None]:
    tools = list(catalog(tool("mail/send_email"), tool(f"crm/report_{generation}")).values())
    rows = TenantRows(
        tenant=tenant,
        generation=generation,
        since=0,
        session_epoch=0,
        tools=tools,
        removed=(),
        policies=(),
        routes=(),
    )
    return build_snapshot(rows, None, lambda _: None, Digester(b"secret"))


class _Everyone:
    memory = object()

    def permits(self, tool: Tool) -> bool:
        return True


def _scene(snapshot: TenantSnapshot[None], *offered: Tool) -> Scene:
    offer = Offer(definitions={t.tool_id: b"{}" for t in offered}, ranked={t.tool_id: t for t in offered})
    return Scene(snapshot, Route(), Target(), offer, _Everyone())  # type: ignore[arg-type]


async def _eventually(met: asyncio.Future[None]) -> None:
    async with asyncio.timeout(20):
        await met


async def test_closing_stops_what_indexes_do_in_the_background() -> None:
    before = asyncio.all_tasks()
    asked = asyncio.get_running_loop().create_future()

    def never(_path: str, _body: object) -> None:
        if not asked.done():
            asked.set_result(None)

    async with stub(never) as endpoint:
        maker = IndexMaker(Endpoint(endpoint.url, "model"))
        indexes = TenantIndexes(maker)
        indexes.take(_snapshot("a"))
        indexes.take(_snapshot("b"))
        await _eventually(asked)  # the endpoint hangs, and an index waits for it
        deadline = asyncio.get_running_loop().time() + 10
        await indexes.of(_scene(_snapshot("a"), tool("own/thing")), deadline)
        await indexes.close()
        await indexes.close()
        await maker.aclose()
        ours = {t for t in asyncio.all_tasks() - before if "_fetch" in repr(t) or "_refresh" in repr(t)}
        assert not ours


async def test_a_snapshot_taken_while_another_is_taken_wins() -> None:
    maker = IndexMaker()
    indexes = TenantIndexes(maker)
    for generation in range(1, 6):
        indexes.take(_snapshot("a", generation))
    index = await indexes.of(_scene(_snapshot("a", 5)), asyncio.get_running_loop().time() + 20)
    ranking = await index.rank(RankQuery("report", "keyword", lambda _: True, 8, sticky=False))
    assert [match.tool_id for match in ranking.matches] == ["crm/report_5"]
    await indexes.close()
    await maker.aclose()


async def test_a_call_after_a_change_waits_a_moment_for_the_new_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolbelay.application.indexes.CATCH_UP_SECONDS", 20.0)
    maker = IndexMaker()
    indexes = TenantIndexes(maker)
    for generation in (1, 2):
        indexes.take(_snapshot("a", generation))
        index = await indexes.of(_scene(_snapshot("a", generation)), asyncio.get_running_loop().time() + 60)
        ranking = await index.rank(RankQuery("report", "keyword", lambda _: True, 8, sticky=False))
        assert [match.tool_id for match in ranking.matches] == [f"crm/report_{generation}"]
    await indexes.close()
    await maker.aclose()


async def test_indexes_over_offers_are_bounded() -> None:
    maker = IndexMaker()
    indexes = TenantIndexes(maker)
    held = _snapshot("a")
    deadline = asyncio.get_running_loop().time() + 20
    first = await indexes.of(_scene(held, tool("own/thing_0")), deadline)
    assert await indexes.of(_scene(held, tool("own/thing_0")), deadline) is first
    for number in range(1, MAX_OFFERED_INDEXES + 1):
        await indexes.of(_scene(held, tool(f"own/thing_{number}")), deadline)
    assert await indexes.of(_scene(held, tool("own/thing_0")), deadline) is not first
    await indexes.close()
    await maker.aclose()
