"""Taking a catalog: by difference, whole, in order."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import bm25s
import numpy as np
import pytest

from tests.support.rankable import catalog, ids, indexed, query, tool
from toolbelay.ranking.corpus import Corpus, build_corpus
from toolbelay.ranking.index import CatalogIndex
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.postings import K1, SHARED_WEIGHT, B
from toolbelay.ranking.query import read_query, vocabulary


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


def _by_word(corpus: Corpus) -> dict[str, tuple[float, float, dict[int, float]]]:
    """Word → IDF, distinction and weights by row, of the words that a tool has."""
    held = corpus.lexical.postings
    found = {}
    for word, number in held.vocabulary.items():
        span = slice(held.starts[number], held.starts[number + 1])
        if len(held.rows[span]):
            weights = dict(zip(held.rows[span].tolist(), held.weights[span].tolist(), strict=True))
            found[word] = (float(held.idf[number]), float(held.distinctions[number]), weights)
    return found


def test_equal_catalogs_give_equal_corpora_by_any_path() -> None:
    tools = catalog(*(tool(f"s{n % 5}/t_{n}", f"shared words here, own {n}", {f"p{n}": {}}) for n in range(40)))
    once = build_corpus(tools, None)
    stepwise = None
    for count in (5, 40, 17, 40):
        stepwise = build_corpus(dict(list(tools.items())[:count]), stepwise)
    assert stepwise is not None
    assert stepwise.documents == once.documents
    assert stepwise.own_texts == once.own_texts
    assert _by_word(stepwise) == _by_word(once)


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


def test_weights_are_those_of_bm25s() -> None:
    tools = catalog(*(tool(f"s{n % 5}/t_{n}", f"common own {n} of {n % 3} words " * (1 + n % 4)) for n in range(40)))
    corpus = build_corpus(tools, None)
    held = corpus.lexical.postings
    texts = [np.repeat(c.words, c.counts.astype(int)).tolist() for c in held.counted]
    plain = bm25s.BM25(k1=K1, b=B, method="lucene", idf_method="lucene", csc_backend="numpy")
    built = plain.build_index_from_ids(list(range(len(held.vocabulary))), texts, show_progress=False)
    assert (held.starts == built["indptr"]).all()
    assert (held.rows == built["indices"]).all()
    factors = np.concatenate([c.factors for c in held.counted])[
        np.argsort(np.concatenate([c.words for c in held.counted]), kind="stable")
    ]
    assert (factors == SHARED_WEIGHT).any()
    np.testing.assert_allclose(held.weights, built["data"] * factors, rtol=1e-6)


def test_words_that_no_tool_has_any_more_count_as_unknown() -> None:
    once = build_corpus(catalog(tool("s/plain"), tool("s/rare_word")), None)
    later = build_corpus(catalog(tool("s/plain"), tool("s/other")), once)
    assert "rare" in later.lexical.postings.vocabulary
    assert later.lexical.information("rare") == pytest.approx(later.lexical.information("never"))
    assert later.lexical.distinction("rare") == pytest.approx(later.lexical.distinction("never"))
    assert not later.lexical.scores(read_query("rare", vocabulary(RankingOptions()))).any()


def test_words_without_a_tool_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolbelay.ranking.postings.WORDS_TO_SPARE", 4)
    corpus = None
    for n in range(30):
        corpus = build_corpus(catalog(*(tool(f"s/{chr(97 + n % 26)}{'xyzw'[k]}q{n}") for k in range(3))), corpus)
    assert corpus is not None
    assert len(corpus.lexical.postings.vocabulary) < 40
