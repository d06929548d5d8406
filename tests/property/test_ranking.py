"""Ranking never raises, and answers in order, in range, and only what is eligible, whatever the text."""

from __future__ import annotations

import asyncio
import functools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.rankable import indexed, tool
from toolbelay.ranking.index import CatalogIndex
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.port import Ranking, RankQuery
from toolbelay.ranking.text import bounded, pieces, tokens, words

WORDS = [
    "send",
    "email",
    "list",
    "files",
    "weather",
    "天気",
    "İstanbul",
    "🚀",
    "getUserById",
    "'quoted words'",
    "and then",
]
TOOLS = [
    tool(f"{toolset}/{verb}_{noun}", f"{verb} the {noun}", {"id": {"description": f"of the {noun}"}})
    for toolset in ("a", "b", "c")
    for verb in ("send", "list", "get")
    for noun in ("email", "files", "天気", "user")
]
TEXTS = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=12).map(". ".join),
    st.text(
        alphabet=st.characters(categories=("Cs", "Mn", "So", "Lo", "Lu", "Nd", "Po"), include_characters="'\""),
        max_size=200,
    ),
)
IDS = st.lists(st.sampled_from([t.tool_id for t in TOOLS] + ["gone/tool", "\ud800/x"]), max_size=12).map(tuple)


@st.composite
def queries(draw: st.DrawFn) -> tuple[RankQuery, frozenset[str]]:
    allowed = frozenset(draw(st.sets(st.sampled_from([t.tool_id for t in TOOLS]))))
    query = RankQuery(
        draw(TEXTS),
        draw(st.sampled_from(["keyword", "embedding", "hybrid", "rewrite", "unknown"])),
        allowed.__contains__,
        draw(st.integers(0, 64)),
        threshold=draw(st.sampled_from([0.0, 0.2, 1.0, -1.0])),
        preserve=draw(st.integers(0, 5)),
        called=draw(IDS),
        stored=draw(IDS),
        sticky=draw(st.booleans()),
        chooses=draw(st.booleans()),
        options=RankingOptions(
            admission=draw(st.sampled_from(["each", "toolsets"])),
            vector_weight=draw(st.sampled_from([0.0, 0.3, 10.0])),
            toolset_weight=draw(st.sampled_from([0.0, 1.0, 10.0])),
            supply_weight=draw(st.sampled_from([0.0, 2.0, 10.0])),
            news_weight=draw(st.sampled_from([0.0, 0.2, 10.0])),
        ),
    )
    return query, allowed


@functools.cache
def _index() -> CatalogIndex:
    return asyncio.run(indexed(*TOOLS))


async def _twice(query: RankQuery) -> tuple[Ranking, Ranking]:
    index = _index()
    return await index.rank(query), await index.rank(query)


@settings(max_examples=120, deadline=None)
@given(queries())
def test_an_answer_is_ordered_bounded_eligible_and_the_same_again(
    given_query: tuple[RankQuery, frozenset[str]],
) -> None:
    query, allowed = given_query
    _index()
    ranking, again = asyncio.run(_twice(query))
    scores = [match.score for match in ranking.matches]
    ids = [match.tool_id for match in ranking.matches]
    assert ranking == again
    assert ranking.strategy in {"keyword", "embedding", "hybrid"}
    assert len(ids) == len(set(ids)) <= query.limit
    assert set(ids) <= allowed
    assert all(math.isfinite(score) and 0 < score <= 1 + 1e-9 for score in scores)
    assert scores == sorted(scores, reverse=True)
    assert all(score >= query.threshold for score in scores[query.preserve :])


@settings(max_examples=100, deadline=None)
@given(queries(), st.sampled_from(["keyword", "embedding", "hybrid"]))
def test_tools_of_a_full_session_score_as_among_all(
    given_query: tuple[RankQuery, frozenset[str]], strategy: str
) -> None:
    query, allowed = given_query
    query = replace(query, strategy=strategy, limit=64, threshold=0.0, sticky=False, chooses=True)
    _index()
    among_all = asyncio.run(_twice(query))[0]
    alone, again = asyncio.run(_twice(replace(query, chooses=False)))
    expected = {match.tool_id: match.score for match in among_all.matches if match.tool_id in query.stored}
    assert alone == again
    assert {match.tool_id: match.score for match in alone.matches} == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert {match.tool_id for match in alone.matches} <= allowed


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_words_never_fail_and_are_folded(text: str) -> None:
    found = words(bounded(text))
    assert all(word and word == word.casefold() for word in found)
    assert all(pieces(token) == pieces(token) for token in tokens(text))
    assert len(bounded(text).encode()) <= 2 * 8 * 1024 + 1
