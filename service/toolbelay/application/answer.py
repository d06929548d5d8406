"""A plan, written out as the items of an answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from msgspec import Struct

from toolbelay.application.scene import ITEMS, Scene
from toolbelay.application.turn import CALLER_OWNED, SelectedItem
from toolbelay.catalog.surface import DIGEST_SIZE, Digester, Rendered
from toolbelay.planner.model import Origin, Plan, PlannedTool


def owned_items(scene: Scene, digest: Digester) -> tuple[SelectedItem, ...]:
    """The caller's own tools, first and as offered (rule 12)."""
    wire_format = scene.target.format
    return tuple(
        SelectedItem(
            Rendered(
                tool_id="",
                name=item.name,
                fingerprint=item.fingerprint.hex() if item.fingerprint else "",
                definition=item.definition,
                digest=digest(item.definition, wire_format),
            ),
            CALLER_OWNED,
        )
        for item in scene.offer.owned
    )


def planned_items(plan: Plan, scene: Scene, digest: Digester) -> tuple[SelectedItem, ...]:
    """The plan's tools in its order; in filter mode with the caller's exact bytes of this turn."""
    offered = scene.offer.definitions
    if offered:
        return tuple([_offered_item(planned, scene, digest, offered.get(planned.tool_id)) for planned in plan.tools])
    bare, pinned = scene.remembered("items"), scene.remembered("pinned_items")
    items = []
    for planned in plan.tools:
        if planned.origin is Origin.RETAINED and not planned.score:
            memory = pinned if planned.pinned else bare
            item = memory.get(planned.tool_id)
            if item is not None:
                ITEMS.hits += 1
            else:
                ITEMS.misses += 1
                item = memory[planned.tool_id] = _catalog_item(planned, scene)
        else:
            item = _catalog_item(planned, scene)
        items.append(item)
    return tuple(items)


def _catalog_item(planned: PlannedTool, scene: Scene) -> SelectedItem:
    tool = scene.snapshot.tools[planned.tool_id]
    shown = scene.snapshot.surface.rendered(tool, scene.target.format)
    return SelectedItem(shown, planned.origin, planned.pinned, planned.score)


def _offered_item(planned: PlannedTool, scene: Scene, digest: Digester, given: bytes | None) -> SelectedItem:
    if given is None:
        return _catalog_item(planned, scene)
    tool = scene.tool(planned.tool_id)
    if tool is None:
        raise LookupError("the plan names a tool that the scene does not hold")
    shown = Rendered(
        planned.tool_id, tool.exposed_name, tool.fingerprint.hex(), given, digest(given, scene.target.format)
    )
    return SelectedItem(shown, planned.origin, planned.pinned, planned.score)


class Footprint(Struct, frozen=True, gc=False):
    """What the items of an answer come to, whatever their scores: 8 bytes of digest and estimated tokens."""

    digest: bytes
    tokens: int


def footprint(items: Sequence[SelectedItem], digests: Sequence[bytes], scene: Scene) -> Footprint:
    """The footprint of an answer whose items have these digests."""
    tokens = scene.snapshot.surface.advertised_tokens([item.definition for item in items])
    return Footprint(surface_digest(digests), tokens)


def stable_prefix(digests: Sequence[bytes], last: Sequence[bytes]) -> int:
    """Leading items whose bytes equal the last answer's."""
    if digests == last:
        return len(digests)
    same = 0
    for now, before in zip(digests, last, strict=False):
        if now != before:
            break
        same += 1
    return same


def surface_digest(digests: Sequence[bytes]) -> bytes:
    """8 bytes that change exactly when an item or the order does."""
    return blake2b(b"".join(digests), digest_size=DIGEST_SIZE, person=b"surface").digest()
