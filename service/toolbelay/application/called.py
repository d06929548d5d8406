"""The names that the assistant called, resolved to tool ids (rule 4). Pure but for the scene's memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from toolbelay.application.scene import Scene


class Called(Struct, frozen=True, gc=False):
    """Resolved calls, oldest first, repeats kept. `ignored`: entries that named no eligible tool."""

    tool_ids: tuple[str, ...]
    ignored: int


def resolve_called(names: Sequence[str], scene: Scene, stored: Collection[str]) -> Called:
    """Caller-owned names are nobody's business here; then exposed names; the rest is counted.

    A stored tool that this turn hides stays in the list: it keeps its place in a reported history.
    """
    tool_ids: list[str] = []
    ignored = 0
    for name in names:
        if name in scene.offer.owned_names:
            continue
        tool = scene.by_name(name)
        eligible = tool is not None and scene.eligible(tool.tool_id)
        ignored += not eligible
        if tool is not None and (eligible or tool.tool_id in stored):
            tool_ids.append(tool.tool_id)
    return Called(tuple(tool_ids), ignored)
