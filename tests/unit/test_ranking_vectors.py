"""Vectors, hybrid ranking, and what happens without them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.rankable import catalog, ids, indexed, query, tool
from toolbelay.ranking.index import CatalogIndex
from toolbelay.ranking.static_table import encoded, is_number, split_words, static_table
from toolbelay.ranking.vectors import EmbeddingError, StaticEmbedder, Vectors, unit
from toolbelay.ranking.word_vectors import WordVectors

TOOLS = [
    tool("mail/send_email", "Send an email to a person"),
    tool("media/play_song", "Play a song"),
    tool("cinema/find_film", "Find a film to watch"),
    tool("disk/list_files", "List files of a directory"),
]


class Scripted(StaticEmbedder):
    """Static vectors of a remote kind, failing on demand."""

    local = False
    model = "scripted"

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []
        self.failing = False
        self.spoil: float | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(len(texts))
        if self.failing:
            raise EmbeddingError("down")
        vectors = self.embed_now(texts)
        return vectors if self.spoil is None else unit(np.full_like(vectors, self.spoil))


async def remote(embedder: Scripted) -> CatalogIndex:
    """An index whose vectors come from a remote embedder."""
    index = CatalogIndex(Remote(embedder))
    await index.refresh(catalog(*TOOLS))
    return index


class Remote:
    """`Scripted` behind the port only: nothing in the index may treat it as static."""

    local = False
    floor = 0.0

    def __init__(self, scripted: Scripted) -> None:
        self.scripted = scripted
        self.model = "remote"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return await self.scripted.embed(texts)


async def fetched(index: CatalogIndex) -> None:
    task = index._fetching
    assert task is not None
    await task


async def test_meaning_finds_what_words_do_not() -> None:
    index = await indexed(*TOOLS)
    for strategy in ("embedding", "hybrid"):
        ranking = await index.rank(query("which movie is on", strategy))
        assert ids(ranking)[0] == "cinema/find_film"
        assert ranking.strategy == strategy


async def test_an_unrelated_query_matches_nothing_by_vectors() -> None:
    index = await indexed(*TOOLS)
    assert (await index.rank(query("photosynthesis of algae", "embedding"))).matches == ()


def test_texts_without_a_vector_are_zero_not_nan() -> None:
    vectors = StaticEmbedder().embed_now(["", "\ud800", "song"])
    assert np.isfinite(vectors).all()
    assert not vectors[0].any()
    assert not vectors[1].any()
    assert np.linalg.norm(vectors[2]) == pytest.approx(1.0, abs=1e-6)


def test_a_batch_equals_its_texts_alone() -> None:
    embedder = StaticEmbedder()
    texts = [f"text number {n} about songs" for n in range(20)]
    together = embedder.embed_now(texts)
    assert all((embedder.embed_now([text])[0] == row).all() for text, row in zip(texts, together, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.0, 1e38, 1e-45])
def test_unit_is_finite_for_every_number(value: float) -> None:
    rows = unit(np.array([[value, 1.0], [value, value]], np.float32))
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) < 1.001).all()


async def test_readiness_does_not_wait_for_an_endpoint() -> None:
    scripted = Scripted()
    scripted.failing = True
    index = await remote(scripted)
    assert index.ready
    ranking = await index.rank(query("send an email", "hybrid"))
    assert (ids(ranking)[0], ranking.strategy, ranking.failed) == ("mail/send_email", "keyword", ("hybrid",))
    await index.aclose()


async def test_vectors_of_an_endpoint_are_used_once_there_and_fetched_once() -> None:
    scripted = Scripted()
    index = await remote(scripted)
    await fetched(index)
    assert scripted.calls == [len(TOOLS)]
    assert (await index.rank(query("which movie is on", "hybrid"))).strategy == "hybrid"
    scripted.calls.clear()
    added = tool("zoo/feed_lion", "Give meat to a lion")
    await index.refresh(catalog(*TOOLS, added))
    await fetched(index)
    assert scripted.calls == [1]  # the changed tool only
    await index.aclose()


async def test_a_failing_query_falls_to_keyword() -> None:
    scripted = Scripted()
    index = await remote(scripted)
    await fetched(index)
    scripted.failing = True
    for strategy in ("embedding", "hybrid"):
        ranking = await index.rank(query("send an email", strategy))
        assert (ranking.strategy, ranking.failed) == ("keyword", (strategy,))
    await index.aclose()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
async def test_vectors_that_are_no_numbers_never_rank(value: float) -> None:
    scripted = Scripted()
    index = await remote(scripted)
    await fetched(index)
    scripted.spoil = value
    ranking = await index.rank(query("send an email", "hybrid"))
    assert (ids(ranking), ranking.strategy) == (["mail/send_email"], "keyword")
    await index.aclose()


async def test_a_catalog_whose_vectors_are_nan_is_ranked_by_words() -> None:
    scripted = Scripted()
    scripted.spoil = float("nan")
    index = await remote(scripted)
    await fetched(index)
    scripted.spoil = None
    ranking = await index.rank(query("send an email", "hybrid"))
    assert ids(ranking) == ["mail/send_email"]
    assert all(np.isfinite(match.score) for match in ranking.matches)
    await index.aclose()


async def test_a_slow_embedder_ends_before_the_deadline() -> None:
    import asyncio

    class Hanging(Remote):
        async def embed(self, texts: Sequence[str]) -> Vectors:
            if len(texts) == 1:
                await asyncio.Event().wait()
            return await super().embed(texts)

    index = CatalogIndex(Hanging(Scripted()))
    await index.refresh(catalog(*TOOLS))
    await fetched(index)
    loop = asyncio.get_running_loop()
    ranking = await index.rank(query("send an email", "hybrid", deadline=loop.time() + 0.3))
    assert ranking.strategy == "keyword"
    await index.aclose()


async def test_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scripted = Scripted()
    index = await remote(scripted)
    await fetched(index)
    for outage in (True, True, False, True):
        scripted.failing = outage
        await index.rank(query("send an email", "hybrid"))
    said = [record.getMessage() for record in caplog.records]
    assert said == ["ranking strategy hybrid failed: EmbeddingError"] * 2
    await index.aclose()


@pytest.mark.parametrize(
    "text",
    [
        "create an invoice", "a  b", " a b", "a b ", " ", "", "tab\there", "line\nbreak\n\nhere", "\u2581a \u2581", "x\u2581y z",
        "naïve café", "请帮我 开票", "number 123456789012 in crm", "emoji 🎉 party", "a" * 3000,
    ],
)  # fmt: skip
def test_words_give_the_pieces_of_the_whole_text(text: str) -> None:
    by_word = [list(encoded(word)) for word in split_words(text)]
    assert [piece for pieces in by_word for piece in pieces] == list(encoded(text))
    space, digits = encoded("0")[0], [encoded(digit)[1] for digit in "0123456789"]
    for word, pieces in zip(split_words(text), by_word, strict=True):
        if is_number(word):
            assert pieces == [space, *(digits[int(digit)] for digit in word)]


@pytest.mark.parametrize(
    "text", ["create an invoice 0123456789 of 7", "12", "a  b", "x" * 100 + " 42", " ".join(f"w{n}" for n in range(9))]
)
def test_a_sum_does_not_depend_on_what_is_remembered(text: str) -> None:
    used, full = WordVectors(), WordVectors(capacity=3)
    for other in ("an invoice create", "7 of 9", "w1 w2 w3 w4", text):
        used.sum_of(other)
        full.sum_of(other)
        assert len(full) <= 3
    expected = WordVectors().sum_of(text)
    assert (used.sum_of(text) == expected).all()
    assert (full.sum_of(text) == expected).all()
    plain = static_table()[list(encoded(text))].astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(expected, plain, atol=1e-5)
