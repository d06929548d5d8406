"""What a text asks for beside the tools at hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.rankable import catalog, ids, indexed, query, tool
from toolbelay.catalog.model import Tool
from toolbelay.ranking.corpus import Corpus, build_corpus
from toolbelay.ranking.novelty import News, news
from toolbelay.ranking.options import RankingOptions
from toolbelay.ranking.query import read_query, vocabulary

OPTIONS = RankingOptions(synonyms=("beam => lamp",), admission="toolsets")
KITCHEN = [
    tool(f"kitchen/{name}_oven", f"{name} the oven of the kitchen") for name in ("heat", "clean", "lock", "open")
]
LIGHTS = [tool(f"lights/{name}_lamp", f"{name} a lamp of the house") for name in ("dim", "paint", "replace", "blink")]
MANY = [tool(f"s{n}/thing_{n}", f"thing {n} of the house") for n in range(12)]


def _corpus(*tools: Tool) -> Corpus:
    return build_corpus(catalog(*tools), None)


def _news(corpus: Corpus, text: str, *at_hand: str) -> News:
    mask = np.zeros(len(corpus), np.bool_)
    mask[[corpus.row_of[tool_id] for tool_id in at_hand]] = True
    return news(corpus.lexical, read_query(text, vocabulary(OPTIONS)), mask)


def test_only_words_that_no_tool_at_hand_has_are_new() -> None:
    corpus = _corpus(*KITCHEN, *LIGHTS, *MANY)
    new = _news(corpus, "heat the oven and dim the lamp", "kitchen/heat_oven")
    assert new.words[corpus.row_of["kitchen/heat_oven"]] == 0
    assert new.words[corpus.row_of["kitchen/clean_oven"]] == 0
    assert new.words[corpus.row_of["lights/dim_lamp"]] > new.words[corpus.row_of["lights/blink_lamp"]] > 0


def test_a_synonym_is_as_new_as_its_word_at_most() -> None:
    corpus = _corpus(*KITCHEN, *LIGHTS, *MANY)
    row = corpus.row_of["lights/dim_lamp"]
    assert 0 < _news(corpus, "the beam").words[row] < _news(corpus, "the lamp").words[row]
    assert _news(corpus, "the beam", "lights/dim_lamp").words[row] == 0


def test_a_word_of_many_toolsets_is_little_news() -> None:
    corpus = _corpus(*KITCHEN, *LIGHTS, *MANY)
    assert _news(corpus, "house").asked < _news(corpus, "lamp").asked


@pytest.mark.parametrize("size", [2, 12])
def test_news_is_measured_in_words_on_every_catalog(size: int) -> None:
    corpus = _corpus(*LIGHTS, *MANY[:size])
    new = _news(corpus, "lamp")
    assert 0.5 < new.words.max() <= new.asked <= 1.01


def test_a_text_of_unknown_words_is_not_known() -> None:
    new = _news(_corpus(*LIGHTS), "ランプ")
    assert not new.known
    assert not new.words.any()


async def test_a_request_beside_the_session_brings_its_toolset_and_nothing_else_does() -> None:
    index = await indexed(*KITCHEN, *LIGHTS, *MANY)
    stored = tuple(t.tool_id for t in KITCHEN)

    async def added(text: str) -> set[str]:
        asked = query(text, "hybrid", sticky=True, stored=stored, options=OPTIONS, limit=64)
        return {tool_id.partition("/")[0] for tool_id in ids(await index.rank(asked)) if tool_id not in stored}

    assert await added("Please heat the oven, then dim the lamp") == {"lights"}
    assert await added("Please heat the oven and open it") == set()
    assert await added("Could you check whether the oven is clean, please?") == set()


async def test_one_by_one_what_the_session_lacks_comes_first() -> None:
    pair = [tool("a/find_red_lamp", "find a red lamp"), tool("b/paint_blue_lamp", "paint a blue lamp")]
    index = await indexed(*pair, *MANY)

    async def first_but(stored: str, weight: float) -> str:
        options = RankingOptions(news_weight=weight, toolset_weight=0, called_weight=0)
        asked = query("find a red lamp, blue lamp", sticky=True, stored=(stored,), called=(stored,), options=options)
        return ids(await index.rank(asked))[0]

    assert await first_but("a/find_red_lamp", 0) == "a/find_red_lamp"
    assert await first_but("a/find_red_lamp", 10) == "b/paint_blue_lamp"
