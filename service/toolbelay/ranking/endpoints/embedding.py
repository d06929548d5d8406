"""Vectors from an OpenAI-compatible `/embeddings` endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np

from toolbelay.ranking.endpoints.http import EndpointError, open_client, post_json
from toolbelay.ranking.vectors import EmbeddingError, Vectors, unit

MAX_INPUTS = 64  # texts per call
MAX_TOKENS = 480  # per text, estimated from above: models refuse more than 512
MAX_DIMENSIONS = 8192
MAX_ANSWER_BYTES = 32 * 1024 * 1024
TIMEOUT_SECONDS = 10.0
TOO_LONG = frozenset({400, 413, 422})  # what endpoints answer to a text over their limit
LEAST_TOKENS = 60  # texts are not cut below this


class EmbeddingEndpoint:
    """An `Embedder`. Shared by tenants; holds no text after a call."""

    floor = 0.0  # models differ: what their unrelated texts score is the route's threshold to set
    local = False

    def __init__(self, url: str, model: str, api_key: str = "", *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.model = f"{model}@{url}"
        self._name = model
        self._client: httpx.AsyncClient = open_client(url, api_key, timeout)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`. A text is cut to the model's window; one refused all the same is cut again."""
        found = [await self._batch(texts[start : start + MAX_INPUTS]) for start in range(0, len(texts), MAX_INPUTS)]
        if not found:
            return np.zeros((0, 0), np.float32)
        if len({rows.shape[1] for rows in found}) != 1:
            raise EmbeddingError("the endpoint's vectors differ in length")
        return np.concatenate(found)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _batch(self, texts: Sequence[str]) -> Vectors:
        tokens = MAX_TOKENS
        while True:
            cut_texts = [cut(text, tokens) or " " for text in texts]
            body = {"model": self._name, "input": cut_texts, "encoding_format": "float"}
            try:
                answer = await post_json(self._client, "embeddings", body, MAX_ANSWER_BYTES)
            except EndpointError as error:
                tokens //= 2
                if error.status in TOO_LONG and tokens >= LEAST_TOKENS:
                    continue
                raise EmbeddingError(f"the embeddings endpoint failed: {error}") from None
            return _vectors(answer, len(texts))


def cut(text: str, tokens: int) -> str:
    """The text's beginning, of at most so many tokens whatever the tokenizer's habits.

    A token is taken to be three bytes of ASCII text, a character of any other script, and never more than
    a word: English runs at four bytes.
    """
    text = text.encode("utf-8", "ignore").decode()
    if len(text) * 3 <= tokens:
        return text
    cost = 0.0
    for place, character in enumerate(text):
        cost += 1 / 3 if character.isascii() else len(character.encode()) / 2
        if cost > tokens:
            return text[:place]
    return text


def _vectors(answer: dict[str, Any], wanted: int) -> Vectors:
    data = answer.get("data")
    if not isinstance(data, list) or len(data) != wanted:
        raise EmbeddingError("the endpoint answered with another number of vectors")
    rows: list[Any] = [None] * wanted
    for place, item in enumerate(data):
        index = item.get("index", place) if isinstance(item, dict) else None
        if not isinstance(index, int) or not 0 <= index < wanted or rows[index] is not None:
            raise EmbeddingError("the endpoint's vectors have no order")
        rows[index] = item.get("embedding")
    try:
        vectors = np.array(rows, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise EmbeddingError("the endpoint's vectors are no numbers") from None
    if vectors.ndim != 2 or not 0 < vectors.shape[1] <= MAX_DIMENSIONS:
        raise EmbeddingError("the endpoint's vectors differ in length")
    return unit(vectors)
