"""Which generation a call answers from: never older than what was acknowledged before it began.

Redis says how far the generation has been raised, SQL holds the truth. A worker answers from its
snapshot when it is at least what Redis says and was matched with SQL lately (F1, F3); a poller matches it
every second and repairs Redis (F2). What cannot be established closes the tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import structlog

from toolbelay.catalog.coalesce import NextRead
from toolbelay.catalog.generations import FreshnessEvents, GenerationRead, Generations
from toolbelay.catalog.snapshot import SnapshotError, TenantSnapshot
from toolbelay.clock import loop_time
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.sessions.port import StateUnavailableError
from toolbelay.storage.failure import ForeignSchemaError
from toolbelay.storage.port import CatalogReader, StorageUnavailableError, TenantRows

P = TypeVar("P")
_T = TypeVar("_T")

log = structlog.get_logger(__name__)

SQL_TIMEOUT = 2.0  # seconds one read may take
OPINION_SECONDS = 2.0  # what a proven connection gets to confirm a fresh one's word
REPAIR_SECONDS = 0.25
LOADS_AT_ONCE = 4  # by the poller
MARGIN_SECONDS = 0.06  # what a call that ends closed keeps of its deadline, so that its caller hears why
MAX_DOUBTS = 256  # connections that wait for the poller to prove them; others wait for their next read


class _Tenant(Generic[P]):
    """What a worker holds of one tenant."""

    def __init__(self) -> None:
        self.snapshot: TenantSnapshot[P] | None = None
        self.matched_at = float("-inf")  # start of the last SQL read that agreed
        self.floor = 0  # the highest generation that SQL ever told of
        self.refused = 0  # the highest generation that made no snapshot
        self.doubts: list[Callable[[], None]] = []  # connections to prove after the next look at SQL

    @property
    def generation(self) -> int:
        """What may be answered from; 0 = nothing."""
        return 0 if self.snapshot is None else self.snapshot.generation

    @property
    def closed(self) -> bool:
        return self.generation < max(self.floor, self.refused)

    def take_doubts(self) -> Sequence[Callable[[], None]]:
        taken, self.doubts = self.doubts, []
        return taken


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
        self._opinions: dict[str, NextRead[int | None]] = {}
        self._catching_up = asyncio.Semaphore(LOADS_AT_ONCE)
        self._poller: asyncio.Task[None] | None = None
        self._started = False

    async def start(self) -> None:
        """Check the schema, load every tenant, start polling.

        Where SQL does not answer or has no schema yet the poller goes on trying: not ready until then. Raises
        ForeignSchemaError, which waiting does not cure.
        """
        try:
            await self._begin()
        except ForeignSchemaError:
            raise
        except StorageUnavailableError as error:
            self._events.poll_failed(str(error))
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
        if read.fresh and read.value is not None:
            read = await self._second_opinion(tenant, read, deadline)
        state = self._tenants.get(tenant)
        need = max(read.value or 0, 0 if state is None else state.floor)
        unmatched = state is None or self._clock() - state.matched_at > self._max_unverified
        unsure = not read.known or read.value is None or read.fresh or unmatched
        if unsure:
            need = max(need, await self._check(tenant, deadline))
            if read.known and read.value is None:
                await self._repair(tenant, need, deadline)
        snapshot = self.held(tenant)
        if snapshot is None or snapshot.generation < need:
            snapshot = await self._load_at_least(tenant, need, deadline=deadline)
        if unsure and read.vouch is not None:
            read.vouch()  # all that had been acknowledged when SQL was asked is in the snapshot
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

    async def _second_opinion(self, tenant: str, read: GenerationRead, deadline: float) -> GenerationRead:
        """What a proven connection says beside a fresh one, where there is one: then SQL need not be asked now.

        So the pool may grow while SQL is away. The fresh connection stays unproven until the poller's next look.
        """
        opinion = self._opinions.get(tenant)
        if opinion is None:
            opinion = self._opinions[tenant] = NextRead(partial(self._proven_generation, tenant))
        task = opinion.after_now()
        left = deadline - loop_time()
        done, _ = await asyncio.wait({task}, timeout=max(min(OPINION_SECONDS, left / 2), 0))
        value = task.result() if done else None
        if value is None or read.value is None:
            return read
        state = self._tenants.get(tenant)
        if state is not None and read.vouch is not None and len(state.doubts) < MAX_DOUBTS:
            state.doubts.append(read.vouch)
        return GenerationRead(known=True, value=max(read.value, value))

    async def _proven_generation(self, tenant: str) -> int | None:
        try:
            seen = await self._generations.see_generation(tenant, timeout=OPINION_SECONDS, proven=True)
        except StateUnavailableError:
            return None
        return None if seen.fresh else seen.value

    async def _check(self, tenant: str, deadline: float) -> int:
        """The tenant's generation in SQL, by a read that starts after this call."""
        check = self._checks.get(tenant)
        if check is None:
            check = self._checks[tenant] = NextRead(lambda: self._read_generation(tenant))
        found = await self._within(check.after_now(), deadline)
        if found is None:
            self._forget(tenant)
            raise _unknown_tenant()
        return found

    async def _read_generation(self, tenant: str) -> int | None:
        began, held = self._clock(), self._generation(tenant)
        found = await self._reader.generation(tenant, timeout=SQL_TIMEOUT)
        if found is not None and found < held:
            raise _SqlBehindError
        self._match(tenant, found, began)
        return found

    def _generation(self, tenant: str) -> int:
        state = self._tenants.get(tenant)
        return 0 if state is None else state.generation

    def _match(self, tenant: str, found: int | None, began: float) -> None:
        """Note what a read of SQL that began then found."""
        state = self._tenants.get(tenant)
        if state is None or found is None:
            return
        state.floor = max(state.floor, found)
        if state.generation == found:
            state.matched_at = max(state.matched_at, began)

    async def _load_at_least(self, tenant: str, need: int, *, deadline: float) -> TenantSnapshot[P]:
        refused = self._tenants.get(tenant)
        if refused is not None and refused.generation < need <= refused.refused and deadline != float("inf"):
            raise self._closed("load_failed")  # the poller alone tries again what was refused
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
        if state.generation < state.refused:
            raise self._closed("load_failed")
        log.error("generation_not_in_sql", tenant=tenant, wanted=need, held=state.generation)
        raise self._closed("redis_ahead")

    def _forget(self, tenant: str) -> None:
        """Hold nothing of a tenant that is not there: its name came from outside."""
        if tenant not in self._tenants:
            for reads in (self._loads, self._checks, self._opinions):
                reads.pop(tenant, None)

    async def _load(self, tenant: str) -> None:
        began = self._clock()
        held = self.held(tenant)
        rows = await self._reader.load(tenant, since=held.generation if held else 0, timeout=SQL_TIMEOUT * 5)
        if rows is None:
            return
        state = self._tenants.setdefault(tenant, _Tenant())
        self._match(tenant, rows.generation, began)
        if held is not None and rows.generation <= held.generation:
            return
        try:
            base = held if rows.since else None
            snapshot = await asyncio.to_thread(self._build, rows, base)
        except SnapshotError as error:
            state.refused = rows.generation
            self._events.load_refused(tenant, rows.generation, str(error), self._clock() - began)
            return
        state.refused = 0
        state.snapshot = snapshot
        state.matched_at = max(state.matched_at, began)
        self._events.reloaded(tenant, snapshot.generation, self._clock() - began)
        self._on_snapshot(snapshot)

    async def _within(self, task: asyncio.Task[_T], deadline: float) -> _T:
        """The result of a shared task by the deadline; the task goes on for the others."""
        left = deadline - loop_time()
        timeout = None if left == float("inf") else max(left - min(MARGIN_SECONDS, left / 4), 0.0)
        done, _ = await asyncio.wait({task}, timeout=timeout)
        if not done:
            raise self._closed("sql_slow")
        try:
            return task.result()
        except StorageUnavailableError:
            raise self._closed("sql_unavailable") from None
        except _SqlBehindError:
            # A database restored from a backup: the worker never goes back.
            raise self._closed("sql_behind") from None

    def _closed(self, cause: str) -> ToolbelayError:
        self._events.unverifiable(cause)
        return ToolbelayError(
            ErrorReason.AUTHORITY_UNVERIFIABLE,
            "the catalog and policy in force cannot be established now",
            metadata={"cause": cause},
        )

    async def _repair(self, tenant: str, generation: int, deadline: float = float("inf")) -> bool:
        """Raise what Redis lacks; whether it answered."""
        left = deadline - loop_time()
        try:
            await self._generations.raise_generation(tenant, generation, timeout=min(REPAIR_SECONDS, left / 4))
        except StateUnavailableError:
            return False
        return True

    async def _begin(self) -> None:
        await self._reader.ready(timeout=SQL_TIMEOUT)
        await self._poll_once()
        self._started = True

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                await (self._poll_once() if self._started else self._begin())
            except StorageUnavailableError as error:
                self._events.poll_failed(str(error))
            except Exception:
                self._events.poll_failed("fault")
                log.exception("authority_poll_fault")
            self._report()

    async def _poll_once(self) -> None:
        """Match every tenant with SQL, load what is newer, and make Redis say so too."""
        began = self._clock()
        doubts = {tenant: state.take_doubts() for tenant, state in self._tenants.items()}
        found = await self._reader.generations(timeout=SQL_TIMEOUT)
        for tenant, generation in found.items():
            self._match(tenant, generation, began)
        self._report()
        behind = [tenant for tenant, generation in found.items() if self._generation(tenant) < generation]
        await asyncio.gather(*(self._catch_up(tenant, found[tenant]) for tenant in behind))
        for tenant, vouches in doubts.items():
            if self._generation(tenant) >= found.get(tenant, 1):
                for vouch in vouches:
                    vouch()
        for tenant, generation in found.items():
            if not await self._repair(tenant, generation):
                return  # Redis is away: the next round tries again

    async def _catch_up(self, tenant: str, generation: int) -> None:
        async with self._catching_up:
            with contextlib.suppress(ToolbelayError):
                await self._load_at_least(tenant, generation, deadline=float("inf"))

    def _report(self) -> None:
        states, now = self._tenants.values(), self._clock()
        self._events.polled(
            lag=max((state.floor - state.generation for state in states if state.snapshot), default=0),
            unverified_seconds=max((now - state.matched_at for state in states if state.snapshot), default=0.0),
            tenants=sum(state.snapshot is not None for state in states),
            closed=sum(state.closed for state in states),
        )


class _SqlBehindError(Exception):
    """SQL tells of an older generation than this worker holds."""


def _unknown_tenant() -> ToolbelayError:
    return ToolbelayError(ErrorReason.ROUTE_NOT_FOUND, "no such route")
