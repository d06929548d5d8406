"""JSON text whose exact bytes matter: strict values, and the byte spans of an object's members.

The standard library's scanner does the reading. This module adds what it lacks: bounds that hold before
the scanner recurses, number literals instead of floats, refusal of duplicate keys, NUL and lone
surrogates, and where each top-level part stands in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json import JSONDecodeError, JSONDecoder
from typing import NoReturn, TypeAlias

MAX_DEPTH = 64
MAX_BYTES = 64 * 1024
MAX_NUMBER_DIGITS = 1000


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number by its literal: 1.0, 1 and 1e0 are three numbers."""

    literal: str


JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | Number | bool | None"


@dataclass(frozen=True, slots=True)
class Span:
    """One value inside a text: `text[start:end]` are its exact bytes, white space around it not included."""

    start: int
    end: int
    value: JsonValue

    def of(self, text: bytes) -> bytes:
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object: the span of its key (quotes included) and of its value."""

    key: str
    key_start: int
    span: Span

    def moved(self, by: int) -> Member:
        """The same member in a text that begins `by` bytes earlier."""
        span = Span(self.span.start + by, self.span.end + by, self.span.value)
        return Member(self.key, self.key_start + by, span)


class JsonTextError(ValueError):
    """The text is refused. `path` names the value (`properties.a[2]`, empty for the text as a whole)."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class NotJsonError(JsonTextError):
    """No JSON by anyone's reading: a syntax fault, text that is not UTF-8, or another kind of value."""


class _RefusedError(Exception):
    """Raised inside the scanner, where the path is not known."""


def parse(
    text: bytes, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES, unique_keys: bool = True
) -> JsonValue:
    """The value of a JSON text, numbers as `Number`.

    Raises `JsonTextError` for anything but one strict JSON value within the bounds. With `unique_keys`
    False the last of equal keys counts, as elsewhere in Python.
    """
    reader = _Reader(text, max_depth=max_depth, max_bytes=max_bytes, unique_keys=unique_keys)
    value, end = reader.value(reader.skip(0))
    reader.finish(end)
    reader.check_text([("", value)])
    return value


def members(
    text: bytes, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES, unique_keys: bool = True
) -> dict[str, Span]:
    """The members of the object that the text is, by key; a key that occurs twice at the top is always refused.

    `unique_keys` speaks of the objects further down. Raises `JsonTextError`.
    """
    found: dict[str, Span] = {}
    listed = list_members(text, max_depth=max_depth, max_bytes=max_bytes, unique_keys=unique_keys)
    for member in listed:
        if member.key in found:
            raise JsonTextError(_step("", member.key), "the key occurs twice")
        found[member.key] = member.span
    return found


def list_members(
    text: bytes,
    *,
    max_depth: int = MAX_DEPTH,
    max_bytes: int = MAX_BYTES,
    max_members: int | None = None,
    unique_keys: bool = True,
    any_text: bool = False,
) -> list[Member]:
    """Like `members`, in order and with the keys' places; keys that occur twice at the top are all listed.

    With `any_text`, strings may hold NUL and lone surrogates (a conversation is not ours to judge).
    """
    reader = _Reader(text, max_depth=max_depth, max_bytes=max_bytes, unique_keys=unique_keys)
    at = reader.opening("{", "an object")
    found: list[tuple[str, int, int, int, JsonValue]] = []
    while not reader.closes(at, "}"):
        at = reader.separator(at, first=not found)
        key, key_end = reader.key(at)
        start = reader.skip(reader.expect(reader.skip(key_end), ":"))
        value, end = reader.value(start, _step("", key))
        found.append((key, at, start, end, value))
        if max_members is not None and len(found) > max_members:
            raise JsonTextError("", f"has more than {max_members} members")
        at = reader.skip(end)
    reader.finish(at + 1)
    if not any_text:
        reader.check_text([(_step("", key), value) for key, _, _, _, value in found], keys=[key for key, *_ in found])
    places = reader.byte_offsets([place for _, *three, _ in found for place in three])
    return [Member(key, next(places), Span(next(places), next(places), value)) for key, _, _, _, value in found]


def items(
    text: bytes, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES, unique_keys: bool = True
) -> list[Span]:
    """The items of the array that the text is. Raises `JsonTextError`."""
    reader = _Reader(text, max_depth=max_depth, max_bytes=max_bytes, unique_keys=unique_keys)
    at = reader.opening("[", "an array")
    found: list[tuple[int, int, JsonValue]] = []
    while not reader.closes(at, "]"):
        at = reader.separator(at, first=not found)
        value, end = reader.value(at, f"[{len(found)}]")
        found.append((at, end, value))
        at = reader.skip(end)
    reader.finish(at + 1)
    reader.check_text([(f"[{index}]", value) for index, (_, _, value) in enumerate(found)])
    places = reader.byte_offsets([place for start, end, _ in found for place in (start, end)])
    return [Span(next(places), next(places), value) for _, _, value in found]


_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_SPACE = re.compile(r"[ \t\n\r]*+")
_SURROGATE_OR_NUL = re.compile("[\x00\ud800-\udfff]")
_ESCAPE = "\\u"


class _Reader:
    """One pass over a text that has been decoded and bounded."""

    def __init__(self, text: bytes, *, max_depth: int, max_bytes: int, unique_keys: bool) -> None:
        if len(text) > max_bytes:
            raise JsonTextError("", f"{len(text)} bytes are more than the limit of {max_bytes}")
        if text.startswith(b"\xef\xbb\xbf"):
            raise JsonTextError("", "starts with a byte order mark")
        try:
            self._text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotJsonError("", f"not UTF-8 at byte {error.start}") from None
        self._ascii = len(self._text) == len(text)
        self._unique_keys = unique_keys
        self._decoder = _STRICT if unique_keys else _LENIENT
        _check_depth(text, max_depth)

    def skip(self, at: int) -> int:
        """The next place at or after `at` that is not white space."""
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def value(self, at: int, path: str = "") -> tuple[JsonValue, int]:
        try:
            value, end = self._decoder.raw_decode(self._text, at)
        except JSONDecodeError as error:
            raise _syntax(error) from None
        except _RefusedError:
            raise self._located(at, path) from None
        return value, end

    def key(self, at: int) -> tuple[str, int]:
        if self._text[at : at + 1] != '"':
            raise NotJsonError("", f"not JSON: a key must stand at character {at}")
        key, end = self.value(at)
        assert isinstance(key, str)
        return key, end

    def expect(self, at: int, mark: str) -> int:
        if self._text[at : at + 1] != mark:
            raise NotJsonError("", f"not JSON: {mark!r} must stand at character {at}")
        return at + 1

    def opening(self, mark: str, what: str) -> int:
        at = self.skip(0)
        if self._text[at : at + 1] != mark:
            self.finish(self.value(at)[1])
            raise NotJsonError("", f"must be {what}")
        return self.skip(at + 1)

    def closes(self, at: int, mark: str) -> bool:
        return self._text[at : at + 1] == mark

    def separator(self, at: int, *, first: bool) -> int:
        return at if first else self.skip(self.expect(at, ","))

    def finish(self, at: int) -> None:
        at = self.skip(at)
        if at != len(self._text):
            raise JsonTextError("", f"more text follows the value at character {at}")

    def check_text(self, parts: list[tuple[str, JsonValue]], keys: Sequence[str] = ()) -> None:
        """Refuse NUL and lone surrogates. Strict UTF-8 and strict JSON leave one way in: an escape."""
        if _ESCAPE not in self._text:
            return
        for key in keys:
            if _SURROGATE_OR_NUL.search(key):
                raise JsonTextError(_step("", key), _bad_text(key))
        for path, value in parts:
            for place, text in _strings(path, value):
                if _SURROGATE_OR_NUL.search(text):
                    raise JsonTextError(place, _bad_text(text))

    def byte_offsets(self, places: list[int]) -> Iterator[int]:
        """Byte offsets of ascending character offsets."""
        if self._ascii:
            yield from places
            return
        last = total = 0
        for place in places:
            total += len(self._text[last:place].encode())
            last = place
            yield total

    def _located(self, at: int, path: str) -> JsonTextError:
        """Read again, keeping everything, to name the value that was refused."""
        try:
            value, _ = _KEEPING.raw_decode(self._text, at)
        except JSONDecodeError as error:
            return _syntax(error)
        fault = next(_faults(path, value, unique_keys=self._unique_keys), (path, "refused"))
        return JsonTextError(*fault)


def _syntax(error: JSONDecodeError) -> JsonTextError:
    message = error.msg.removesuffix(" at").removesuffix(" starting")
    return NotJsonError("", f"not JSON: {message} at character {error.pos}")


def _check_depth(text: bytes, max_depth: int) -> None:
    """Linear in the text, whatever it holds; right for as much of it as is JSON, and the scanner reads no further."""
    if text.count(b"[") + text.count(b"{") <= max_depth:
        return
    # Without escapes, every second piece between quotes stands outside a string.
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    depth = 0
    for bracket in b"".join(unescaped.split(b'"')[::2]).translate(None, _NO_BRACKETS):
        if bracket in b"[{":
            depth += 1
            if depth > max_depth:
                raise JsonTextError("", f"nested deeper than {max_depth} levels")
        else:
            depth = max(0, depth - 1)


def _number(literal: str) -> Number:
    if _too_long(literal):
        raise _RefusedError
    return Number(literal)


def _too_long(literal: str) -> bool:
    return len(literal) > MAX_NUMBER_DIGITS and sum(c.isdigit() for c in literal) > MAX_NUMBER_DIGITS


def _constant(_literal: str) -> NoReturn:
    raise _RefusedError


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError
    return found


@dataclass(frozen=True, slots=True)
class _Pairs:
    pairs: list[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str


def _faults(path: str, value: object, *, unique_keys: bool) -> Iterator[tuple[str, str]]:
    """What the scanner refused, with paths; depth is bounded before."""
    if isinstance(value, _Literal):
        if value.text.lstrip("-") in ("NaN", "Infinity"):
            yield path, "NaN and infinities are not JSON"
        elif _too_long(value.text):
            yield path, f"a number of more than {MAX_NUMBER_DIGITS} digits"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(f"{path}[{index}]", item, unique_keys=unique_keys)
    elif isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value.pairs:
            if unique_keys and key in seen:
                yield _step(path, key), "the key occurs twice"
            seen.add(key)
            yield from _faults(_step(path, key), item, unique_keys=unique_keys)


def _strings(path: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    """Every string of the value, keys too, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(f"{path}[{index}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield _step(path, key), key
            yield from _strings(_step(path, key), item)


def _step(path: str, key: str) -> str:
    """The path of a member; long or odd keys are cut and escaped, for the path goes into messages."""
    shown = key if len(key) <= 64 else key[:61] + "..."
    shown = shown.encode("unicode_escape").decode()
    return f"{path}.{shown}" if path else shown


def _bad_text(text: str) -> str:
    return "holds NUL" if "\x00" in text else "holds a lone surrogate"


_STRICT = JSONDecoder(object_pairs_hook=_unique, parse_int=_number, parse_float=_number, parse_constant=_constant)
_LENIENT = JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_constant)
_KEEPING = JSONDecoder(object_pairs_hook=_Pairs, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal)
