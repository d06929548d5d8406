"""The ranking index of each tenant, and small ones over what a request offers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from toolbelay.application.scene import Scene
from toolbelay.catalog.model import Tool
from toolbelay.catalog.snapshot import TenantSnapshot
from toolbelay.clock import loop_time
from toolbelay.ranking.port import TenantIndex

MAX_OFFERED_INDEXES = 128
CATCH_UP_SECONDS = 0.15  # to wait for an index that is behind the snapshot
WAIT_SHARE = 0.5  # of what is left of the deadline, to wait for a first index

log = structlog.get_logger(__name__)


class TenantIndexes:
    """One index per tenant, refreshed behind the snapshots.

    A call waits for the first index, and for a moment for one that is being refreshed: who applies new tools and asks
    for them at once finds them, unless the catalog is so large that its index takes longer.
    """

    def __init__(self, make: Callable[[], TenantIndex]) -> None:
        self._make = make
        self._indexes: dict[str, TenantIndex] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # those, the ones they replaced, and closings
        self._offered: OrderedDict[tuple[object, ...], TenantIndex] = OrderedDict()

    @property
    def ready(self) -> bool:
        """Whether every tenant's first index is there."""
        return all(index.ready for index in self._indexes.values())

    def take(self, snapshot: TenantSnapshot[Any]) -> None:
        """Bring the tenant's index up to a snapshot, in the background."""
        self._refreshing[snapshot.tenant] = self._start(self._refresh(self._of_tenant(snapshot.tenant), snapshot))

    async def of(self, scene: Scene, deadline: float) -> TenantIndex:
        """The index that ranks a turn's tools."""
        if scene.offer.ranked:
            return await self._over_offer(scene)
        tenant = scene.snapshot.tenant
        index = self._of_tenant(tenant)
        refreshing = self._refreshing.get(tenant)
        if refreshing is not None and not refreshing.done():
            left = max((deadline - loop_time()) * WAIT_SHARE, 0.0)
            await asyncio.wait({refreshing}, timeout=min(left, CATCH_UP_SECONDS) if index.ready else left)
        return index

    async def close(self) -> None:
        """Stop refreshing, and what the indexes do in the background."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for index in (*self._indexes.values(), *self._offered.values()):
            await index.aclose()

    def _of_tenant(self, tenant: str) -> TenantIndex:
        if tenant not in self._indexes:
            self._indexes[tenant] = self._make()
        return self._indexes[tenant]

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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
                _, oldest = self._offered.popitem(last=False)
                self._start(oldest.aclose())
        else:
            self._offered.move_to_end(key)
        return index
