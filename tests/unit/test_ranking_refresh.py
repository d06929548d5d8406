"""Taking a catalog: by difference, whole, in order."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.support.rankable import catalog, ids, indexed, query, tool
from toolbelay.ranking.corpus import build_corpus
from toolbelay.ranking.index import CatalogIndex


async def test_a_removed_tool_is_gone_and_an_added_one_there() -> None:
    index = await indexed(tool("a/send_email"), tool("b/email_archive"))
    await index.refresh(catalog(tool("b/email_archive"), tool("c/email_search")))
    assert sorted(ids(await index.rank(query("email")))) == ["b/email_archive", "c/email_search"]


async def test_a_changed_definition_is_read_again() -> None:
    index = await indexed(tool("a/act", "Send an email"))
    await index.refresh(catalog(tool("a/act", "Play a song")))
    assert ids(await index.rank(query("email"))) == []
    assert ids(await index.rank(query("song"))) == ["a/act"]


async def test_changed_tags_are_read_again_although_the_fingerprint_stays() -> None:
    index = await indexed(tool("a/act", tags=["finance"]))
    await index.refresh(catalog(tool("a/act", tags=["music"])))
    assert ids(await index.rank(query("music"))) == ["a/act"]
    assert ids(await index.rank(query("finance"))) == []


async def test_the_last_catalog_wins() -> None:
    index = CatalogIndex()
    catalogs = [catalog(tool(f"s/report_{n}")) for n in range(20)]
    await asyncio.gather(*(index.refresh(c) for c in catalogs))
    assert ids(await index.rank(query("report"))) == ["s/report_19"]


async def test_the_loop_turns_while_a_catalog_is_taken() -> None:
    index = CatalogIndex()
    work = asyncio.create_task(index.refresh(catalog(*(tool(f"s{n}/t_{n}", "text " * 30) for n in range(1500)))))
    turns = 0
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10


def test_equal_catalogs_give_equal_corpora_by_any_path() -> None:
    tools = catalog(*(tool(f"s{n % 5}/t_{n}", f"shared words here, own {n}", {f"p{n}": {}}) for n in range(40)))
    once = build_corpus(tools, None)
    stepwise = None
    for count in (5, 40, 17, 40):
        stepwise = build_corpus(dict(list(tools.items())[:count]), stepwise)
    assert stepwise is not None
    assert stepwise.documents == once.documents
    assert stepwise.own_texts == once.own_texts
    assert stepwise.lexical.vocabulary == once.lexical.vocabulary
    assert (stepwise.lexical.weights == once.lexical.weights).all()


async def test_definitions_that_cannot_be_read_are_ranked_by_name() -> None:
    base = tool("s/send_email", "text")
    broken = [
        replace(base, tool_id="s/send_email", description=b"\xff", input_schema=b"{"),
        replace(base, tool_id="t/send_email", description=b"null", input_schema=b"[1, 2]"),
        replace(base, tool_id="u/send_email", description=b'"' + b"x" * 60_000 + b'"', input_schema=b"[" * 100_000),
        replace(base, tool_id="v/send_email", input_schema=b'{"properties": {"a": 1, "b": {"properties": [3]}}}'),
    ]
    index = await indexed(*broken)
    assert len(ids(await index.rank(query("send email")))) == 4
