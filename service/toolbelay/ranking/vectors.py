"""Dense vectors of texts, and where they come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from toolbelay.ranking.static_table import EmbeddingError
from toolbelay.ranking.word_vectors import WORDS, Vectors, WordVectors

__all__ = ["Embedder", "EmbeddingError", "StaticEmbedder", "Vectors", "unit"]


class Embedder(Protocol):
    """Turns texts into vectors of unit length, or of length 0 for a text without one."""

    @property
    def model(self) -> str:
        """Names the vectors: two embedders of one name give equal vectors."""

    @property
    def floor(self) -> float:
        """The cosine below which two texts have nothing to do with each other."""

    @property
    def local(self) -> bool:
        """Whether `embed` is arithmetic in this process (no network, no waiting)."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text. Raises `EmbeddingError` where it cannot."""


class StaticEmbedder:
    """The vectors in the package: the mean of a text's word pieces. No network, and bit-equal in batches."""

    model = "wordllama-l2-supercat-256"
    floor = 0.15  # unrelated texts: 0.04 on average
    local = True

    def __init__(self) -> None:
        self._words = WORDS.count(WordVectors())  # for the event loop's thread

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if len(texts) == 1:
            return _embedded(texts[0], self._words)[None]
        return self.embed_now(texts)

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """As `embed`, for threads. Texts without a known piece, or with lone surrogates only, give zeros."""
        words = WordVectors()
        found = np.empty((len(texts), words.length), np.float32)
        for row, text in zip(found, texts, strict=True):
            row[:] = _embedded(text, words)
        return found


def _embedded(text: str, words: WordVectors) -> Vectors:
    if not text.isascii():
        text = text.encode("utf-8", "ignore").decode()
    vector = words.sum_of(text)
    length = math.sqrt(vector.dot(vector))
    found: Vectors = vector / length if 0 < length < math.inf else np.zeros_like(vector)
    return found


def unit(vectors: Vectors) -> Vectors:
    """Rows at length 1; rows that are zero or not finite become zero."""
    length = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    usable = np.isfinite(length) & (length > 0)
    if not usable.all():
        vectors = np.where(usable[:, None], vectors, np.float32(0))
        length = np.where(usable, length, 1.0)
    at_length_one: Vectors = (vectors / length[:, None]).astype(np.float32)
    return at_length_one
