"""Text to words: what a query and a definition have in common.

Pure. A word comes out folded (case, width, accents, Turkish dots), identifiers come apart
(`getUserByID`, `get_user`, `user.get` all give `user`), English endings are cut, and scripts written
without spaces give overlapping pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from threading import Lock

import snowballstemmer

QUERY_EDGE_BYTES = 8 * 1024
MAX_WORD = 64  # characters; a longer run is no word (base64, hashes) and is dropped

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_RAW_WORD = re.compile(r"[^\W_]+")
_ASCII_WORD = re.compile(r"[a-z]+|[0-9]+")
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul: spaced, but particles stick to its words
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_RUN = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)"
    r"|(?P<digits>\d+)"
    rf"|(?P<word>[^\W\d_{_UNSPACED}]+)"
    r"|(?P<symbol>[\u2190-\u2bff\U0001f000-\U0001faff])"  # arrows, dingbats, emoji
)
# Letters that Unicode does not decompose although readers and keyboards do.
_UNDECOMPOSED = str.maketrans({"\u0131": "i", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ß": "ss"})
_SURROGATES = re.compile("[\ud800-\udfff]")


def bounded(query: str) -> str:
    """The query's first and last 8 KiB (of UTF-8, cut between characters), lone surrogates left out."""
    if len(query) <= QUERY_EDGE_BYTES and query.isascii():
        return query
    data = query.encode("utf-8", "ignore")
    if len(data) <= 2 * QUERY_EDGE_BYTES:
        return data.decode()
    head = data[:QUERY_EDGE_BYTES].decode("utf-8", "ignore")
    tail = data[-QUERY_EDGE_BYTES:].decode("utf-8", "ignore")
    return f"{head} {tail}"


def words(text: str) -> list[str]:
    """The words of a text in order, repeats kept, stop words included."""
    text = _CAMEL.sub(" ", text)
    if text.isascii():
        return [stem(w) for w in _ASCII_WORD.findall(text.lower()) if len(w) <= MAX_WORD]
    return list(_unicode_words(fold(text)))


def fold(text: str) -> str:
    """Compatibility forms, case and accents taken away."""
    text = unicodedata.normalize("NFKC", _SURROGATES.sub(" ", text)).casefold()
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn" or c > "\u0e00")
    return unicodedata.normalize("NFC", plain.translate(_UNDECOMPOSED))


def _unicode_words(text: str) -> Iterator[str]:
    for run in _RUN.finditer(text):
        piece = run[0]
        if run.lastgroup == "unspaced":
            # A single character is a word of its own; longer runs are found by their pairs.
            yield from ("".join(pair) for pair in pairwise(piece)) if len(piece) > 1 else (piece,)
        elif len(piece) <= MAX_WORD:
            yield stem(piece)


def raw_words(text: str) -> Iterator[tuple[str, str]]:
    """The words of a text as written, each beside its folded form; one entry per run of an unspaced script."""
    for run in _RAW_WORD.finditer(_SURROGATES.sub(" ", text)):
        raw = run[0]
        if len(raw) <= 4 * MAX_WORD:
            yield raw, stem(raw.lower() if raw.isascii() else fold(raw))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """An English word without its ending; any other word as it is."""
    return _stem_english(word) if word.isascii() and len(word) > 2 else word


_STEMMER = snowballstemmer.stemmer("english")
_STEMMER_LOCK = Lock()  # a stemmer keeps its word in itself, and indexing runs beside ranking


def _stem_english(word: str) -> str:
    with _STEMMER_LOCK:
        return str(_STEMMER.stemWord(word))


def split_identifier(name: str) -> list[str]:
    """An identifier's parts as written: `getUser_byID` gives get, User, by, ID."""
    return [part for part in re.split(r"[\W_]+", _CAMEL.sub(" ", name)) if part]
