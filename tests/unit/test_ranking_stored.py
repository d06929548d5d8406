"""A session that stays as it is: its tools score as they do among all, whatever is remembered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from bench import world
from tests.support.rankable import tool
from toolbelay.catalog.model import Tool
from toolbelay.ranking import stored_rows
from toolbelay.ranking.corpus import build_corpus
from toolbelay.ranking.found_rows import FOUND_ROWS, FoundMemo
from toolbelay.ranking.index import CatalogIndex
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.port import RankQuery
from toolbelay.ranking.query import TEXTS as READ
from toolbelay.ranking.query import TOKENS, read_query, vocabulary
from toolbelay.ranking.stored_rows import STORED_ROWS, StoredRows
from toolbelay.ranking.vectors import StaticEmbedder
from toolbelay.ranking.word_vectors import WORDS

TOOLS: dict[str, Tool] = {
    world.tool_id(line): tool(world.tool_id(line), line["description"], line["input_schema"]["properties"])
    for line in world.catalog(200)
}
STORED = tuple(islice(TOOLS, 30, 46))
QUOTED = '"create the invoice" and mail it'
TEXTS = [
    *islice(world.queries(1), 40),
    "get rid of the invoice and look for it",
    QUOTED,
    "rechnung schicken",
    "",
    "zzz",
]
OPTIONS = RankingOptions()


def stored_query(text: str, strategy: str = "hybrid", **given: Any) -> RankQuery:
    asked = {"eligible": lambda _: True, "limit": 200, "stored": STORED, "chooses": False, **given}
    return RankQuery(text, strategy, **asked)


@pytest.mark.parametrize("strategy", ["keyword", "embedding", "hybrid"])
async def test_tools_of_a_session_score_as_among_all(strategy: str) -> None:
    index = CatalogIndex()
    await index.refresh(TOOLS)
    asked: list[str] = []

    def eligible(tool_id: str) -> bool:
        asked.append(tool_id)
        return tool_id != STORED[0]

    for text in TEXTS * 2:
        among_all = await index.rank(RankQuery(text, strategy, eligible, 200, sticky=False))
        expected = {s.tool_id: s.score for s in among_all.matches if s.tool_id in STORED}
        asked.clear()
        ranking = await index.rank(stored_query(text, strategy, eligible=eligible))
        assert ranking.strategy == strategy
        assert set(asked) <= set(STORED)
        assert {s.tool_id: s.score for s in ranking.matches} == pytest.approx(expected, rel=1e-5)
        assert [s.score for s in ranking.matches] == sorted((s.score for s in ranking.matches), reverse=True)


async def test_scores_do_not_depend_on_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "MAX_ROWS", 20)
    used = CatalogIndex()
    await used.refresh(TOOLS)
    first = [await used.rank(stored_query(text)) for text in TEXTS]
    for start in range(0, 180, 7):
        await used.rank(stored_query(TEXTS[0], stored=tuple(TOOLS)[start : start + 16]))
    again = [await used.rank(stored_query(text)) for text in TEXTS]
    fresh = CatalogIndex()
    await fresh.refresh(TOOLS)
    assert again == first == [await fresh.rank(stored_query(text)) for text in reversed(TEXTS)][::-1]


async def test_the_limit_threshold_and_preserve_count_hold_for_a_session_too() -> None:
    index = CatalogIndex()
    await index.refresh(TOOLS)
    text = "create or merge an order, a customer's ticket or a message"
    everything = (await index.rank(stored_query(text))).matches
    assert len(everything) > 5
    few = await index.rank(stored_query(text, limit=3))
    assert few.matches == everything[:3]
    middle = everything[len(everything) // 2].score
    reaching = await index.rank(stored_query(text, threshold=middle))
    assert reaching.matches == tuple(s for s in everything if s.score >= middle)
    kept = await index.rank(stored_query(text, threshold=2.0, preserve=2))
    assert kept.matches == everything[:2]


async def test_rows_are_remembered_by_catalog() -> None:
    index = CatalogIndex()
    for tools in (TOOLS, {**TOOLS, "new/one": tool("new/one", "an invoice")}):
        await index.refresh(tools)
        query = stored_query("invoice", "keyword", stored=("new/one",))
        found = [scored.tool_id for scored in (await index.rank(query)).matches]
        assert found == (["new/one"] if "new/one" in tools else [])
    changed = replace(tool("new/one", "a bicycle"), fingerprint=bytes(32))
    await index.refresh({**TOOLS, "new/one": changed})
    for strategy in ("keyword", "hybrid"):
        before = STORED_ROWS.hits, STORED_ROWS.misses
        ranking = await index.rank(stored_query("bicycle", strategy, stored=("new/one",)))
        assert len(ranking.matches) == 1
        assert (STORED_ROWS.hits - before[0]) + (STORED_ROWS.misses - before[1]) == 1
    assert STORED_ROWS.hits > before[0]


def test_rows_are_bounded_and_what_is_asked_for_is_answered_all_the_same() -> None:
    corpus = build_corpus(TOOLS, None)
    table = np.asfortranarray(StaticEmbedder().embed_now(corpus.own_texts))
    memory = StoredRows(corpus.lexical, table, capacity=10)
    for rows in ([3], [1, 2, 3, 4], list(range(7, 15)), list(range(30)), [3, 29], [5, 3, 5]):
        assert memory.words(rows) == [corpus.lexical.words_of(row) for row in rows]
        assert (memory.vectors(rows) == table[rows]).all()
        assert (memory.vectors(rows) == table[rows]).all()
        assert len(memory) <= 10
    with pytest.raises(LookupError):
        StoredRows(corpus.lexical, None).vectors([1])


def test_words_of_a_tool_weigh_what_the_catalog_says() -> None:
    corpus = build_corpus(TOOLS, None)
    for text in ("invoice", "create", "nothing"):
        read = read_query(text, vocabulary(RankingOptions(default_synonyms=False)))
        by_row = corpus.lexical.scores(read)
        some = [corpus.lexical.words_of(row) for row in range(len(corpus))]
        np.testing.assert_allclose(corpus.lexical.shares(read, some), by_row, rtol=1e-6)


def test_found_rows_are_remembered_by_word_weight_and_synonyms() -> None:
    corpus = build_corpus(TOOLS, None)
    said = read_query("create", vocabulary(OPTIONS))
    fewer = read_query("create", vocabulary(RankingOptions(default_synonyms=False, synonyms=("create => cancel",))))
    quoted = read_query('send "create"', vocabulary(OPTIONS))
    expected = {}
    for read in (said, fewer, quoted):  # each from an index that remembers nothing
        lexical = build_corpus(TOOLS, None).lexical
        expected[id(read)] = (lexical.scores(read), lexical.answers(read, "creat"))
    before = FOUND_ROWS.hits, FOUND_ROWS.misses
    for read in (said, fewer, quoted, said, quoted, fewer):
        scores, (rows, answers) = expected[id(read)]
        assert (corpus.lexical.scores(read) == scores).all()
        found = corpus.lexical.answers(read, "creat")
        assert (found[0] == rows).all()
        assert (found[1] == answers).all()
    assert FOUND_ROWS.misses - before[1] == len(corpus.lexical._memo)
    assert FOUND_ROWS.hits - before[0] == len(corpus.lexical._memo)
    assert not len(build_corpus(TOOLS, corpus).lexical._memo)


def test_found_rows_are_bounded() -> None:
    memo = FoundMemo(capacity=1_000)
    for number in range(100):
        memo.put(number, (np.arange(100, dtype=np.int32), np.ones(100, np.float32)))
        assert 1 <= len(memo) <= 6
    memo.put("large", (np.arange(500, dtype=np.int32), np.ones(500, np.float32)))
    assert memo.get("large") is None
    assert memo.get(99) is not None


def test_texts_and_tokens_are_remembered_by_vocabulary() -> None:
    other = vocabulary(RankingOptions(stop_words=("invoice",)))
    text = "send the invoice of test_texts_and_tokens"
    before = READ.misses, TOKENS.misses
    assert "invoic" in read_query(text, vocabulary(OPTIONS)).weights
    assert "invoic" not in read_query(text, other).weights
    assert read_query(text, other) is read_query(text, other)
    assert READ.misses - before[0] == 2
    assert TOKENS.misses - before[1] >= 4
    long = text + " " * 600
    assert read_query(long, other) is not read_query(long, other)  # too long to keep
    assert read_query(long, other) == read_query(text, other)


def test_what_is_read_once_is_not_changed_by_reading_on() -> None:
    words = vocabulary(RankingOptions(synonyms=("tweet => post, message", "tweet this => publish", "a b => post")))
    once = read_query("tweet the post", words)
    for text in ("tweet this", "tweet", "tweet message, tweet this post"):
        read_query(text, words)
    assert once == read_query("tweet the post ", words)
    assert read_query("tweet", words).alternatives["tweet"].keys() >= {"post", "messag"}
    both = read_query("tweet this message", words).alternatives["tweet"]
    assert {"post", "publish"} <= both.keys()
    assert "messag" not in both


async def test_words_of_queries_are_remembered_and_counted() -> None:
    embedder = StaticEmbedder()
    before = WORDS.hits, WORDS.misses
    await embedder.embed(["send invoice 17"])
    await embedder.embed(["send mail 18"])
    assert (WORDS.hits - before[0], WORDS.misses - before[1]) == (3, 3)  # a number is read digit by digit
    assert len(WORDS) >= 3


def test_many_indexes_on_many_loops_agree() -> None:
    async def scores() -> object:
        index = CatalogIndex()
        await index.refresh(TOOLS)
        return [await index.rank(stored_query(text)) for text in TEXTS[:5]]

    assert asyncio.run(scores()) == asyncio.run(scores())
