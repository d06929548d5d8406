"""What an import would do to a tools file. Pure: stored lines and a listing in, a frozen plan out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from toolbelay.catalog.raw_json import MAX_DEPTH, members
from toolbelay.imports.candidates import Candidate, Listing, Quarantined, same_tool, write_line
from toolbelay.imports.tools_file import StoredLine

_OPERATORS_OWN = ("tags", "requires")  # nothing that a server says; an import leaves them as they are


@dataclass(frozen=True, slots=True)
class Change:
    """A tool whose definition differs from the stored one."""

    name: str
    old: bytes = field(repr=False)  # the stored line
    new: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What would be written: `lines`, unless `refusal` says why nothing is.

    `held`: changed definitions that were not accepted; their stored lines stay. Quarantined tools that are
    stored stay too. `unchanged` counts tools whose stored bytes stay.
    """

    lines: tuple[bytes, ...] = field(repr=False)
    added: tuple[str, ...] = ()
    changed: tuple[Change, ...] = ()
    held: tuple[Change, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    quarantined: tuple[Quarantined, ...] = ()
    refusal: str = ""

    @property
    def changes_file(self) -> bool:
        return bool(self.added or self.changed or self.removed) and not self.refusal

    @property
    def is_whole(self) -> bool:
        """Whether everything listed is now in the file."""
        return not (self.held or self.quarantined or self.refusal)


def plan_import(
    stored: tuple[StoredLine, ...], listing: Listing, *, accept_changes: bool, accept_empty: bool
) -> ImportPlan:
    """Kept lines in their order, then new ones in the listing's order."""
    old = {line.definition.name: line for line in stored if line.definition}
    new = {one.definition.name: one for one in listing.candidates}
    if listing.is_empty and not accept_empty:
        refusal = "nothing that can be imported was listed; --accept-empty takes that as the truth"
        return ImportPlan(_texts(stored), unchanged=len(old), quarantined=listing.quarantined, refusal=refusal)
    differing = tuple(
        Change(name, old[name].text, _carry_over(old[name], one))
        for name, one in new.items()
        if name in old and not _equal(old[name], one)
    )
    spared = {quarantined.name for quarantined in listing.quarantined}
    removed = tuple(name for name in old if name not in new and name not in spared)
    added = tuple(name for name in new if name not in old)
    replaced = {change.name: change.new for change in differing} if accept_changes else {}
    kept = _kept(stored, replaced, frozenset(removed))
    return ImportPlan(
        lines=(*kept, *(new[name].line for name in added)),
        added=added,
        changed=differing if accept_changes else (),
        held=() if accept_changes else differing,
        removed=removed,
        unchanged=len(old) - len(removed) - len(differing),
        quarantined=listing.quarantined,
    )


def _kept(stored: tuple[StoredLine, ...], replaced: Mapping[str, bytes], removed: frozenset[str]) -> Iterator[bytes]:
    for line in stored:
        if line.definition is None:
            yield line.text
        elif line.definition.name not in removed:
            yield replaced.get(line.definition.name, line.text)


def _texts(stored: tuple[StoredLine, ...]) -> tuple[bytes, ...]:
    return tuple(line.text for line in stored)


def _equal(stored: StoredLine, candidate: Candidate) -> bool:
    assert stored.definition is not None
    return same_tool(stored.definition, candidate.definition)


def _carry_over(stored: StoredLine, candidate: Candidate) -> bytes:
    """The new line with the operator's tags and requires of the old."""
    old, new = members(stored.text, max_depth=MAX_DEPTH + 1, max_bytes=len(stored.text)), candidate.line
    given = members(new, max_depth=MAX_DEPTH + 1, max_bytes=len(new))
    parts = {key: span.of(new) for key, span in given.items()}
    return write_line(parts | {key: old[key].of(stored.text) for key in _OPERATORS_OWN if key in old})
