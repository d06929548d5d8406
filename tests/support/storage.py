"""A migrated database and the parts on it, for tests of storage and apply."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from toolbelay.application.apply_bundle import ConfigBundle, SourceFile
from toolbelay.application.apply_config import ApplyConfig, ApplyResult
from toolbelay.application.apply_plan import ApplyOptions
from toolbelay.catalog.model import Tool
from toolbelay.sessions.port import StateUnavailableError
from toolbelay.storage import migrate
from toolbelay.storage.engine import Database
from toolbelay.storage.port import TenantRows
from toolbelay.storage.reader import SqlCatalogReader
from toolbelay.storage.writer import SqlConfigWriter

PERMIT_ALL = b"permit (principal, action, resource);\n"


@dataclass
class RecordingRaiser:
    """Stands where Redis does: what was raised, in order; `refuse` makes it unavailable."""

    raised: list[tuple[str, int]] = field(default_factory=list)
    refuse: bool = False
    tries: int = 0

    async def raise_generation(self, tenant: str, generation: int, *, timeout: float) -> int:
        assert timeout > 0
        self.tries += 1
        if self.refuse:
            raise StateUnavailableError("timeout")
        self.raised.append((tenant, generation))
        return generation


@dataclass
class Store:
    """The parts of storage on one migrated database."""

    url: str
    database: Database
    reader: SqlCatalogReader
    writer: SqlConfigWriter
    raiser: RecordingRaiser
    applying: ApplyConfig

    async def apply(
        self,
        tenant: str = "acme",
        *,
        tools: Sequence[Mapping[str, Any] | bytes] | None = None,
        policies: Mapping[str, bytes] | None = None,
        routes: str | None = None,
        prune: bool = False,
        expected_generation: int | None = None,
        dry_run: bool = False,
        timeout: float = 30.0,
    ) -> ApplyResult:
        return await self.applying.run(
            tenant,
            bundle(tools=tools, policies=policies, routes=routes),
            who="tests",
            options=ApplyOptions(prune=prune, expected_generation=expected_generation),
            dry_run=dry_run,
            timeout=timeout,
        )

    async def load(self, tenant: str = "acme", since: int = 0) -> TenantRows:
        rows = await self.reader.load(tenant, since=since, timeout=10.0)
        assert rows is not None
        return rows

    async def tools(self, tenant: str = "acme") -> dict[str, Tool]:
        return {tool.tool_id: tool for tool in (await self.load(tenant)).tools}

    async def sql(self, statement: str) -> Sequence[Any]:
        async def run(connection: Any) -> Sequence[Any]:
            result = await connection.execute(text(statement))
            return result.all() if result.returns_rows else ()

        return await self.database.write(run, timeout=10.0)


@asynccontextmanager
async def store_on(url: str, **pools: int) -> AsyncIterator[Store]:
    """Migrate the database and open it."""
    migrate.upgrade(url)
    async with opened(url, **pools) as store:
        yield store


@asynccontextmanager
async def opened(url: str, **pools: int) -> AsyncIterator[Store]:
    """Open a migrated database, as one more replica does."""
    database = Database(url, **pools)
    writer, raiser = SqlConfigWriter(database), RecordingRaiser()
    applying = ApplyConfig(writer, raiser, confirm_seconds=0.3)
    try:
        yield Store(url, database, SqlCatalogReader(database), writer, raiser, applying)
    finally:
        await database.close()


def tool(name: str, toolset: str = "crm", description: str | None = "A tool", **members: Any) -> dict[str, Any]:
    """A line of tools/*.jsonl."""
    line = {"toolset": toolset, "name": name, "description": description, "input_schema": {"type": "object"}}
    return {**line, **members}


def bundle(
    *,
    tools: Sequence[Mapping[str, Any] | bytes] | None = None,
    policies: Mapping[str, bytes] | None = None,
    routes: str | None = None,
) -> ConfigBundle:
    """A bundle with one tools file, `all.jsonl`."""
    lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in tools or ()]
    return ConfigBundle(
        tools=None if tools is None else (SourceFile("all.jsonl", b"\n".join(lines)),),
        policies=None if policies is None else tuple(SourceFile(name, text) for name, text in policies.items()),
        routes=None if routes is None else SourceFile("routes.yaml", routes.encode()),
    )
