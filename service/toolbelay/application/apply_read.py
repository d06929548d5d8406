"""GetConfig: a tenant's configuration, in the form that an apply takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolbelay.catalog.model import Tool
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.storage.port import CatalogReader, PolicyFile, RouteRow, StorageUnavailableError

READ_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ConfigView:
    """Everything of a tenant at one generation; each sequence is sorted by id or name."""

    generation: int
    tools: Sequence[Tool]
    policies: Sequence[PolicyFile]
    routes: Sequence[RouteRow]

    def tool_lines(self) -> Iterator[bytes]:
        """The lines of a `tools/*.jsonl` that applies without a change."""
        return (tool_line(tool) for tool in self.tools)


class GetConfig:
    """The use case behind AdminService.GetConfig."""

    def __init__(self, reader: CatalogReader) -> None:
        self._reader = reader

    async def run(self, tenant: str, *, timeout: float = READ_SECONDS) -> ConfigView:
        """The configuration, read in one transaction; that of an unknown tenant is empty, at generation 0.

        Raises AUTHORITY_UNVERIFIABLE when SQL cannot be used.
        """
        try:
            rows = await self._reader.load(tenant, since=0, timeout=timeout)
        except StorageUnavailableError as error:
            raise ToolbelayError(
                ErrorReason.AUTHORITY_UNVERIFIABLE, f"the database could not be used ({error})"
            ) from error
        if rows is None:
            return ConfigView(0, (), (), ())
        tools = sorted(rows.tools, key=lambda tool: tool.tool_id)
        return ConfigView(rows.generation, tools, rows.policies, rows.routes)


def tool_line(tool: Tool) -> bytes:
    """The line of a tool, without its line end; description and schema are the exact bytes given."""
    members = [
        b'"toolset":' + _json(tool.toolset),
        b'"name":' + _json(tool.name),
        b'"description":' + tool.description,
        b'"input_schema":' + tool.input_schema,
    ]
    if tool.tags:
        members.append(b'"tags":' + _json(sorted(tool.tags)))
    hints = {
        "readOnlyHint": tool.hints.read_only,
        "destructiveHint": tool.hints.destructive,
        "idempotentHint": tool.hints.idempotent,
        "openWorldHint": tool.hints.open_world,
    }
    members.append(b'"annotations":' + _json(hints))
    if tool.requires:
        members.append(b'"requires":' + _json(sorted(tool.requires)))
    return b"{" + b",".join(members) + b"}"


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
