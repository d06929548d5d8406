"""Small catalogs to rank."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolbelay.catalog.model import Tool
from toolbelay.ranking.index import CatalogIndex
from toolbelay.ranking.port import Ranking, RankQuery


def tool(
    tool_id: str, description: str = "", properties: Mapping[str, Any] | None = None, *, tags: Iterable[str] = ()
) -> Tool:
    """A tool as the catalog would hold it; its properties are its schema's."""
    toolset, _, name = tool_id.partition("/")
    schema = json.dumps({"type": "object", "properties": dict(properties or {})}).encode()
    text = json.dumps(description).encode()
    digest = hashlib.sha256(name.encode() + b"\0" + text + b"\0" + schema).digest()
    return Tool(tool_id, toolset, name, name[:64], text, schema, digest, frozenset(tags))


def catalog(*tools: Tool) -> dict[str, Tool]:
    return {t.tool_id: t for t in tools}


async def indexed(*tools: Tool, **given: Any) -> CatalogIndex:
    index = CatalogIndex(**given)
    await index.refresh(catalog(*tools))
    return index


def query(text: str, strategy: str = "keyword", **given: Any) -> RankQuery:
    """A stateless query over everything, unless told otherwise."""
    return RankQuery(text, strategy, **{"eligible": lambda _: True, "limit": 16, "sticky": False, **given})


def ids(ranking: Ranking) -> list[str]:
    return [match.tool_id for match in ranking.matches]
