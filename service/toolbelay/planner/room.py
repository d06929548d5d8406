"""Who leaves and who hides when there is no room (rule 6). The longest prefix survives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from toolbelay.planner.model import StoredTool
from toolbelay.planner.recency import Recency


def newest_first(tools: Sequence[StoredTool]) -> list[StoredTool]:
    """Highest first-seen turn first, then last position."""
    return [t for _, t in sorted(enumerate(tools), key=lambda at: (-at[1].first_seen_turn, -at[0]))]


def eviction_order(tools: Sequence[StoredTool], *, hidden: Collection[str], protected: Collection[str]) -> list[str]:
    """Ids that may leave the state, first to leave first: hidden ones, then the newest."""
    leaving = [t.tool_id for t in newest_first(tools) if t.tool_id not in protected]
    return sorted(leaving, key=lambda tool_id: tool_id not in hidden)


def hiding_order(
    tools: Sequence[StoredTool],
    *,
    required: Collection[str],
    core: Collection[str],
    recency: Mapping[str, Recency],
) -> list[str]:
    """Ids that a target's cap may hide, first to hide first.

    In eviction's order: unpinned tools newest first, then core tools, then the pins called longest
    ago, so that what was called this turn comes last. Required tools never hide.
    """
    open_ids = [t.tool_id for t in newest_first(tools) if t.tool_id not in required]
    unpinned = [t for t in open_ids if t not in recency]
    pins = sorted((t for t in open_ids if t in recency), key=recency.__getitem__)
    return [*(t for t in unpinned if t not in core), *(t for t in unpinned if t in core), *pins]
