"""Which tools stay pinned, and in what order of recency (rule 4).

Callers report either the new calls or the whole history, and nothing tells the two apart. So recency is
read from order alone: the tools not reported keep their place, the reported ones follow by last
occurrence. A history reported again gives the order that is stored already, and moves nothing. A turn
that comes late, or again, takes its place before the pins of later turns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from toolbelay.planner.model import StoredTool

Recency = tuple[int, int]  # (turn, place)


class Pins(Struct, frozen=True, gc=False):
    """The wanted pins, called longest ago first, with their recency."""

    recency: Mapping[str, Recency]
    released: frozenset[str]  # stored pins that no longer fit


def by_last_occurrence(called: Iterable[str]) -> list[str]:
    """Distinct ids in the order of their last occurrence."""
    last: dict[str, None] = {}
    for tool_id in called:
        last.pop(tool_id, None)
        last[tool_id] = None
    return list(last)


def wanted_pins(
    pinned: Sequence[StoredTool],
    called: Sequence[str],
    *,
    turn: int,
    required: Collection[str],
    present: Collection[str],
    visible: Collection[str],
    state_places: int,
    answer_places: int,
) -> Pins:
    """The most recently called tools that fit.

    `pinned`: stored pins that authority lets stay. `called`: reported ids, each eligible or a stored
    pin. `present`: ids in the stored set. `visible`: ids that the answer may show. `state_places`,
    `answer_places`: what state and answer hold beside the required tools, which take no place here.
    A stored pin fits while the state has a place; a missing tool needs one in the answer too.
    """
    stored = {tool.tool_id: (tool.called_turn, tool.called_place) for tool in pinned}
    reported = [t for t in by_last_occurrence(called) if t not in stored or stored[t][0] <= turn]
    if not reported and len(stored) <= state_places:
        return Pins(stored, frozenset())
    heard = set(reported)
    silent = sorted((t for t in stored if t not in heard), key=stored.__getitem__)
    later = [t for t in silent if stored[t][0] > turn]
    kept: list[str] = []
    for tool_id in reversed([*silent[: len(silent) - len(later)], *reported, *later]):
        if tool_id not in required:
            shows = tool_id in visible
            if state_places <= 0 or (tool_id not in present and answer_places <= 0):
                continue
            state_places -= 1
            answer_places -= shows
        kept.append(tool_id)
    kept.reverse()
    return Pins(_renumber(kept, stored, turn), frozenset(stored.keys() - set(kept)))


def _renumber(kept: Sequence[str], stored: Mapping[str, Recency], turn: int) -> dict[str, Recency]:
    """Stored recency up to the first new or reordered tool; from there on the calls are this turn's, or later."""
    recency: dict[str, Recency] = {}
    last: Recency = (0, -1)
    moved = False
    for tool_id in kept:
        known = stored.get(tool_id)
        if known is not None and known > last and (not moved or known[0] > turn):
            last = known
        else:
            moved, at = True, max(turn, last[0])
            last = (at, last[1] + 1 if last[0] == at else 0)
        recency[tool_id] = last
    return recency
