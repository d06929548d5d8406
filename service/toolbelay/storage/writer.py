"""Changes of a tenant's rows: the tenant's row is locked first, the generation raised, an audit row left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from sqlalchemy import insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from toolbelay.storage.current import read_current
from toolbelay.storage.engine import Database
from toolbelay.storage.models import AuditRow, TenantRow
from toolbelay.storage.port import ChangeScope, ConfigChange, CurrentConfig, StorageUnavailableError
from toolbelay.storage.rows import storable
from toolbelay.storage.write_rows import write_rows


class _UnchangedError(Exception):
    """Rolls back, so that neither a dry run nor a change of nothing leaves a new tenant's row."""

    def __init__(self, generation: int) -> None:
        super().__init__(generation)
        self.generation = generation


class SqlConfigWriter:
    """`storage.port.ConfigWriter` on SQLAlchemy."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(
        self,
        tenant: str,
        scope: ChangeScope,
        decide: Callable[[CurrentConfig], ConfigChange],
        *,
        who: str,
        dry_run: bool,
        timeout: float,
    ) -> int:
        """See `ConfigWriter.change`."""

        async def work(connection: AsyncConnection) -> int:
            locked = await _lock(connection, tenant)
            if locked is None:
                await _create(connection, tenant)
                locked = await _lock(connection, tenant)
            if locked is None:
                raise StorageUnavailableError("SQL: the tenant's row cannot be created")
            tenant_id, generation = locked
            current = await read_current(connection, tenant_id, generation, scope)
            # In a thread: Cedar's validation and the fingerprints of a large catalog take a while.
            change = await asyncio.to_thread(decide, current)
            if dry_run or change.empty:
                raise _UnchangedError(generation)
            generation += 1
            await write_rows(connection, tenant_id, generation, change)
            values = {TenantRow.generation: generation}
            await connection.execute(update(TenantRow).where(TenantRow.id == tenant_id).values(values))
            await _audit(connection, tenant_id, generation, who=who, action="apply", summary=change.summary)
            return generation

        try:
            return await self._database.write(work, timeout=timeout)
        except _UnchangedError as unchanged:
            return unchanged.generation

    async def end_sessions(self, tenant: str, *, who: str, timeout: float) -> int | None:
        """See `ConfigWriter.end_sessions`."""

        async def work(connection: AsyncConnection) -> int | None:
            locked = await _lock(connection, tenant)
            if locked is None:
                return None
            tenant_id, generation = locked
            values = {
                TenantRow.generation: generation + 1,
                TenantRow.session_epoch: TenantRow.session_epoch + 1,
            }
            await connection.execute(update(TenantRow).where(TenantRow.id == tenant_id).values(values))
            await _audit(connection, tenant_id, generation + 1, who=who, action="end_sessions")
            return generation + 1

        return await self._database.write(work, timeout=timeout)

    async def resync(self, in_redis: Mapping[str, int], *, who: str, timeout: float) -> Mapping[str, int]:
        """See `ConfigWriter.resync`."""

        async def work(connection: AsyncConnection) -> Mapping[str, int]:
            query = select(TenantRow.id, TenantRow.name, TenantRow.generation).order_by(TenantRow.id)
            rows = (await connection.execute(query.with_for_update(key_share=True))).all()
            generations: dict[str, int] = {}
            for tenant_id, name, generation in rows:
                raised = max(generation, in_redis.get(name, 0)) + 1
                # The floor makes replicas, which may hold what the restored database lost, load everything.
                values = {TenantRow.generation: raised, TenantRow.difference_floor: raised}
                await connection.execute(update(TenantRow).where(TenantRow.id == tenant_id).values(values))
                summary = json.dumps({"from": generation, "redis": in_redis.get(name)})
                await _audit(connection, tenant_id, raised, who=who, action="resync", summary=summary)
                generations[name] = raised
            return generations

        return await self._database.write(work, timeout=timeout)

    async def audit(self, tenant: str, *, who: str, action: str, summary: str, timeout: float) -> None:
        """See `ConfigWriter.audit`."""

        async def work(connection: AsyncConnection) -> None:
            query = select(TenantRow.id, TenantRow.generation).where(TenantRow.name == tenant)
            found = (await connection.execute(query)).one_or_none()
            if found is not None:
                await _audit(connection, found.id, found.generation, who=who, action=action, summary=summary)

        if storable(tenant):
            await self._database.write(work, timeout=timeout)


async def _lock(connection: AsyncConnection, tenant: str) -> tuple[int, int] | None:
    """(id, generation) of the tenant, its row locked until the transaction ends.

    FOR NO KEY UPDATE: rows that only refer to the tenant (audit) need not wait. SQLite has locked the
    whole database by now and ignores the clause.
    """
    query = select(TenantRow.id, TenantRow.generation).where(TenantRow.name == tenant)
    row = (await connection.execute(query.with_for_update(key_share=True))).one_or_none()
    return None if row is None else (row.id, row.generation)


async def _create(connection: AsyncConnection, tenant: str) -> None:
    """Create the tenant's row; waits for another transaction that is creating it."""
    values = {
        "name": tenant,
        "generation": 0,
        "session_epoch": 0,
        "difference_floor": 0,
        "created_at": datetime.now(UTC),
    }
    if connection.dialect.name == "postgresql":
        await connection.execute(postgresql.insert(TenantRow).values(values).on_conflict_do_nothing())
    else:
        await connection.execute(sqlite.insert(TenantRow).values(values).on_conflict_do_nothing())


async def _audit(
    connection: AsyncConnection, tenant_id: int, generation: int, *, who: str, action: str, summary: str = "{}"
) -> None:
    values = {
        "tenant_id": tenant_id,
        "at": datetime.now(UTC),
        "who": who,
        "action": action,
        "generation": generation,
        "summary": summary,
    }
    await connection.execute(insert(AuditRow).values(values))
