"""Content codings under a cap."""

from __future__ import annotations

import gzip
import zlib

import pytest

from toolbelay.ext_proc.codings import CodingError, TooLargeError, UnsupportedCodingError, decode, encode, is_supported

CODINGS = ["gzip", "x-gzip", "deflate", "br", "zstd"]
TEXT = b'{"model":"m"}' * 1000


@pytest.mark.parametrize("coding", ["", "identity", *CODINGS])
def test_there_and_back(coding: str) -> None:
    assert decode(encode(TEXT, coding), coding, len(TEXT)) == TEXT


@pytest.mark.parametrize("coding", ["", "identity", *CODINGS])
def test_the_cap_is_exact(coding: str) -> None:
    with pytest.raises(TooLargeError):
        decode(encode(TEXT, coding), coding, len(TEXT) - 1)


@pytest.mark.parametrize("coding", CODINGS)
def test_row_62_a_bomb_ends_at_the_cap(coding: str) -> None:
    bomb = encode(bytes(64 * 1024 * 1024), coding)
    with pytest.raises(TooLargeError):
        decode(bomb, coding, 1024)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("wrong", [b"", b"plain text", b"\x1f\x8b\x08", b'{"model":"m"}'])
def test_a_wrong_label_is_an_error(coding: str, wrong: bytes) -> None:
    with pytest.raises(CodingError):
        decode(wrong, coding, 1024)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_cut_short_is_an_error(coding: str) -> None:
    with pytest.raises(CodingError):
        decode(encode(TEXT, coding)[:-6], coding, len(TEXT))


def test_what_follows_a_body_is_an_error() -> None:
    with pytest.raises(CodingError):
        decode(gzip.compress(TEXT) + b"more", "gzip", len(TEXT))
    with pytest.raises(CodingError):
        decode(zlib.compress(TEXT) + b"more", "deflate", len(TEXT))


@pytest.mark.parametrize("coding", ["compress", "gzip, br", "GZIP ", "?"])
def test_other_codings_are_not_decoded(coding: str) -> None:
    assert not is_supported(coding)
    with pytest.raises(UnsupportedCodingError):
        decode(TEXT, coding, len(TEXT))
