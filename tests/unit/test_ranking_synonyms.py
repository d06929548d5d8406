"""Synonym rules, and what a query becomes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.support.rankable import ids, indexed, query, tool
from toolbelay.ranking.default_synonyms import DEFAULT_SYNONYMS
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import read_query, vocabulary
from toolbelay.ranking.synonyms import synonyms

PLAIN = RankingOptions(default_synonyms=False)


def options(*rules: str) -> RankingOptions:
    return RankingOptions(default_synonyms=False, synonyms=rules)


async def found(text: str, *rules: str) -> list[str]:
    index = await indexed(tool("car/vehicle_status"), tool("mail/send_letter"), tool("fs/carpet_list"))
    return ids(await index.rank(query(text, options=options(*rules))))


async def test_without_a_rule_nothing_is_found() -> None:
    assert await found("my automobile") == []


async def test_two_way() -> None:
    assert await found("my automobile", "automobile, vehicle") == ["car/vehicle_status"]
    index = await indexed(tool("x/automobile"))
    assert ids(await index.rank(query("vehicle", options=options("automobile, vehicle")))) == ["x/automobile"]


async def test_one_way() -> None:
    assert await found("my automobile", "automobile => vehicle") == ["car/vehicle_status"]
    index = await indexed(tool("x/automobile"))
    assert ids(await index.rank(query("vehicle", options=options("automobile => vehicle")))) == []


async def test_phrases_match_on_word_boundaries() -> None:
    rule = "snail post => letter"
    assert await found("by snail post please", rule) == ["mail/send_letter"]
    assert await found("snail, later the post", rule) == []
    assert await found("the snailpost", rule) == []


async def test_a_synonym_never_outdoes_the_word_itself() -> None:
    index = await indexed(tool("a/vehicle"), tool("b/automobile"), tool("c/other"))
    ranking = await index.rank(query("automobile", options=options("automobile, vehicle")))
    assert ids(ranking) == ["b/automobile", "a/vehicle"]


async def test_a_tool_with_both_words_counts_once() -> None:
    index = await indexed(tool("a/automobile_vehicle"), tool("b/automobile_station"), tool("c/other_thing"))
    with_rule = await index.rank(query("automobile", options=options("automobile, vehicle")))
    scores = {m.tool_id: m.score for m in with_rule.matches}
    assert scores["a/automobile_vehicle"] == pytest.approx(scores["b/automobile_station"])


async def test_stop_words_of_the_route() -> None:
    index = await indexed(tool("a/acme_report"), tool("b/acme_invoice"))
    given = RankingOptions(stop_words=("Acme",))
    assert ids(await index.rank(query("acme invoice", options=given))) == ["b/acme_invoice"]


@pytest.mark.parametrize("rule", ["alone", "", " , ", "=> b", "a =>", "a => ,"])
def test_rules_that_say_nothing_are_refused(rule: str) -> None:
    with pytest.raises(ValidationError):
        RankingOptions(synonyms=(rule,))


def test_the_default_table_reads() -> None:
    table = synonyms(DEFAULT_SYNONYMS)
    assert ("mean",) in table[("averag",)]


def test_quoted_content_weighs_little() -> None:
    read = read_query("tweet 'Managed to archive important files'", vocabulary(PLAIN))
    assert read.weights["tweet"] == 1.0
    assert 0 < read.weights["archiv"] < 1.0


def test_a_query_that_is_all_quotation_counts_in_full() -> None:
    assert read_query('"archive files"', vocabulary(PLAIN)).weights["archiv"] == 1.0


def test_an_apostrophe_quotes_nothing() -> None:
    read = read_query("what's Anna's address and it's zip code", vocabulary(PLAIN))
    assert read.weights["address"] == 1.0
