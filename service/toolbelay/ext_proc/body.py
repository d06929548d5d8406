"""A chat request's body: its top-level members, and changes that leave every other byte as it came."""

from __future__ import annotations

from dataclasses import dataclass

from toolbelay.catalog.raw_json import JsonTextError, JsonValue, Member, items, list_members

MAX_MEMBERS = 1024
MAX_VALUES = 256 * 1024  # of one body: what reading costs grows with their number, not with the bytes
MAX_BODY_DEPTH = 128  # a tool's schema may be 64 deep, and stands inside the body
_BOM = b"\xef\xbb\xbf"
# Keys whose second occurrence would mean one thing to us and another to the provider.
_SINGLE = frozenset({"model", "tools", "tool_choice", "messages", "input", "stream"})
_OURS = ("tools", "tool_choice")


class TooManyValuesError(JsonTextError):
    """A body that would take seconds to read, whatever its size."""


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object as bytes, with its members in order. Offsets are of `text`."""

    text: bytes
    members: tuple[Member, ...]

    def value(self, key: str) -> JsonValue:
        """The value of a member, `None` where it is absent."""
        member = self.member(key)
        return member.span.value if member else None

    def member(self, key: str) -> Member | None:
        return next((member for member in self.members if member.key == key), None)

    def raw(self, key: str) -> bytes | None:
        """The exact bytes of a member's value."""
        member = self.member(key)
        return member.span.of(self.text) if member else None

    def raw_items(self, key: str) -> list[bytes] | None:
        """The exact bytes of an array member's items; `None` where it is absent or null. Raises JsonTextError."""
        text = self.raw(key)
        if text is None or self.value(key) is None:
            return None
        try:
            return [span.of(text) for span in items(text, max_depth=MAX_BODY_DEPTH, max_bytes=len(text))]
        except JsonTextError as error:
            raise JsonTextError(_join(key, error.path), error.message) from None


def read_body(text: bytes) -> Body:
    """The body's members. Raises JsonTextError and TooManyValuesError.

    A leading byte order mark is kept and skipped. A key that Toolbelay reads must occur once, and none
    may differ from `tools` or `tool_choice` by case alone, for some providers' parsers ignore case.
    """
    if _has_too_many_values(text):
        raise TooManyValuesError("", f"has more than {MAX_VALUES} values")
    skipped = len(_BOM) if text.startswith(_BOM) else 0
    found = list_members(
        text[skipped:],
        max_depth=MAX_BODY_DEPTH,
        max_bytes=len(text),
        max_members=MAX_MEMBERS,
        unique_keys=False,
        any_text=True,
    )
    if skipped:
        found = [member.moved(skipped) for member in found]
    seen: set[str] = set()
    for member in found:
        if member.key in seen and member.key in _SINGLE:
            raise JsonTextError(member.key, "the key occurs twice")
        if member.key not in _OURS and member.key.casefold() in _OURS:
            raise JsonTextError(member.key.casefold(), "the key is written with capital letters")
        seen.add(member.key)
    return Body(text, tuple(found))


def _has_too_many_values(text: bytes) -> bool:
    """Linear and quick: commas and brackets outside of strings bound the values of a JSON text."""
    if _marks(text) <= MAX_VALUES:
        return False
    # Without escapes, every second piece between quotes stands outside a string.
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    return _marks(b"".join(unescaped.split(b'"')[::2])) > MAX_VALUES


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def read_item(text: bytes) -> Body:
    """One item of a tools array, read strictly. Raises JsonTextError."""
    found = list_members(text, max_depth=MAX_BODY_DEPTH, max_bytes=len(text))
    return Body(text, tuple(found))


class _Keep:
    """Leave a member as it is."""


class _Remove:
    """Take a member out."""


KEEP = _Keep()
REMOVE = _Remove()
Change = bytes | _Keep | _Remove


def splice(body: Body, **changes: Change) -> bytes:
    """The body's bytes with members replaced, taken out or put in at the end; every other byte as it came."""
    edits: list[tuple[int, int, bytes]] = []
    removed: set[int] = set()
    added: list[bytes] = []
    for key, change in changes.items():
        at = next((index for index, member in enumerate(body.members) if member.key == key), None)
        if isinstance(change, bytes):
            if at is None:
                added.append(b'"%b":%b' % (key.encode("ascii"), change))
            else:
                span = body.members[at].span
                edits.append((span.start, span.end, change))
        elif isinstance(change, _Remove) and at is not None:
            removed.add(at)
    edits.extend(_cuts(body.members, removed))
    kept = [index for index in range(len(body.members)) if index not in removed]
    if added:
        edits.append(_insertion(body, kept, added))
    return _apply(body.text, edits)


def _cuts(members: tuple[Member, ...], removed: set[int]) -> list[tuple[int, int, bytes]]:
    """What to cut for each run of removed members: the run and one comma."""
    cuts = []
    for first in sorted(removed):
        if first - 1 in removed:
            continue
        last = first
        while last + 1 in removed:
            last += 1
        if last + 1 < len(members):
            cuts.append((members[first].key_start, members[last + 1].key_start, b""))
        else:
            start = members[first - 1].span.end if first else members[first].key_start
            cuts.append((start, members[last].span.end, b""))
    return cuts


def _insertion(body: Body, kept: list[int], added: list[bytes]) -> tuple[int, int, bytes]:
    """Behind the last member that stays; in an object without one, behind its brace."""
    joined = b",".join(added)
    if kept:
        at = body.members[kept[-1]].span.end
        return at, at, b"," + joined
    at = body.text.index(b"{") + 1
    return at, at, joined


def _apply(text: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits, key=lambda edit: (edit[0], edit[1])):
        parts += (text[at:start], new)
        at = end
    parts.append(text[at:])
    return b"".join(parts)


def _join(key: str, path: str) -> str:
    return f"{key}{path}" if path.startswith("[") or not path else f"{key}.{path}"
