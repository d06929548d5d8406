"""Reads of a tenant's rows, each in one REPEATABLE READ transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from alembic.migration import MigrationContext
from sqlalchemy import Connection, exists, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from toolbelay.catalog.model import Tool
from toolbelay.storage.engine import Database
from toolbelay.storage.failure import ForeignSchemaError, SchemaNotReadyError
from toolbelay.storage.guard import MigrationError
from toolbelay.storage.migrate import head, is_known, require_known_head
from toolbelay.storage.models import ExposedNameRow, PolicyRow, RemovedToolRow, RouteConfigRow, TenantRow, ToolRow
from toolbelay.storage.paging import pages
from toolbelay.storage.port import PolicyFile, RouteRow, TenantRows
from toolbelay.storage.rows import TOOL_COLUMNS, storable, to_tool

PAGE = 128  # rows turned into tools between two turns of the event loop: about 1 ms


class SqlCatalogReader:
    """`storage.port.CatalogReader` on SQLAlchemy."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._head = head()

    async def generations(self, *, timeout: float) -> Mapping[str, int]:
        """Generation of every tenant."""

        async def read(connection: AsyncConnection) -> dict[str, int]:
            rows = await connection.execute(select(TenantRow.name, TenantRow.generation))
            return {row.name: row.generation for row in rows}

        return await self._database.read(read, timeout=timeout)

    async def generation(self, tenant: str, *, timeout: float) -> int | None:
        """Generation of one tenant; `None` = no such tenant."""
        if not storable(tenant):
            return None

        async def read(connection: AsyncConnection) -> int | None:
            return await connection.scalar(select(TenantRow.generation).where(TenantRow.name == tenant))

        return await self._database.read(read, timeout=timeout)

    async def load(self, tenant: str, *, since: int, timeout: float) -> TenantRows | None:
        """See `CatalogReader.load`."""
        if not storable(tenant):
            return None

        async def read(connection: AsyncConnection) -> TenantRows | None:
            return await _load(connection, tenant, since)

        return await self._database.read(read, timeout=timeout)

    async def ready(self, *, timeout: float) -> None:
        """Raise SchemaNotReadyError (a StorageUnavailableError) unless the schema is at this build's head.

        ForeignSchemaError, one of these, where upgrading with this build would not help.
        """

        async def read(connection: AsyncConnection) -> tuple[str, ...]:
            return await connection.run_sync(_heads)

        heads = await self._database.read(read, timeout=timeout)
        revision = ",".join(heads) or None
        try:
            require_known_head(revision, self._head)
        except MigrationError as error:
            kind = SchemaNotReadyError if is_known(revision) else ForeignSchemaError
            raise kind(str(error)) from None


def _heads(connection: Connection) -> tuple[str, ...]:
    return MigrationContext.configure(connection).get_current_heads()


async def _load(connection: AsyncConnection, tenant: str, since: int) -> TenantRows | None:
    found = (
        await connection.execute(
            select(TenantRow.id, TenantRow.generation, TenantRow.session_epoch, TenantRow.difference_floor).where(
                TenantRow.name == tenant
            )
        )
    ).one_or_none()
    if found is None:
        return None
    tenant_id, generation, epoch, floor = found
    if not floor <= since <= generation:
        since = 0  # that difference is not known: its removals were dropped, or a backup was restored
    changes = since < generation
    return TenantRows(
        tenant=tenant,
        generation=generation,
        session_epoch=epoch,
        since=since,
        tools=[tool async for tool in _tools(connection, tenant_id, since)] if changes else (),
        removed=await _removed(connection, tenant_id, since) if changes and since else (),
        policies=await _policies(connection, tenant_id),
        routes=await _routes(connection, tenant_id),
        retired=await _retired(connection, tenant_id, since) if changes else {},
    )


async def _tools(connection: AsyncConnection, tenant_id: int, since: int) -> AsyncIterator[Tool]:
    """Tools changed after `since`, page by page, so that the event loop is never held for long."""
    place = (since + 1, "")
    query = select(*TOOL_COLUMNS).order_by(ToolRow.changed_in, ToolRow.tool_id).limit(PAGE)
    while True:
        after = tuple_(ToolRow.changed_in, ToolRow.tool_id) > place
        rows = (await connection.execute(query.where(ToolRow.tenant_id == tenant_id, after))).all()
        for row in rows:
            yield to_tool(row)
        if len(rows) < PAGE:
            return
        place = (rows[-1].changed_in, rows[-1].tool_id)


async def _removed(connection: AsyncConnection, tenant_id: int, since: int) -> Sequence[str]:
    """At most `write_rows.MAX_TOMBSTONES` ids."""
    query = select(RemovedToolRow.tool_id).where(
        RemovedToolRow.tenant_id == tenant_id, RemovedToolRow.removed_in > since
    )
    return (await connection.scalars(query)).all()


async def _retired(connection: AsyncConnection, tenant_id: int, since: int) -> Mapping[str, str]:
    """Exposed names of removed tools: a session may still hold such a tool, and a model may call it."""
    query = select(ExposedNameRow.exposed_name, ExposedNameRow.tool_id).where(ExposedNameRow.tenant_id == tenant_id)
    if since:
        removed = select(RemovedToolRow.tool_id).where(
            RemovedToolRow.tenant_id == tenant_id, RemovedToolRow.removed_in > since
        )
        query = query.where(ExposedNameRow.tool_id.in_(removed))
    else:
        query = query.where(~exists().where(ToolRow.tenant_id == tenant_id, ToolRow.tool_id == ExposedNameRow.tool_id))
    return {row.tool_id: row.exposed_name async for row in pages(connection, query, ExposedNameRow.exposed_name)}


async def _policies(connection: AsyncConnection, tenant_id: int) -> Sequence[PolicyFile]:
    query = select(PolicyRow.name, PolicyRow.text).where(PolicyRow.tenant_id == tenant_id).order_by(PolicyRow.name)
    return [PolicyFile(name, text) for name, text in await connection.execute(query)]


async def _routes(connection: AsyncConnection, tenant_id: int) -> Sequence[RouteRow]:
    query = (
        select(RouteConfigRow.name, RouteConfigRow.json)
        .where(RouteConfigRow.tenant_id == tenant_id)
        .order_by(RouteConfigRow.name)
    )
    return [RouteRow(name, text) for name, text in await connection.execute(query)]
