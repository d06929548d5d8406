"""Dense vectors: where they come from, and the rows of a catalog.

Static vectors are a table, word piece → 256 numbers; a text is the mean of its rows. They are read from
the wordllama wheel's files, because its own loader fails offline in the releases that some platforms get.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from toolbelay.memo import LruTally

Vectors = npt.NDArray[np.float32]
MAX_WORD = 64  # characters of a word whose pieces are remembered
_SPACE = "\u2581"  # how the tokenizer writes a space


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


class EmbeddingError(Exception):
    """Texts could not be embedded; the message holds none of them."""


class StaticEmbedder:
    """The vectors in the package: 0.05 ms a query, no network, bit-equal in batches."""

    model = "wordllama-l2-supercat-256"
    floor = 0.15  # unrelated texts: 0.04 on average
    local = True

    def __init__(self) -> None:
        self._table = _static_model()[1]

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return self.embed_now(texts)

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """As `embed`, for threads. Texts without a known piece, or with lone surrogates only, give zeros."""
        found = np.zeros((len(texts), self._table.shape[1]), np.float32)
        clean = [text.encode("utf-8", "ignore").decode() for text in texts]
        for row, ids in enumerate(map(_ids_by_word, clean)):
            if ids:
                # What `mean` computes, without its checks.
                found[row] = np.add.reduce(self._table.take(ids, axis=0).astype(np.float32), 0) / len(ids)
        return unit(found)


def _ids_by_word(text: str) -> Sequence[int]:
    """A text's pieces, word by word: the same as the whole text's, because no piece reaches over a space into a word.

    (`_static_model` makes sure of that.) Words come again, texts hardly ever.
    """
    if "  " in text or text[:1] == " " or text[-1:] == " ":
        return _encoded(text)
    return list(chain.from_iterable(map(_word_ids, text.split(" ")))) if text else ()


def _word_ids(word: str) -> tuple[int, ...]:
    return _short_word_ids(word) if len(word) <= MAX_WORD else _encoded(word)


@lru_cache(maxsize=65_536)
def _short_word_ids(word: str) -> tuple[int, ...]:
    return _encoded(word)


def _encoded(text: str) -> tuple[int, ...]:
    return tuple(_static_model()[0].encode(text, add_special_tokens=False).ids)


WORDS = LruTally(_short_word_ids)  # for metrics


def unit(vectors: Vectors) -> Vectors:
    """Rows at length 1; rows that are zero or not finite become zero."""
    length = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    usable = np.isfinite(length) & (length > 0)
    if not usable.all():
        vectors = np.where(usable[:, None], vectors, np.float32(0))
        length = np.where(usable, length, 1.0)
    at_length_one: Vectors = (vectors / length[:, None]).astype(np.float32)
    return at_length_one


@lru_cache(maxsize=1)
def _static_model() -> tuple[Tokenizer, npt.NDArray[np.float16]]:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise EmbeddingError("the wordllama package is not installed")
    folder = Path(spec.origin).parent
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        tables = load_file(folder / "weights" / "l2_supercat_256.safetensors")
    except Exception as error:  # both libraries raise bare Exceptions for a missing or damaged file
        raise EmbeddingError("the wordllama package lacks its static vectors") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if any(_SPACE in piece.lstrip(_SPACE) for piece in tokenizer.get_vocab()):
        raise EmbeddingError("the static vectors' tokenizer has pieces that reach over a space")
    return tokenizer, np.ascontiguousarray(next(iter(tables.values())))  # float16: half the memory, read as float32
