"""A plan, written out as the items of an answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from toolbelay.application.scene import Scene
from toolbelay.application.turn import CALLER_OWNED, SelectedItem
from toolbelay.catalog.surface import DIGEST_SIZE, Digester
from toolbelay.planner.model import Plan


def owned_items(scene: Scene, digest: Digester) -> tuple[SelectedItem, ...]:
    """The caller's own tools, first and as offered (rule 12)."""
    wire_format = scene.target.format
    return tuple(
        SelectedItem(
            tool_id="",
            name=item.name,
            fingerprint=item.fingerprint.hex() if item.fingerprint else "",
            definition=item.definition,
            digest=digest(item.definition, wire_format),
            origin=CALLER_OWNED,
        )
        for item in scene.offer.owned
    )


def planned_items(plan: Plan, scene: Scene, digest: Digester) -> tuple[SelectedItem, ...]:
    """The plan's tools in its order; in filter mode with the caller's exact bytes of this turn."""
    wire_format = scene.target.format
    surface, offered = scene.snapshot.surface, scene.offer.definitions
    items = []
    for planned in plan.tools:
        tool = scene.tool(planned.tool_id)
        if tool is None:
            raise LookupError("the plan names a tool that the scene does not hold")
        given = offered.get(planned.tool_id)
        if given is None:
            rendered = surface.rendered(tool, wire_format)
            definition, item_digest, hexed = rendered.definition, rendered.digest, rendered.fingerprint_hex
        else:
            definition, item_digest, hexed = given, digest(given, wire_format), tool.fingerprint.hex()
        items.append(
            SelectedItem(
                planned.tool_id,
                tool.exposed_name,
                hexed,
                definition,
                item_digest,
                planned.origin.value,
                planned.pinned,
                planned.score,
            )
        )
    return tuple(items)


def stable_prefix(digests: Sequence[bytes], last: Sequence[bytes]) -> int:
    """Leading items whose bytes equal the last answer's."""
    same = 0
    for now, before in zip(digests, last, strict=False):
        if now != before:
            break
        same += 1
    return same


def surface_digest(digests: Sequence[bytes]) -> bytes:
    """8 bytes that change exactly when an item or the order does."""
    return blake2b(b"".join(digests), digest_size=DIGEST_SIZE, person=b"surface").digest()
