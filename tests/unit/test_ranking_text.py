"""Words: folding, identifiers, scripts without spaces, and hostile text."""

from __future__ import annotations

import pytest

from toolbelay.ranking.text import MAX_WORD, QUERY_EDGE_BYTES, bounded, split_identifier, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserByID", ["get", "user", "by", "id"]),
        ("get_user.by-id", ["get", "user", "by", "id"]),
        ("HTTPServer2Go", ["http", "server", "2", "go"]),
        ("Rotating bookings", ["rotat", "book"]),
        ("ﬁle ＡＢＣ", ["file", "abc"]),
        ("naïve Café", ["naiv", "cafe"]),
        ("cafe\u0301", ["cafe"]),
        ("Łódź Ørsted Straße", ["lodz", "orst", "strass"]),
        ("🚀 deploy 🚀", ["🚀", "deploy", "🚀"]),
        ("हिन्दी", ["हिन्दी"]),
        ("", []),
        ("\x00\x01 \t\n", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(("one", "other"), [("İstanbul", "istanbul"), ("ISPARTA", "ısparta"), ("ÇAĞRI", "çağrı")])
def test_turkish_letters_meet_in_any_case(one: str, other: str) -> None:
    assert words(one) == words(other)


def test_unspaced_scripts_meet_inside_a_sentence() -> None:
    assert set(words("天気")) <= set(words("今日の天気予報を教えて"))
    assert set(words("天气")) <= set(words("查询今天的天气怎么样"))
    assert set(words("날씨")) <= set(words("서울의날씨를 알려줘"))


def test_a_lone_han_character_is_found_inside_a_word() -> None:
    assert set(words("雨")) <= set(words("雨雲"))


def test_long_runs_are_no_words() -> None:
    assert words("x" * (MAX_WORD + 1)) == []
    assert words("x" * MAX_WORD) == ["x" * MAX_WORD]


def test_lone_surrogates_are_skipped() -> None:
    assert words("send \ud800 mail\udfff") == ["send", "mail"]
    assert bounded("a\ud800b") == "ab"


def test_a_query_is_read_at_both_ends() -> None:
    text = "alpha " + "filler " * 200_000 + " omega"
    read = bounded(text)
    assert read.startswith("alpha ")
    assert read.endswith(" omega")
    assert len(read.encode()) <= 2 * QUERY_EDGE_BYTES + 1


def test_a_cut_never_splits_a_character() -> None:
    assert "\ufffd" not in bounded("天" * 100_000)


def test_identifiers_come_apart_as_written() -> None:
    assert split_identifier("getUser_byID") == ["get", "User", "by", "ID"]
