"""Text to words: what a query and a definition have in common.

Pure. A word comes out folded (case, width, accents, Turkish dots), identifiers come apart
(`getUserByID`, `get_user`, `user.get` all give `user`), English endings are cut, and scripts written
without spaces give overlapping pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import chain, pairwise
from threading import Lock

import snowballstemmer

QUERY_EDGE_BYTES = 8 * 1024
MAX_WORD = 64  # characters; a longer run is no word (base64, hashes) and is dropped

_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul: spaced, but particles stick to its words
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_MARKS = "\u0300-\u036f\u0900-\u0dff"  # belong to their letter, although Unicode counts them as none
_SYMBOL = "[\u2190-\u2bff\U0001f000-\U0001faff]"  # arrows, dingbats, emoji
_TOKEN = re.compile(rf"(?:[^\W_]|[{_MARKS}{_UNSPACED}])+|{_SYMBOL}")
_ASCII_TOKEN = re.compile(r"[A-Za-z0-9]+")  # the same in a text of ASCII, four times as fast
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ASCII_RUN = re.compile(r"[a-z]+|[0-9]+")
_RUN = re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|\d+|[^\d{_UNSPACED}]+")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_DIACRITICS = re.compile("[\u0300-\u036f]")
_SURROGATES = re.compile("[\ud800-\udfff]")
# Letters that Unicode does not decompose although readers and keyboards do.
_UNDECOMPOSED = str.maketrans({"\u0131": "i", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ß": "ss"})


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


def tokens(text: str) -> list[str]:
    """The runs of letters, digits and symbols of a text, as written (in composed form)."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text)
    return _TOKEN.findall(unicodedata.normalize("NFKC", _SURROGATES.sub(" ", text)))


def words(text: str) -> list[str]:
    """The words of a text in order, repeats kept, stop words included."""
    return list(chain.from_iterable(map(pieces, tokens(text))))


def pieces(token: str) -> tuple[str, ...]:
    """The words of one token; usually one."""
    if token.isdigit() and token.isascii():  # hardly ever comes again
        return (token,) if len(token) <= MAX_WORD else ()
    return _short_pieces(token) if len(token) <= MAX_WORD else _pieces(token)


def fold(text: str) -> str:
    """Case and accents taken away."""
    plain = _DIACRITICS.sub("", unicodedata.normalize("NFD", text.casefold()))
    return unicodedata.normalize("NFKC", plain).translate(_UNDECOMPOSED)


def split_identifier(name: str) -> list[str]:
    """An identifier's parts as written: `getUser_byID` gives get, User, by, ID."""
    return [part for part in re.split(r"[\W_]+", _CAMEL.sub(" ", name)) if part]


@lru_cache(maxsize=65_536)
def _short_pieces(token: str) -> tuple[str, ...]:
    return _pieces(token)


def _pieces(token: str) -> tuple[str, ...]:
    token = _CAMEL.sub(" ", token)
    if token.isascii():
        return tuple(stem(run) for run in _ASCII_RUN.findall(token.lower()) if len(run) <= MAX_WORD)
    found: list[str] = []
    for part in token.split():
        for run in _RUN.finditer(fold(part)):
            _add_run(found, run)
    return tuple(found)


def _add_run(found: list[str], run: re.Match[str]) -> None:
    piece = run[0]
    if run.lastgroup == "unspaced" and len(piece) > 1:
        # Found by their pairs; a Han character also says something alone.
        found.extend("".join(pair) for pair in pairwise(piece))
        found.extend(_HAN.findall(piece))
    elif len(piece) <= MAX_WORD:
        found.append(stem(piece))


_STEMMER = snowballstemmer.stemmer("english")
_STEMMER_LOCK = Lock()  # a stemmer keeps its word in itself, and indexing runs beside ranking


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """An English word without its ending; any other word as it is."""
    if len(word) < 3 or not word.isascii() or word.isdigit():
        return word
    with _STEMMER_LOCK:
        return str(_STEMMER.stemWord(word))
