"""Rows to tools and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement

from toolbelay.catalog.model import Tool, ToolHints
from toolbelay.storage.models import ToolRow

# In the order of `to_tool`.
TOOL_COLUMNS: tuple[ColumnElement[Any], ...] = tuple(
    ToolRow.__table__.c[name]
    for name in (
        "changed_in",
        "tool_id",
        "toolset",
        "name",
        "exposed_name",
        "description",
        "input_schema",
        "fingerprint",
        "tags",
        "read_only",
        "destructive",
        "idempotent",
        "open_world",
        "requires",
    )
)


def to_tool(row: Any) -> Tool:
    """A tool from a row of `TOOL_COLUMNS`."""
    (_, tool_id, toolset, name, exposed, description, schema, digest, tags, *flags, requires) = row
    return Tool(
        tool_id=tool_id,
        toolset=toolset,
        name=name,
        exposed_name=exposed,
        description=bytes(description),
        input_schema=bytes(schema),
        fingerprint=bytes(digest),
        tags=labels(tags),
        hints=hints(*flags),
        requires=labels(requires),
    )


def to_row(tool: Tool, tenant_id: int, generation: int) -> dict[str, Any]:
    """The column values of a tool changed in `generation`."""
    return {
        "tenant_id": tenant_id,
        "tool_id": tool.tool_id,
        "toolset": tool.toolset,
        "name": tool.name,
        "exposed_name": tool.exposed_name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "fingerprint": tool.fingerprint,
        "tags": label_text(tool.tags),
        "requires": label_text(tool.requires),
        "read_only": tool.hints.read_only,
        "destructive": tool.hints.destructive,
        "idempotent": tool.hints.idempotent,
        "open_world": tool.hints.open_world,
        "changed_in": generation,
    }


def label_text(given: Iterable[str]) -> str:
    """Labels as they are stored."""
    return json.dumps(sorted(given), ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=4096)
def labels(text: str) -> frozenset[str]:
    """Labels from their stored text; tools of a toolset mostly share them, so they share one object."""
    return frozenset(json.loads(text))


@lru_cache(maxsize=16)
def hints(*flags: bool) -> ToolHints:
    """Hints in the order of their columns; one shared object for each of the sixteen combinations."""
    return ToolHints(*map(bool, flags))


def storable(text: str) -> bool:
    """Whether both databases can hold the text: no NUL, no lone surrogate."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
