"""Writes the rows of one decided change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from toolbelay.storage.models import (
    ExposedNameRow,
    PolicyRow,
    RemovedToolRow,
    RouteConfigRow,
    TenantRow,
    ToolRow,
)
from toolbelay.storage.paging import batches
from toolbelay.storage.port import ConfigChange
from toolbelay.storage.rows import to_row

MAX_TOMBSTONES = 10_000  # of a tenant; older removals are only seen by loading everything


async def write_rows(connection: AsyncConnection, tenant_id: int, generation: int, change: ConfigChange) -> None:
    """Write `change` as `generation`; the tenant's row must be locked."""
    await _remove(connection, tenant_id, generation, change.removed)
    await _reserve(connection, tenant_id, change.reserve)
    for batch in batches(change.added):
        await connection.execute(insert(ToolRow), [to_row(tool, tenant_id, generation) for tool in batch])
    await _forget_tombstones(connection, tenant_id, [tool.tool_id for tool in change.added])
    for batch in batches(change.changed):
        await connection.execute(_REPLACE_TOOL, [_keyed(to_row(tool, tenant_id, generation)) for tool in batch])
    for name, text in change.policies.items():
        await _replace(connection, PolicyRow, tenant_id, name, None if text is None else {"text": text})
    for name, text in change.routes.items():
        await _replace(connection, RouteConfigRow, tenant_id, name, None if text is None else {"json": text})


_KEYS = ("tenant_id", "tool_id")
_REPLACE_TOOL = (
    update(ToolRow.__table__)  # type: ignore[arg-type]  # a Table, though typed as FromClause
    .where(ToolRow.tenant_id == bindparam("key_tenant_id"), ToolRow.tool_id == bindparam("key_tool_id"))
    .values({column.name: bindparam(column.name) for column in ToolRow.__table__.c if column.name not in _KEYS})
)
_DELETE_TOOL = delete(ToolRow.__table__).where(  # type: ignore[arg-type]
    ToolRow.tenant_id == bindparam("key_tenant_id"), ToolRow.tool_id == bindparam("key_tool_id")
)
_DELETE_TOMBSTONE = delete(RemovedToolRow.__table__).where(  # type: ignore[arg-type]
    RemovedToolRow.tenant_id == bindparam("key_tenant_id"), RemovedToolRow.tool_id == bindparam("key_tool_id")
)


def _keyed(row: dict[str, object]) -> dict[str, object]:
    """Rename the key columns: SQLAlchemy keeps a column's own name for the SET part."""
    return {f"key_{name}" if name in _KEYS else name: value for name, value in row.items()}


async def _remove(connection: AsyncConnection, tenant_id: int, generation: int, removed: Sequence[str]) -> None:
    for batch in batches(removed):
        keys = [{"key_tenant_id": tenant_id, "key_tool_id": tool_id} for tool_id in batch]
        await connection.execute(_DELETE_TOOL, keys)
        rows = [{"tenant_id": tenant_id, "tool_id": tool_id, "removed_in": generation} for tool_id in batch]
        await connection.execute(insert(RemovedToolRow), rows)
    if removed:
        await _bound_tombstones(connection, tenant_id)


async def _bound_tombstones(connection: AsyncConnection, tenant_id: int) -> None:
    """Drop the oldest generations' removals beyond the bound, and note that their difference is lost."""
    mine = RemovedToolRow.tenant_id == tenant_id
    newest_first = select(RemovedToolRow.removed_in).where(mine).order_by(RemovedToolRow.removed_in.desc())
    lost = await connection.scalar(newest_first.offset(MAX_TOMBSTONES).limit(1))
    if lost is None:
        return
    await connection.execute(delete(RemovedToolRow).where(mine, RemovedToolRow.removed_in <= lost))
    floor = {TenantRow.difference_floor: lost}
    behind = (TenantRow.id == tenant_id, TenantRow.difference_floor < lost)
    await connection.execute(update(TenantRow).where(*behind).values(floor))


async def _forget_tombstones(connection: AsyncConnection, tenant_id: int, added: Sequence[str]) -> None:
    """A tool that came back is not removed any more."""
    count = select(func.count()).select_from(RemovedToolRow).where(RemovedToolRow.tenant_id == tenant_id)
    if not added or not await connection.scalar(count):
        return
    for batch in batches(added):
        keys = [{"key_tenant_id": tenant_id, "key_tool_id": tool_id} for tool_id in batch]
        await connection.execute(_DELETE_TOMBSTONE, keys)


async def _reserve(connection: AsyncConnection, tenant_id: int, reserve: Mapping[str, str]) -> None:
    for batch in batches(reserve.items()):
        rows = [{"tenant_id": tenant_id, "exposed_name": name, "tool_id": tool_id} for name, tool_id in batch]
        await connection.execute(insert(ExposedNameRow), rows)


async def _replace(
    connection: AsyncConnection,
    table: type[PolicyRow | RouteConfigRow],
    tenant_id: int,
    name: str,
    values: Mapping[str, str] | None,
) -> None:
    await connection.execute(delete(table).where(table.tenant_id == tenant_id, table.name == name))
    if values is not None:
        await connection.execute(insert(table).values(tenant_id=tenant_id, name=name, **values))
