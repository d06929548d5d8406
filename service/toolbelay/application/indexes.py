"""The ranking index of each tenant, and small ones over what a request offers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import structlog

from toolbelay.application.scene import Scene
from toolbelay.catalog.model import Tool
from toolbelay.catalog.snapshot import TenantSnapshot
from toolbelay.ranking.port import TenantIndex

MAX_OFFERED_INDEXES = 128
WAIT_SHARE = 0.5  # of what is left of the deadline, to wait for a first index

log = structlog.get_logger(__name__)


class TenantIndexes:
    """One index per tenant, refreshed behind the snapshots; a call waits only for the first one."""

    def __init__(self, make: Callable[[], TenantIndex]) -> None:
        self._make = make
        self._indexes: dict[str, TenantIndex] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._offered: OrderedDict[tuple[object, ...], TenantIndex] = OrderedDict()

    def take(self, snapshot: TenantSnapshot[Any]) -> None:
        """Bring the tenant's index up to a snapshot, in the background."""
        index = self._indexes.setdefault(snapshot.tenant, self._make())
        task = asyncio.create_task(self._refresh(index, snapshot))
        self._refreshing[snapshot.tenant] = task

    async def of(self, scene: Scene, deadline: float) -> TenantIndex:
        """The index that ranks a turn's tools."""
        if scene.offer.ranked:
            return await self._over_offer(scene)
        tenant = scene.snapshot.tenant
        index = self._indexes.setdefault(tenant, self._make())
        refreshing = self._refreshing.get(tenant)
        if not index.ready and refreshing is not None:
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait({refreshing}, timeout=max(left * WAIT_SHARE, 0.0))
        return index

    async def close(self) -> None:
        """Stop refreshing."""
        for task in self._refreshing.values():
            task.cancel()
        if self._refreshing:
            await asyncio.wait(self._refreshing.values())

    async def _refresh(self, index: TenantIndex, snapshot: TenantSnapshot[Any]) -> None:
        try:
            await index.refresh(snapshot.tools)
        except Exception:
            log.exception("index_refresh_failed", tenant=snapshot.tenant, generation=snapshot.generation)

    async def _over_offer(self, scene: Scene) -> TenantIndex:
        """An index over the offered tools, the caller's own among them. Remembered: offers repeat."""
        tools: dict[str, Tool] = {}
        for tool_id in scene.offer.definitions:
            tool = scene.tool(tool_id)
            if tool is not None:
                tools[tool_id] = tool
        key = (scene.snapshot.tenant, *sorted((t.tool_id, t.fingerprint) for t in tools.values()))
        index = self._offered.get(key)
        if index is None:
            index = self._make()
            await index.refresh(tools)
            self._offered[key] = index
            while len(self._offered) > MAX_OFFERED_INDEXES:
                self._offered.popitem(last=False)
        else:
            self._offered.move_to_end(key)
        return index
