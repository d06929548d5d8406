"""The table of static vectors: word piece → 256 numbers, and the tokenizer that gives a word's pieces.

Both are read from the wordllama wheel's files, because its own loader fails offline in the releases that some
platforms get.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Tokenizer

_SPACE = "\u2581"  # how the tokenizer writes a space
_DIGIT = re.compile("[0-9]")
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class EmbeddingError(Exception):
    """Texts could not be embedded; the message holds none of them."""


def static_table() -> npt.NDArray[np.float16]:
    """Piece number → its vector; float16 is half the memory. Raises `EmbeddingError` without the wheel's files."""
    return _model()[1]


def encoded(text: str) -> Sequence[int]:
    """The pieces of a text."""
    ids: list[int] = _model()[0].encode(text, add_special_tokens=False).ids
    return ids


def split_words(text: str) -> list[str]:
    """The words of a text, whose pieces are together the pieces of the text.

    No piece reaches over a space into a word (`_model` makes sure of that), so that words can be read one by one; a
    text with spaces at its ends or beside each other stays whole.
    """
    if not text:
        return []
    return [text] if "  " in text or text[0] == " " or text[-1] == " " else text.split(" ")


def is_number(word: str) -> bool:
    """Whether the pieces of a word are a space and then its digits (`_model` makes sure of that too)."""
    return word.isdigit() and word.isascii()


@lru_cache(maxsize=1)
def _model() -> tuple[Tokenizer, npt.NDArray[np.float16]]:
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
    pieces = tokenizer.get_vocab()
    if any(_SPACE in piece.lstrip(_SPACE) for piece in pieces):
        raise EmbeddingError("the static vectors' tokenizer has pieces that reach over a space")
    if any(len(piece) > 1 and _DIGIT.search(piece) and not _BYTE.fullmatch(piece) for piece in pieces):
        raise EmbeddingError("the static vectors' tokenizer has pieces of more than a digit")
    return tokenizer, np.ascontiguousarray(next(iter(tables.values())))
