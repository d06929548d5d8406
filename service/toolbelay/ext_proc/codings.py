"""Content codings of request bodies: decoded under a cap, and written back in the same coding."""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from collections.abc import Callable
from typing import Any

_CHUNK = 64 * 1024


class CodingError(Exception):
    """The body is not what its content-encoding says. Holds nothing of the body."""


class TooLargeError(Exception):
    """The decoded body is over the cap."""


class UnsupportedCodingError(Exception):
    """A coding, or a list of codings, that is not decoded here."""


def is_supported(coding: str) -> bool:
    """Whether a content-encoding can be decoded: gzip, deflate; br and zstd where their packages are installed."""
    return coding in _DECODERS and (coding not in _PACKAGES or importlib.util.find_spec(_PACKAGES[coding]) is not None)


def decode(data: bytes, coding: str, limit: int) -> bytes:
    """The decoded body of at most `limit` bytes; "" and "identity" give `data` itself.

    Raises UnsupportedCodingError, CodingError or TooLargeError; no more than `limit` bytes and one
    chunk are ever held, whatever the data claim.
    """
    if coding in ("", "identity"):
        if len(data) > limit:
            raise TooLargeError
        return data
    if not is_supported(coding):
        raise UnsupportedCodingError
    return _DECODERS[coding](data, limit)


def encode(data: bytes, coding: str) -> bytes:
    """The body in a coding that `decode` took."""
    return data if coding in ("", "identity") else _ENCODERS[coding](data)


def _zlib(wbits: int) -> Callable[[bytes, int], bytes]:
    def read(data: bytes, limit: int) -> bytes:
        reader = zlib.decompressobj(wbits)
        try:
            out = reader.decompress(data, limit + 1)
        except zlib.error:
            raise CodingError from None
        if len(out) > limit:
            raise TooLargeError
        if not reader.eof or reader.unused_data:
            raise CodingError
        return out

    return read


def _brotli(data: bytes, limit: int) -> bytes:
    import brotli

    reader = brotli.Decompressor()
    out = bytearray()
    try:
        out += reader.process(data, output_buffer_limit=_CHUNK)
        while len(out) <= limit and not reader.is_finished():
            more = reader.process(b"", output_buffer_limit=_CHUNK)
            if not more and reader.can_accept_more_data():
                raise CodingError
            out += more
    except brotli.error:
        raise CodingError from None
    return _bounded(out, limit)


def _zstd(data: bytes, limit: int) -> bytes:
    import zstandard

    out = bytearray()
    try:
        with zstandard.ZstdDecompressor(max_window_size=8 * 1024 * 1024).stream_reader(data) as reader:
            while len(out) <= limit and (more := reader.read(_CHUNK)):
                out += more
        declared = zstandard.get_frame_parameters(data).content_size
    except zstandard.ZstdError:
        raise CodingError from None
    if len(out) <= limit and declared not in (len(out), zstandard.CONTENTSIZE_UNKNOWN):
        raise CodingError  # cut short
    return _bounded(out, limit)


def _bounded(out: bytearray, limit: int) -> bytes:
    if len(out) > limit:
        raise TooLargeError
    return bytes(out)


def _encode_brotli(data: bytes) -> bytes:
    import brotli

    out: bytes = brotli.compress(data, quality=4)
    return out


def _encode_zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


_PACKAGES = {"br": "brotli", "zstd": "zstandard"}
_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _zlib(31),
    "x-gzip": _zlib(31),
    "deflate": _zlib(15),
    "br": _brotli,
    "zstd": _zstd,
}
_ENCODERS: dict[str, Callable[[bytes], Any]] = {
    "gzip": lambda data: gzip.compress(data, compresslevel=1, mtime=0),
    "x-gzip": lambda data: gzip.compress(data, compresslevel=1, mtime=0),
    "deflate": lambda data: zlib.compress(data, level=1),
    "br": _encode_brotli,
    "zstd": _encode_zstd,
}
