"""What one turn may touch: the snapshot, the caller's authority and the offer, asked tool by tool."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from toolbelay.application.offer import CALLER_TOOLSET, Offer
from toolbelay.application.turn import Target
from toolbelay.catalog.formats import carries, default_cap
from toolbelay.catalog.model import Tool
from toolbelay.catalog.routes import Route
from toolbelay.catalog.snapshot import TenantSnapshot
from toolbelay.clock import loop_time
from toolbelay.memo import Tally
from toolbelay.planner.model import Bounds, Fact, Standing, StoredTool

NO_CAP = 1 << 30
_CALLER_PREFIX = f"{CALLER_TOOLSET}/"


_MAX_MEMORIES = 256  # callers and targets that a snapshot remembers facts for
_MAX_REMEMBERED = 32_768  # tools of one kind of memory and format
_MAX_FACTS = 2_048  # of one caller and target


FACTS = Tally()  # memories of callers and targets, for metrics
ITEMS = Tally()  # items of answers, for metrics


class _Items(dict[str, Any]):
    """A dict that can be counted."""


class Permits(Protocol):
    """One caller's permissions in one context."""

    @property
    def memory(self) -> object:
        """Stands for everything that the permissions depend on but the tools."""

    def permits(self, tool: Tool) -> bool:
        """Whether policy lets the caller be advertised this tool."""

    def knows_catalog(self, tools: Mapping[str, Tool]) -> bool:
        """Whether all of the catalog is known, so that `prepare_catalog` has nothing to learn."""

    async def prepare_catalog(self, tools: Mapping[str, Tool]) -> None:
        """Learn about a snapshot's whole catalog without holding the event loop."""


class Scene:
    """Answers, and remembers for the turn, what authority says of a tool."""

    def __init__(
        self,
        snapshot: TenantSnapshot[Any],
        route: Route,
        target: Target,
        offer: Offer,
        view: Permits,
    ) -> None:
        self.snapshot = snapshot
        self.route = route
        self.target = target
        self.offer = offer
        self._view = view
        self._bounds: Bounds | None = None
        # What is remembered of this caller and target; none where the request's own offer has a say in that.
        self.memory = memory = _remembered(snapshot, target, offer, view)
        self._facts: dict[str, Fact] = {} if memory is None else memory.facts
        self.ranking_memory = None if memory is None else memory.ranking
        self._ranked_by_name = {t.exposed_name: t for t in offer.ranked.values()} if offer.ranked else {}

    def tool(self, tool_id: str) -> Tool | None:
        """A tool of the catalog, or a caller's tool that takes part."""
        return self.snapshot.tools.get(tool_id) or self.offer.ranked.get(tool_id)

    def by_name(self, name: str) -> Tool | None:
        """The tool that the model knows by this exposed name."""
        return self.snapshot.by_name.get(name) or self._ranked_by_name.get(name)

    def fact(self, tool_id: str) -> Fact | None:
        """What authority says of a tool id; `None` = gone from the catalog."""
        fact = self._facts.get(tool_id)
        if fact is None:
            tool = self.tool(tool_id)
            if tool is None:
                return None
            fact = Fact(self._standing(tool), tool.fingerprint)
            if len(self._facts) < _MAX_FACTS:  # a turn may ask about a whole catalog
                self._facts[tool_id] = fact
        return fact

    def eligible(self, tool_id: str) -> bool:
        """Whether the tool may be answered this turn."""
        fact = self.fact(tool_id)
        return fact is not None and fact.standing is Standing.ELIGIBLE

    async def learn(self, deadline: float) -> None:
        """Let policy decide on the whole catalog, for as long as half of the time left; the rest is decided when asked.

        Costs next to nothing for a caller whose like was seen before.
        """
        if self._view.knows_catalog(self.snapshot.tools):
            return
        now = loop_time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(now + (deadline - now) / 2):
                await self._view.prepare_catalog(self.snapshot.tools)

    def remembered(self, what: str) -> dict[str, Any]:
        """A memory by tool id for this snapshot and wire format; forgotten with the snapshot."""
        memory: dict[str, Any] | None = self.snapshot.memory.get((what, self.target.format.value))
        if memory is None or len(memory) >= _MAX_REMEMBERED:
            memory = self.snapshot.memory[what, self.target.format.value] = ITEMS.count(_Items())
        return memory

    def facts(self, stored: Iterable[StoredTool], *groups: Iterable[str]) -> Mapping[str, Fact]:
        """The facts of the stored tools and of all ids in `groups`; what is gone has none."""
        found: dict[str, Fact] = {}
        held = self._facts
        for tool in stored:
            fact = held.get(tool.tool_id) or self.fact(tool.tool_id)
            if fact is not None:
                found[tool.tool_id] = fact
            elif tool.tool_id.startswith(_CALLER_PREFIX):
                # A caller's tool of an earlier turn that this one does not offer.
                found[tool.tool_id] = Fact(Standing.NOT_OFFERED, tool.fingerprint)
        for group in groups:
            for tool_id in group:
                fact = held.get(tool_id) or self.fact(tool_id)
                if fact is not None:
                    found[tool_id] = fact
        return found

    def eligible_ids(self) -> Iterator[str]:
        """Every eligible tool id, in byte order."""
        ids = sorted(self.offer.ids) if self.offer.filters else self.snapshot.sorted_ids
        return (tool_id for tool_id in ids if self.eligible(tool_id))

    @property
    def bounds(self) -> Bounds:
        """The route's bounds with the target's cap taken off."""
        if self._bounds is None:
            self._bounds = self._bounds_now()
        return self._bounds

    def _bounds_now(self) -> Bounds:
        route, sticky = self.route, self.route.sticky
        cap = self.target.max_tools or default_cap(self.target.format) or NO_CAP
        return Bounds(
            max_tools=sticky.max_tools,
            max_new_tools_per_turn=sticky.max_new_tools_per_turn,
            top_k=route.top_k,
            seed_tools=sticky.max_tools if self.offer.filters else route.seed_tools,
            capacity=max(min(sticky.max_tools, cap - len(self.offer.owned)), 0),
            pin_called_tools=sticky.pin_called_tools,
            replace_stale=sticky.when_full == "replace_stale",
            stale_after_turns=sticky.stale_after_turns,
        )

    def _standing(self, tool: Tool) -> Standing:
        if not self._view.permits(tool):
            return Standing.DENIED
        if not tool.requires <= self.target.capabilities or not self._carried(tool):
            return Standing.NOT_CARRIED
        if self.offer.filters and tool.tool_id not in self.offer.definitions:
            return Standing.NOT_OFFERED
        if tool.exposed_name in self.offer.owned_names:
            return Standing.SHADOWED
        return Standing.ELIGIBLE

    def _carried(self, tool: Tool) -> bool:
        # What the caller itself offers in this format is the caller's to judge.
        return tool.tool_id in self.offer.definitions or carries(tool, self.target.format)


class _Memory:
    """What is known of one caller and target under one snapshot: facts by tool id, and an index's own notes."""

    __slots__ = ("facts", "ranking")

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.ranking: dict[str, Any] = {}


def _remembered(snapshot: TenantSnapshot[Any], target: Target, offer: Offer, view: Permits) -> _Memory | None:
    """What is known already: all that it depends on is the key, or part of the snapshot.

    What a request offers changes standings, so such a turn remembers for itself alone.
    """
    if offer.filters or offer.owned:
        return None
    key = (view.memory, target.format.value, target.capabilities)
    memories: OrderedDict[object, _Memory] | None = snapshot.memory.get("facts")
    if memories is None:
        memories = snapshot.memory["facts"] = FACTS.count(OrderedDict())
    memory = memories.get(key)
    if memory is not None:
        FACTS.hits += 1
    if memory is None:
        FACTS.misses += 1
        memory = memories[key] = _Memory()
        if len(memories) > _MAX_MEMORIES:
            memories.popitem(last=False)
    elif len(memory.facts) >= _MAX_FACTS:
        memory.facts = {}
    return memory
