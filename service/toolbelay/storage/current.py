"""What a change sees of a tenant inside its transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from toolbelay.storage.models import ExposedNameRow, PolicyRow, RouteConfigRow, ToolRow
from toolbelay.storage.paging import batches, pages
from toolbelay.storage.port import ChangeScope, CurrentConfig, CurrentTool
from toolbelay.storage.rows import hints, labels

# Beyond this, reading every row costs less: PostgreSQL's generic plan of a long IN compares each row with each id.
MANY = 1_000

_CURRENT = (
    ToolRow.tool_id,
    ToolRow.exposed_name,
    ToolRow.fingerprint,
    ToolRow.tags,
    ToolRow.read_only,
    ToolRow.destructive,
    ToolRow.idempotent,
    ToolRow.open_world,
    ToolRow.requires,
)


async def read_current(
    connection: AsyncConnection, tenant_id: int, generation: int, scope: ChangeScope
) -> CurrentConfig:
    """The rows of `scope`; the tenant's row must be locked."""
    tools = {tool_id: tool async for tool_id, tool in _tools(connection, tenant_id, scope)}
    some_are_new = not scope.listed <= tools.keys()
    return CurrentConfig(
        generation=generation,
        tool_count=await _count(connection, tenant_id),
        tools=tools,
        toolsets=frozenset([name async for name in _toolsets(connection, tenant_id, scope.toolsets)]),
        reserved={name: tool_id async for name, tool_id in _reserved(connection, tenant_id)} if some_are_new else {},
        policies=await _policies(connection, tenant_id),
        routes=await _routes(connection, tenant_id),
    )


async def _tools(
    connection: AsyncConnection, tenant_id: int, scope: ChangeScope
) -> AsyncIterator[tuple[str, CurrentTool]]:
    query = select(*_CURRENT).where(ToolRow.tenant_id == tenant_id)
    wanted = scope.listed | scope.mentioned
    if scope.every_tool or len(wanted) > MANY:
        rows = pages(connection, query, ToolRow.tool_id)
    else:
        rows = _chosen(connection, query, sorted(wanted))
    async for row in rows:
        tool_id, exposed, digest, tags, *flags, requires = row
        if scope.every_tool or tool_id in wanted:
            yield tool_id, CurrentTool(exposed, bytes(digest), labels(tags), hints(*flags), labels(requires))


async def _chosen(
    connection: AsyncConnection, query: Select[*tuple[Any, ...]], ids: Iterable[str]
) -> AsyncIterator[Any]:
    for batch in batches(ids):
        for row in await connection.execute(query.where(ToolRow.tool_id.in_(batch))):
            yield row


async def _toolsets(connection: AsyncConnection, tenant_id: int, wanted: frozenset[str]) -> AsyncIterator[str]:
    query = select(ToolRow.toolset).where(ToolRow.tenant_id == tenant_id).distinct()
    for batch in batches(sorted(wanted)):
        for row in await connection.execute(query.where(ToolRow.toolset.in_(batch))):
            yield row.toolset


async def _count(connection: AsyncConnection, tenant_id: int) -> int:
    query = select(func.count()).select_from(ToolRow).where(ToolRow.tenant_id == tenant_id)
    return await connection.scalar(query) or 0


async def _reserved(connection: AsyncConnection, tenant_id: int) -> AsyncIterator[tuple[str, str]]:
    query = select(ExposedNameRow.exposed_name, ExposedNameRow.tool_id)
    chosen = query.where(ExposedNameRow.tenant_id == tenant_id)
    async for name, tool_id in pages(connection, chosen, ExposedNameRow.exposed_name):
        yield name, tool_id


async def _policies(connection: AsyncConnection, tenant_id: int) -> dict[str, str]:
    query = select(PolicyRow.name, PolicyRow.text).where(PolicyRow.tenant_id == tenant_id)
    return {row.name: row.text for row in await connection.execute(query)}


async def _routes(connection: AsyncConnection, tenant_id: int) -> dict[str, str]:
    query = select(RouteConfigRow.name, RouteConfigRow.json).where(RouteConfigRow.tenant_id == tenant_id)
    return {row.name: row.json for row in await connection.execute(query)}
