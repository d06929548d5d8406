"""The keyword strategy behind the port."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations

import pytest

from tests.support.rankable import catalog, ids, indexed, query, tool
from toolbelay.ranking.index import CatalogIndex


@pytest.mark.parametrize("names", [["mail/send_email", "disk/list_files"], ["mail/send_email"]])
async def test_a_small_catalog_ranks_the_matching_tool_first(names: list[str]) -> None:
    index = await indexed(*map(tool, names))
    for sticky in (False, True):
        ranking = await index.rank(query("email", threshold=0.05, sticky=sticky))
        assert ids(ranking) == ["mail/send_email"]
        assert ranking.strategy == "keyword"
        assert ranking.failed == ()


@pytest.mark.parametrize("strategy", ["keyword", "hybrid"])
async def test_a_word_in_half_of_the_catalog_still_ranks_its_tools(strategy: str) -> None:
    index = await indexed(tool("a/weather_now"), tool("b/weather_week"), tool("c/send_email"), tool("d/list_files"))
    ranking = await index.rank(query("weather", strategy))
    assert sorted(ids(ranking)[:2]) == ["a/weather_now", "b/weather_week"]
    assert min(m.score for m in ranking.matches[:2]) > 0.1


async def test_a_word_in_every_tool_still_ranks() -> None:
    index = await indexed(*(tool(f"s/weather_{n}") for n in "abc"))
    assert len((await index.rank(query("weather"))).matches) == 3


async def test_scores_mean_the_same_on_every_catalog_size() -> None:
    """The best tool's score for a query of its two words, among 2 and among 2,000 tools."""
    target = tool("mail/send_email", "Send an email")
    few = await indexed(target, tool("x/other"))
    many = await indexed(target, *(tool(f"t{n}/unrelated_{n}", f"does thing {n}") for n in range(2000)))
    scores = [(await i.rank(query("send email"))).matches[0].score for i in (few, many)]
    assert scores[0] == pytest.approx(scores[1], rel=0.35)
    assert all(0 < score <= 1 for score in scores)


@pytest.mark.parametrize("text", ["", "   ", "the of and", "\ud800", "🙂", "\x00", "hi", "zzzz qqqq", "!" * 10_000])
async def test_nothing_to_rank_by_matches_nothing(text: str) -> None:
    index = await indexed(tool("mail/send_email"), tool("disk/list_files"))
    for strategy in ("keyword", "embedding", "hybrid"):
        ranking = await index.rank(query(text, strategy, sticky=True))
        assert ranking.matches == ()
        assert ranking.strategy == strategy


async def test_an_empty_catalog_ranks_nothing() -> None:
    index = await indexed()
    for strategy in ("keyword", "embedding", "hybrid"):
        ranking = await index.rank(query("send email", strategy, sticky=True))
        assert (ranking.matches, ranking.strategy) == ((), strategy)


async def test_a_catalog_without_words() -> None:
    index = await indexed(tool("s/---"), tool("s/___"))
    assert (await index.rank(query("send email"))).matches == ()


async def test_an_index_without_a_catalog_says_that_nothing_ranked() -> None:
    index = CatalogIndex()
    assert not index.ready
    ranking = await index.rank(query("email", "hybrid"))
    assert (ranking.matches, ranking.strategy, ranking.failed) == ((), "", ("hybrid",))


async def test_a_query_without_spaces_and_a_long_one() -> None:
    index = await indexed(tool("mail/send_email"))
    assert (await index.rank(query("x" * 200_000, "hybrid"))).matches == ()
    long = "send email " + "lorem ipsum " * 90_000
    assert ids(await index.rank(query(long, "hybrid"))) == ["mail/send_email"]


async def test_parameters_tags_and_toolset_are_found() -> None:
    index = await indexed(
        tool("weather/now", properties={"postalCode": {"type": "string", "description": "where to look"}}),
        tool("billing/refund", tags=["finance"]),
    )
    assert ids(await index.rank(query("postal code"))) == ["weather/now"]
    assert ids(await index.rank(query("finance"))) == ["billing/refund"]
    assert ids(await index.rank(query("billing"))) == ["billing/refund"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("天気予報", "明日の天気を教えて"),
        ("查询天气", "今天天气怎么样"),
        ("hava_durumu_İstanbul", "istanbul HAVA durumu"),
        ("fırın_ısıt", "FIRIN ISIT"),
        ("launch_🚀", "🚀"),
    ],
)
async def test_queries_of_other_scripts_find_their_tool(name: str, text: str) -> None:
    index = await indexed(tool(f"s/{name}"), tool("t/send_email"), tool("u/list_files"))
    for strategy in ("keyword", "hybrid"):
        assert ids(await index.rank(query(text, strategy)))[0] == f"s/{name}"


async def test_ties_are_broken_by_tool_id_whatever_the_order_of_rows() -> None:
    tools = [tool(f"s{n}/report") for n in ("b", "a", "ö", "1")]
    answers = set()
    for order in permutations(tools):
        index = CatalogIndex()
        await index.refresh(catalog(*order))
        answers.add(tuple(ids(await index.rank(query("report", "hybrid")))))
    assert answers == {("sa/report", "sb/report", "sö/report", "s1/report")}  # s1 is two words: a longer tool


SCRIPT = """
import asyncio
from tests.support.rankable import ids, indexed, query, tool
async def main():
    index = await indexed(*(tool(f"s{n % 7}/get_{w}_{n}", f"{w} and more {w}s by name")
                            for n in range(60) for w in ["report", "user", "file"]))
    ranking = await index.rank(query("get user reports and files", "hybrid", sticky=True, limit=64))
    print([(m.tool_id, m.score) for m in ranking.matches])
asyncio.run(main())
"""


def test_no_hash_seed_changes_the_order() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "service:."},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("(") > 10


async def test_only_eligible_tools_are_returned_however_few_they_are() -> None:
    tools = [tool(f"s{n}/report_{n}") for n in range(3000)]
    index = await indexed(*tools)
    allowed = {"s2999/report_2999", "s17/report_17"}
    for sticky in (False, True):
        ranking = await index.rank(query("report", limit=2, eligible=allowed.__contains__, sticky=sticky))
        assert set(ids(ranking)) == allowed


async def test_threshold_and_preserve_count() -> None:
    index = await indexed(tool("a/send_email"), tool("b/email_list_archive_search"), tool("c/other"))
    everything = await index.rank(query("send email"))
    bar = (everything.matches[0].score + everything.matches[1].score) / 2
    assert ids(await index.rank(query("send email", threshold=bar))) == ["a/send_email"]
    assert len((await index.rank(query("send email", threshold=bar, preserve=2))).matches) == 2
    assert ids(await index.rank(query("send email", threshold=2.0, preserve=1))) == ["a/send_email"]
    assert ids(await index.rank(query("send email", threshold=2.0))) == []
