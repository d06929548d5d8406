"""The stored set against the authority of this moment (rule 2)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolbelay.planner.model import Fact, SessionState, Standing, StoredTool


class Revalidated(Struct, frozen=True, gc=False):
    """What is left of a stored set.

    `kept`: in stored order. `changed`: their definition changed; to be admitted again at the end, pins
    kept. `hidden`: ids among both that this answer may not show. The counts are of tools that left.
    """

    kept: tuple[StoredTool, ...]
    changed: tuple[StoredTool, ...]
    hidden: frozenset[str]
    unauthorized: int
    unavailable: int


def revalidate(state: SessionState, facts: Mapping[str, Fact], *, turn: int, pins: bool) -> Revalidated:
    """Look each stored tool up. `pins` False clears every pin (the route does not pin)."""
    kept: list[StoredTool] = []
    changed: list[StoredTool] = []
    hidden: list[str] = []
    unauthorized = unavailable = 0
    for stored in state.tools:
        tool = stored
        fact = facts.get(tool.tool_id)
        if fact is None:
            unavailable += 1
            continue
        if fact.standing is Standing.DENIED:
            unauthorized += 1
            continue
        if fact.standing is not Standing.ELIGIBLE:
            hidden.append(tool.tool_id)
        if tool.pinned and not pins:
            tool = replace(tool, pinned=False)
        if fact.fingerprint == tool.fingerprint:
            kept.append(tool)
        else:
            changed.append(replace(tool, fingerprint=fact.fingerprint, first_seen_turn=turn))
    return Revalidated(tuple(kept), tuple(changed), frozenset(hidden), unauthorized, unavailable)


def pins_only(prior: Revalidated) -> Revalidated:
    """The part of a stored set that a reseat starts from (rule 7)."""
    kept = tuple(t for t in prior.kept if t.pinned)
    changed = tuple(t for t in prior.changed if t.pinned)
    ids = {t.tool_id for t in (*kept, *changed)}
    return replace(prior, kept=kept, changed=changed, hidden=prior.hidden & ids)
