"""Which generation a call answers from: never older than what was acknowledged before it began.

Redis says how far the generation has been raised, SQL holds the truth. A worker answers from its
snapshot when it is at least what Redis says and was matched with SQL lately (F1, F3); a poller matches it
every second and repairs Redis (F2). What cannot be established closes the tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from toolbelay.catalog.coalesce import NextRead
from toolbelay.catalog.snapshot import SnapshotError, TenantSnapshot
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.storage.port import CatalogReader, StorageUnavailableError, TenantRows

P = TypeVar("P")
_T = TypeVar("_T")

log = structlog.get_logger(__name__)

SQL_TIMEOUT = 2.0  # seconds one read may take


@dataclass(frozen=True, slots=True)
class GenerationRead:
    """What Redis said. `known` False: Redis could not be asked. `fresh`: on a connection not trusted yet."""

    known: bool
    value: int | None = None
    fresh: bool = False


UNKNOWN_GENERATION = GenerationRead(known=False)


class Generations(Protocol):
    """The raise of generations in Redis."""

    async def raise_generation(self, tenant: str, generation: int, *, timeout: float) -> int:
        """Set if greater; returns the stored number."""


class FreshnessEvents(Protocol):
    """What is counted."""

    def reloaded(self, tenant: str, generation: int, seconds: float) -> None:
        """A snapshot was swapped in."""

    def unverifiable(self, cause: str) -> None:
        """A call was closed."""

    def poll_failed(self) -> None:
        """SQL did not answer the poller."""


class _Tenant(Generic[P]):
    """What a worker holds of one tenant."""

    def __init__(self) -> None:
        self.snapshot: TenantSnapshot[P] | None = None
        self.matched_at = float("-inf")  # start of the last SQL read that agreed
        self.failure: str | None = None


class Freshness(Generic[P]):
    """The snapshots of one worker, and when they may be used."""

    def __init__(
        self,
        reader: CatalogReader,
        generations: Generations,
        build: Callable[[TenantRows, TenantSnapshot[P] | None], TenantSnapshot[P]],
        *,
        events: FreshnessEvents,
        on_snapshot: Callable[[TenantSnapshot[P]], None] = lambda _: None,
        poll_seconds: float = 1.0,
        max_unverified_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._generations = generations
        self._build = build
        self._events = events
        self._on_snapshot = on_snapshot
        self._poll_seconds = poll_seconds
        self._max_unverified = max_unverified_seconds
        self._clock = clock
        self._tenants: dict[str, _Tenant[P]] = {}
        self._loads: dict[str, NextRead[None]] = {}
        self._checks: dict[str, NextRead[int | None]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._started = False

    async def start(self) -> None:
        """Check the schema, load every tenant, start polling. Raises StorageUnavailableError."""
        await self._reader.ready(timeout=SQL_TIMEOUT)
        known = await self._reader.generations(timeout=SQL_TIMEOUT)
        for tenant in sorted(known):
            with contextlib.suppress(ToolbelayError):
                await self._load_at_least(tenant, known[tenant], deadline=float("inf"))
        self._started = True
        self._poller = asyncio.create_task(self._poll())

    async def stop(self) -> None:
        """Stop polling."""
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait({self._poller})

    @property
    def ready(self) -> bool:
        """Started, and not every tenant failed to load."""
        states = self._tenants.values()
        return self._started and (not states or any(t.snapshot is not None for t in states))

    def held(self, tenant: str) -> TenantSnapshot[P] | None:
        """The snapshot as it is, unchecked: for what is looked up before the check."""
        state = self._tenants.get(tenant)
        return None if state is None else state.snapshot

    def matched_ages(self) -> Mapping[str, float]:
        """Seconds since each tenant was last matched with SQL."""
        now = self._clock()
        return {name: now - state.matched_at for name, state in self._tenants.items()}

    async def first(self, tenant: str, *, deadline: float) -> TenantSnapshot[P]:
        """A snapshot to begin with, loaded when there is none.

        Raises ROUTE_NOT_FOUND for an unknown tenant, AUTHORITY_UNVERIFIABLE when it cannot be loaded.
        """
        return self.held(tenant) or await self._load_at_least(tenant, 1, deadline=deadline)

    async def current(
        self, tenant: str, read: GenerationRead, *, deadline: float, min_generation: int = 0
    ) -> TenantSnapshot[P]:
        """The snapshot that a call which read `read` may answer from.

        Call it after the read. Raises AUTHORITY_UNVERIFIABLE, GENERATION_NOT_REACHED, ROUTE_NOT_FOUND.
        """
        need = read.value or 0
        state = self._tenants.get(tenant)
        unmatched = state is None or self._clock() - state.matched_at > self._max_unverified
        if not read.known or read.value is None or read.fresh or unmatched:
            need = max(need, await self._check(tenant, deadline))
            if read.known and read.value is None:
                await self._repair(tenant, need)
        snapshot = self.held(tenant)
        if snapshot is None or snapshot.generation < need:
            snapshot = await self._load_at_least(tenant, need, deadline=deadline)
        if min_generation > snapshot.generation:
            reached = await self._check(tenant, deadline)
            if reached < min_generation:
                raise ToolbelayError(
                    ErrorReason.GENERATION_NOT_REACHED,
                    f"min_generation {min_generation} is ahead of the tenant's generation {reached}",
                    metadata={"generation": str(reached)},
                )
            snapshot = await self._load_at_least(tenant, min_generation, deadline=deadline)
        return snapshot

    async def _check(self, tenant: str, deadline: float) -> int:
        """The tenant's generation in SQL, by a read that starts after this call."""
        check = self._checks.get(tenant)
        if check is None:
            check = self._checks[tenant] = NextRead(lambda: self._read_generation(tenant))
        found = await self._within(check.after_now(), deadline)
        if found is None:
            self._forget(tenant)
            raise _unknown_tenant()
        held = self.held(tenant)
        if held is not None and found < held.generation:
            # A database restored from a backup: the worker never goes back.
            raise self._closed("sql_behind")
        return found

    async def _read_generation(self, tenant: str) -> int | None:
        began = self._clock()
        found = await self._reader.generation(tenant, timeout=SQL_TIMEOUT)
        self._match(tenant, found, began)
        return found

    def _match(self, tenant: str, found: int | None, began: float) -> None:
        state = self._tenants.get(tenant)
        if state is not None and state.snapshot is not None and state.snapshot.generation == found:
            state.matched_at = max(state.matched_at, began)

    async def _load_at_least(self, tenant: str, need: int, *, deadline: float) -> TenantSnapshot[P]:
        load = self._loads.get(tenant)
        if load is None:
            load = self._loads[tenant] = NextRead(lambda: self._load(tenant))
        # A load that runs already may bring what is needed; one that starts now surely reads it.
        for attempt in (load.running, load.after_now):
            task = attempt()
            if task is not None:
                await self._within(task, deadline)
            snapshot = self.held(tenant)
            if snapshot is not None and snapshot.generation >= need:
                return snapshot
        state = self._tenants.get(tenant)
        if state is None:
            self._forget(tenant)
            raise _unknown_tenant()
        if state.snapshot is None or state.failure is not None:
            raise self._closed("load_failed")
        log.error("generation_not_in_sql", tenant=tenant, wanted=need, held=state.snapshot.generation)
        raise self._closed("redis_ahead")

    def _forget(self, tenant: str) -> None:
        """Hold nothing of a tenant that is not there: its name came from outside."""
        if tenant not in self._tenants:
            self._loads.pop(tenant, None)
            self._checks.pop(tenant, None)

    async def _load(self, tenant: str) -> None:
        began = self._clock()
        held = self.held(tenant)
        rows = await self._reader.load(tenant, since=held.generation if held else 0, timeout=SQL_TIMEOUT * 5)
        if rows is None:
            return
        state = self._tenants.setdefault(tenant, _Tenant())
        if held is not None and rows.generation <= held.generation:
            self._match(tenant, rows.generation, began)
            return
        try:
            base = held if rows.since else None
            snapshot = await asyncio.to_thread(self._build, rows, base)
        except SnapshotError as error:
            state.failure = str(error)
            log.error("snapshot_refused", tenant=tenant, generation=rows.generation, cause=str(error))  # noqa: TRY400 - the cause says it, no trace is needed
            return
        state.failure = None
        state.snapshot = snapshot
        state.matched_at = max(state.matched_at, began)
        self._events.reloaded(tenant, snapshot.generation, self._clock() - began)
        self._on_snapshot(snapshot)

    async def _within(self, task: asyncio.Task[_T], deadline: float) -> _T:
        """The result of a shared task by the deadline; the task goes on for the others."""
        loop = asyncio.get_running_loop()
        timeout = None if deadline == float("inf") else max(deadline - loop.time(), 0.0)
        done, _ = await asyncio.wait({task}, timeout=timeout)
        if not done:
            raise self._closed("sql_slow")
        try:
            return task.result()
        except StorageUnavailableError:
            raise self._closed("sql_unavailable") from None

    def _closed(self, cause: str) -> ToolbelayError:
        self._events.unverifiable(cause)
        return ToolbelayError(
            ErrorReason.AUTHORITY_UNVERIFIABLE,
            "the catalog and policy in force cannot be established now",
            metadata={"cause": cause},
        )

    async def _repair(self, tenant: str, generation: int) -> None:
        with contextlib.suppress(Exception):
            await self._generations.raise_generation(tenant, generation, timeout=0.25)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                await self._poll_once()
            except StorageUnavailableError:
                self._events.poll_failed()
                log.warning("authority_poll_failed")
            except Exception:
                self._events.poll_failed()
                log.exception("authority_poll_error")

    async def _poll_once(self) -> None:
        began = self._clock()
        found = await self._reader.generations(timeout=SQL_TIMEOUT)
        for tenant, generation in found.items():
            held = self.held(tenant)
            if held is None or held.generation < generation:
                with contextlib.suppress(ToolbelayError):
                    await self._load_at_least(tenant, generation, deadline=float("inf"))
            else:
                self._match(tenant, generation, began)
            await self._repair(tenant, generation)


def _unknown_tenant() -> ToolbelayError:
    return ToolbelayError(ErrorReason.ROUTE_NOT_FOUND, "no such route")
