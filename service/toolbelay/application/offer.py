"""The caller's own tools array, sorted into what is the catalog's and what is the caller's (modes)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from toolbelay.catalog.model import Tool
from toolbelay.catalog.offered import Offered
from toolbelay.catalog.routes import Route

CALLER_TOOLSET = "caller"


class Offer(Struct, frozen=True, gc=False):
    """What a request offers.

    `owned`: caller-owned items in the caller's order. `definitions`: the caller's exact bytes of the
    catalog tools it offers, by tool id (filter mode). `ranked`: the caller's tools that take part in
    the selection (`caller_tools: rank`), by tool id. `dropped`: items left out.
    """

    filters: bool = False
    owned: tuple[Offered, ...] = ()
    owned_names: frozenset[str] = frozenset()
    definitions: Mapping[str, bytes] = field(default_factory=dict)
    ranked: Mapping[str, Tool] = field(default_factory=dict)
    dropped: int = 0

    @property
    def ids(self) -> frozenset[str]:
        """Filter mode: tool ids that may be answered at all."""
        return frozenset(self.definitions)


def sort_offer(
    items: Sequence[Offered],
    route: Route,
    by_name: Mapping[str, Tool],
    permits: Callable[[Tool], bool],
) -> Offer:
    """Sort the offered items. In add mode every item is the caller's."""
    if route.mode == "add":
        return Offer(owned=tuple(items), owned_names=frozenset(i.name for i in items if i.name))
    owned: list[Offered] = []
    definitions: dict[str, bytes] = {}
    ranked: dict[str, Tool] = {}
    dropped = 0
    for item in items:
        tool = by_name.get(item.name) if item.name else None
        if tool is not None and item.fingerprint == tool.fingerprint:
            definitions[tool.tool_id] = item.definition
        elif tool is not None:
            # One byte of difference must not carry a denied tool past the policy.
            if permits(tool):
                owned.append(item)
            else:
                dropped += 1
        elif route.caller_tools == "drop":
            dropped += 1
        elif route.caller_tools == "rank" and item.name and item.fingerprint is not None:
            caller_tool = as_tool(item)
            definitions[caller_tool.tool_id] = item.definition
            ranked[caller_tool.tool_id] = caller_tool
        else:
            owned.append(item)
    return Offer(
        filters=True,
        owned=tuple(owned),
        owned_names=frozenset(i.name for i in owned if i.name),
        definitions=definitions,
        ranked=ranked,
        dropped=dropped,
    )


def as_tool(item: Offered) -> Tool:
    """A caller's function tool as policy and rankers see it: `caller/<name>`, default hints, no tags."""
    return Tool(
        tool_id=f"{CALLER_TOOLSET}/{item.name}",
        toolset=CALLER_TOOLSET,
        name=item.name,
        exposed_name=item.name,
        description=b'""',
        input_schema=item.definition,
        fingerprint=item.fingerprint or b"",
    )
