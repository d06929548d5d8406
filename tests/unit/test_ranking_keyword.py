"""The keyword strategy behind the port."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from toolbelay.catalog.model import Tool
from toolbelay.ranking.index import CatalogIndex
from toolbelay.ranking.port import Ranking, RankQuery


def tool(tool_id: str, description: str = "", properties: Mapping[str, Any] | None = None) -> Tool:
    toolset, _, name = tool_id.partition("/")
    schema = json.dumps({"type": "object", "properties": dict(properties or {})}).encode()
    text = json.dumps(description).encode()
    return Tool(tool_id, toolset, name, name, text, schema, hashlib.sha256(name.encode() + text + schema).digest())


async def ranked(tools: list[Tool], query: str, **given: Any) -> Ranking:
    index = CatalogIndex()
    await index.refresh({t.tool_id: t for t in tools})
    return await index.rank(RankQuery(query, "keyword", lambda _: True, limit=16, **given))


def ids(ranking: Ranking) -> list[str]:
    return [match.tool_id for match in ranking.matches]


@pytest.mark.parametrize("names", [["mail/send_email", "disk/list_files"], ["mail/send_email"]])
async def test_a_small_catalog_ranks_the_matching_tool_first(names: list[str]) -> None:
    ranking = await ranked([tool(n) for n in names], "email", threshold=0.05)
    assert ids(ranking) == ["mail/send_email"]
    assert ranking.strategy == "keyword"


async def test_a_word_in_half_of_the_catalog_still_ranks_its_tools() -> None:
    tools = [tool("a/weather_now"), tool("a/weather_week"), tool("a/send_email"), tool("a/list_files")]
    assert sorted(ids(await ranked(tools, "weather"))) == ["a/weather_now", "a/weather_week"]
