"""Which tools policy permits a caller: decided once per class of tools, and remembered by what decides."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolbelay.authority.compiled import CompiledPolicies, Decision, PolicyContext
from toolbelay.authority.dependencies import Dependencies
from toolbelay.authority.entities import Action
from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool

CALLER_TOOLSET = "caller"  # tools that a request brings along: Tool::"caller/<name>"

MAX_VIEWS = 8_192
MAX_DECISIONS = 16_000_000  # one byte each
MAX_CLASSES = 250_000  # of one policy set; a catalog has at most 100,000 tools
MAX_POLICY_SETS = 4_096  # of all tenants

_CHUNK_SECONDS = 0.002  # aim of one evaluation between two turns of the event loop
_CHUNK_TOOLS = 64
_MOST_SINGLE_TOOLS = 5_000  # decided ahead when each tool is a class of its own
_CHECKED_AT_ONCE = 500  # tools looked up between two turns of the event loop
_UNKNOWN, _DENIED, _PERMITTED = 0, 1, 2
_UNSHARED = -1  # class of a tool whose decision is not remembered beyond one view


class ToolClasses:
    """The classes of tools that one policy set tells apart, numbered as they are met."""

    def __init__(self, serial: int, dependencies: Dependencies) -> None:
        """Take what the policy set looks at."""
        self.serial = serial
        self.by_tool: dict[str, tuple[Tool, int]] = {}
        self._classify = dependencies.tool_classifier()
        self._names_every_tool = dependencies.names_every_tool
        self._numbers: dict[tuple[object, ...], int] = {}
        self._catalogs: OrderedDict[int, _Catalog] = OrderedDict()
        self._catalog_serials = itertools.count(1)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def tells_single_tools(self) -> bool:
        """Whether the policies look at each tool's own name."""
        return self._names_every_tool

    @property
    def full(self) -> bool:
        """Whether no further class is numbered."""
        return len(self._numbers) >= MAX_CLASSES

    def number(self, tool: Tool) -> int:
        """Give the number of a tool's class."""
        known = self.by_tool.get(tool.tool_id)
        if known is not None and known[0] is tool:
            return known[1]
        key = self._classify(tool)
        brought = tool.toolset == CALLER_TOOLSET
        if brought and self._names_every_tool:
            return _UNSHARED  # its name is a stranger's: numbering it would let requests fill the memory
        if not _encodable(tool):
            return _UNSHARED  # Cedar cannot take it: denied, whatever the class of its like is permitted
        number = self._numbers.get(key)
        if number is None:
            if self.full:
                return _UNSHARED
            number = self._numbers[key] = len(self._numbers)
        if not brought:
            if len(self.by_tool) >= MAX_CLASSES:
                self.by_tool.clear()
            self.by_tool[tool.tool_id] = (tool, number)
        return number

    def held(self, tools: Mapping[str, Tool]) -> _Catalog | None:
        """A catalog's classes, where they were asked for before."""
        held = self._catalogs.get(id(tools))
        return held if held is not None and held.tools is tools else None

    async def catalog(self, tools: Mapping[str, Tool]) -> _Catalog:
        """Give a catalog's classes, each with one tool of it; remembered for the mapping's identity."""
        held = self.held(tools)
        if held is not None:
            return held
        members: dict[int, Tool] = {}
        for count, tool in enumerate(tools.values(), start=1):
            members.setdefault(self.number(tool), tool)
            if count % _CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        made = self._catalogs[id(tools)] = _Catalog(next(self._catalog_serials), tools, members)
        while len(self._catalogs) > 2:  # the current generation and the one before it
            self._catalogs.popitem(last=False)
        return made


class _Catalog:
    """The classes of one snapshot's tools. Holds the mapping, so that its identity is not reused."""

    __slots__ = ("members", "serial", "tools")

    def __init__(self, serial: int, tools: Mapping[str, Tool], members: Mapping[int, Tool]) -> None:
        self.serial = serial
        self.tools = tools
        self.members = members


class _Decisions:
    """What is known under one key: a byte per class and action."""

    __slots__ = ("complete", "dropped", "lock", "tables")

    def __init__(self) -> None:
        self.dropped = False  # a call may still use it, but it is no longer held or counted
        self.tables: dict[Action, bytearray] = {"advertise": bytearray(), "call": bytearray()}
        self.complete: dict[Action, int] = {}
        self.lock = asyncio.Lock()

    def size(self) -> int:
        return sum(len(table) for table in self.tables.values())


def _encodable(tool: Tool) -> bool:
    if tool.tool_id.isascii() and all(tag.isascii() for tag in tool.tags):
        return True
    try:
        for text in (tool.tool_id, tool.toolset, tool.name, *tool.tags):
            text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class Question(Struct, frozen=True, gc=False):
    """Who asks, of which policies, in which context."""

    policies: CompiledPolicies
    principal: Principal
    context: PolicyContext

    def decisions(self, action: Action, tools: Sequence[Tool]) -> list[Decision]:
        """Put tools to Cedar."""
        return self.policies.decisions(self.principal, action, tools, self.context)


class EligibilityView:
    """One caller's permissions in one context. Made per call; what it learns is shared by its key."""

    __slots__ = ("_by_tool", "_classes", "_decisions", "_own", "_owner", "_question", "_tables")

    def __init__(self, owner: Eligibility, question: Question, classes: ToolClasses, decisions: _Decisions) -> None:
        """Made by Eligibility.view."""
        self._owner = owner
        self._question = question
        self._classes = classes
        self._by_tool = classes.by_tool
        self._decisions = decisions
        self._tables = decisions.tables
        self._own: dict[tuple[Action, str], tuple[Tool, bool]] = {}

    @property
    def memory(self) -> object:
        """Stands for everything that the decisions depend on but the tools: equal views share it."""
        return self._decisions

    def permits(self, tool: Tool, action: Action = "advertise") -> bool:
        """Whether policy permits the action on the tool; evaluates it (0.1 ms or more) when not yet known."""
        known = self._by_tool.get(tool.tool_id)
        number = known[1] if known is not None and known[0] is tool else self._classes.number(tool)
        table = self._tables[action]
        if 0 <= number < len(table):
            verdict = table[number]
            if verdict:
                return verdict == _PERMITTED
        found = self._recall(tool, action)
        if found is None:
            self._learn((tool,), action)
            found = self._recall(tool, action)
        return found is True

    def permits_many(self, tools: Sequence[Tool], action: Action = "advertise") -> list[bool]:
        """Decide for each of a few tools, in order, in one evaluation."""
        self._learn(self._unknown(tools, action), action)
        return [self.permits(tool, action) for tool in tools]

    def explain(self, tool: Tool, action: Action = "advertise") -> Decision:
        """Decide anew for this very tool, and tell which policies decided."""
        return self._question.decisions(action, (tool,))[0]

    async def prepare(self, tools: Sequence[Tool], action: Action = "advertise") -> None:
        """Learn what `permits` will be asked, without holding the event loop for more than some ms at a time."""
        unknown = self._unknown(tools, action)
        if unknown:
            async with self._decisions.lock:
                await self._learn_in_chunks(self._unknown(unknown, action), action)

    def knows_catalog(self, tools: Mapping[str, Tool], action: Action = "advertise") -> bool:
        """Whether all of the catalog is known, so that `prepare_catalog` has nothing to learn."""
        held = self._classes.held(tools)
        return held is not None and self._decisions.complete.get(action) == held.serial

    async def prepare_catalog(self, tools: Mapping[str, Tool], action: Action = "advertise") -> None:
        """Learn about a snapshot's whole catalog. Costs one comparison when it is known.

        `tools` is a mapping that is never changed: its identity stands for its content. A large catalog whose
        policies tell single tools apart is left to `permits`: most of its decisions would never be asked for.
        """
        if len(tools) > _MOST_SINGLE_TOOLS and self._classes.tells_single_tools:
            return
        catalog = await self._classes.catalog(tools)
        if self._decisions.complete.get(action) == catalog.serial:
            return
        async with self._decisions.lock:  # callers of equal rights wait for one evaluation instead of repeating it
            if self._decisions.complete.get(action) != catalog.serial:
                await self._learn_in_chunks(await self._unknown_classes(catalog, action), action)
                self._decisions.complete[action] = catalog.serial

    def _unknown(self, tools: Sequence[Tool], action: Action) -> list[Tool]:
        """Give one tool of each class that is not decided yet."""
        chosen: dict[object, Tool] = {}
        for tool in tools:
            if self._recall(tool, action) is None:
                number = self._classes.number(tool)
                chosen.setdefault(tool.tool_id if number == _UNSHARED else number, tool)
        return list(chosen.values())

    async def _learn_in_chunks(self, tools: Sequence[Tool], action: Action) -> None:
        size = 8
        start = 0
        while start < len(tools):
            async with self._owner.learning:
                begun = time.perf_counter()
                self._learn(tools[start : start + size], action)
                start += size
                took = time.perf_counter() - begun
                size = max(1, min(_CHUNK_TOOLS, int(size * _CHUNK_SECONDS / max(took, 1e-6)), size * 2))
                await asyncio.sleep(0)

    async def _unknown_classes(self, catalog: _Catalog, action: Action) -> list[Tool]:
        unknown: list[Tool] = []
        for count, tool in enumerate(catalog.members.values(), start=1):
            if self._recall(tool, action) is None:
                unknown.append(tool)
            if count % _CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return unknown

    def _recall(self, tool: Tool, action: Action) -> bool | None:
        number = self._classes.number(tool)
        table = self._tables[action]
        verdict = table[number] if 0 <= number < len(table) else _UNKNOWN
        if verdict != _UNKNOWN:
            return verdict == _PERMITTED
        own = self._own.get((action, tool.tool_id))
        return own[1] if own is not None and own[0] == tool else None

    def _learn(self, tools: Sequence[Tool], action: Action) -> None:
        if not tools:
            return
        self._owner.evaluated += len(tools)
        for tool, decision in zip(tools, self._question.decisions(action, tools), strict=True):
            number = self._classes.number(tool) if decision.evaluated else _UNSHARED
            if decision.errors:
                self._owner.errors += 1
            if number == _UNSHARED:
                self._own[action, tool.tool_id] = (tool, decision.allowed)
            else:
                self._remember(number, action, permitted=decision.allowed)

    def _remember(self, number: int, action: Action, *, permitted: bool) -> None:
        table = self._tables[action]
        if number >= len(table):
            grown = max(number + 1, len(self._classes)) - len(table)
            table.extend(bytes(grown))
            self._owner.grown(self._decisions, grown)
        table[number] = _PERMITTED if permitted else _DENIED


class Eligibility:
    """The memory of decisions of one worker, for all tenants, bounded in entries.

    `hits`, `misses`: views found and made. `evaluated`: decisions that Cedar made, `errors`: those that failed.
    `decisions`: classes remembered, over all views. `len()`: views held.
    """

    def __init__(self, *, max_views: int = MAX_VIEWS, max_decisions: int = MAX_DECISIONS) -> None:
        """Set the bounds: views, and decisions of all views together (a byte each)."""
        self._max_views = max_views
        self._max_decisions = max_decisions
        self._views: OrderedDict[tuple[object, ...], _Decisions] = OrderedDict()
        self._classes: OrderedDict[tuple[str, bytes], ToolClasses] = OrderedDict()
        self._serials = itertools.count()
        self._keys: dict[tuple[int, int, tuple[str, str, str]], tuple[Principal, tuple[object, ...]]] = {}
        self.learning = asyncio.Lock()  # one chunk of one caller in each turn of the loop, however many callers are new
        self.decisions = 0
        self.hits = 0
        self.misses = 0
        self.evaluated = 0
        self.errors = 0

    def __len__(self) -> int:
        return len(self._views)

    def view(
        self, policies: CompiledPolicies, principal: Principal, route: str, model: str, mode: str
    ) -> EligibilityView:
        """Open a caller's permissions in one context, with all that is known of them.

        `route`: the resolved name; `mode`: add or filter.
        """
        classes = self._classes_of(principal.tenant, policies)
        key = self._key(classes.serial, policies.dependencies, principal, (route, model, mode))
        decisions = self._views.get(key)
        if decisions is None:
            self.misses += 1
            decisions = self._views[key] = _Decisions()
            self._bound()
        else:
            self.hits += 1
            self._views.move_to_end(key)
        question = Question(policies, principal, PolicyContext(route, model, mode))
        return EligibilityView(self, question, classes, decisions)

    def _key(
        self, serial: int, depends: Dependencies, principal: Principal, context: tuple[str, str, str]
    ) -> tuple[object, ...]:
        """What the decisions depend on. Remembered by the principal's object, which a verified token keeps."""
        known = self._keys.get((serial, id(principal), context))
        if known is not None and known[0] is principal:
            return known[1]
        key = (serial, depends.principal_key(principal), depends.context_key(*context))
        if len(self._keys) >= self._max_views:
            self._keys.clear()
        self._keys[serial, id(principal), context] = (principal, key)
        return key

    def grown(self, decisions: _Decisions, count: int) -> None:
        """Count decisions that a view holds from now on, and drop the views least recently used beyond the bound."""
        if not decisions.dropped:
            self.decisions += count
            self._bound()

    def _bound(self) -> None:
        while len(self._views) > 1 and (len(self._views) > self._max_views or self.decisions > self._max_decisions):
            _, dropped = self._views.popitem(last=False)
            dropped.dropped = True
            self.decisions -= dropped.size()

    def _classes_of(self, tenant: str, policies: CompiledPolicies) -> ToolClasses:
        # By content, not by object: a generation that leaves the policies as they are keeps what is known.
        key = (tenant, policies.identity)
        held = self._classes.get(key)
        if held is None or held.full:
            # A new serial: the views of the classes before it are not found again and leave in their time.
            held = self._classes[key] = ToolClasses(next(self._serials), policies.dependencies)
            if len(self._classes) > MAX_POLICY_SETS:
                self._classes.popitem(last=False)
        self._classes.move_to_end(key)
        return held
