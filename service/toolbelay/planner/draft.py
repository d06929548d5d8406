"""The set that one call of the planner builds. Lives no longer than the call."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from toolbelay.planner.model import Origin, Standing, StoredTool, TurnInput
from toolbelay.planner.recency import Pins
from toolbelay.planner.revalidate import Revalidated
from toolbelay.planner.room import eviction_order, hiding_order, newest_first


class Draft:
    """Stored tools in their order, and what this turn appends to them."""

    def __init__(self, turn: TurnInput, prior: Revalidated, required: tuple[str, ...], pins: Pins) -> None:
        self._turn = turn
        self._bounds = turn.bounds
        self._required = required
        self._recency = pins.recency
        self._hidden = prior.hidden
        self._prior_ids = frozenset(t.tool_id for t in turn.state.tools)
        self.ranked_turns = turn.state.ranked_turns + self._counts_as_ranked()
        self._top = self._top_ids()
        self.tools = [self._pinned(t) for t in (*prior.kept, *prior.changed) if t.tool_id not in pins.released]
        self._ids = {t.tool_id for t in self.tools}
        self.origins = dict.fromkeys((t.tool_id for t in prior.kept), Origin.RETAINED)
        self.origins.update((t.tool_id, Origin.ADDED_CHANGED) for t in prior.changed)
        self._core = self._core_tools()
        self._mark()

    def admit_must_haves(self) -> None:
        """Make room for the missing required, core and called tools, then append them (rules 3 and 4)."""
        # A tool that is wanted for two reasons comes for the first of them (rule 12).
        called = [t for t in self._recency if t not in self._ids and t not in self._required]
        core = [t for t in dict.fromkeys(self._turn.core) if t in called or (t in self._core and t not in self._ids)]
        missing = {
            Origin.REQUIRED: [t for t in self._required if t not in self._ids],
            Origin.CORE: core,
            Origin.ADDED_CALLED: [t for t in called if t not in core],
        }
        excess = len(self.tools) + sum(map(len, missing.values())) - self._bounds.max_tools
        if excess > 0:
            protected = {*self._required, *self._core, *self._recency}
            self._drop(eviction_order(self.tools, hidden=self._hidden, protected=protected)[:excess])
        for origin, tool_ids in missing.items():
            for tool_id in tool_ids:
                self._append(tool_id, origin)

    def seed(self) -> None:
        """The first selection by relevance, beside what must be there (rule 5)."""
        fresh = (s.tool_id for s in self._turn.ranking or () if s.tool_id not in self._ids)
        self._admit_ranked(fresh, self._bounds.seed_tools, Origin.SEEDED)

    def grow(self) -> int:
        """Append newly relevant tools within the turn's budget; returns how many (rule 5)."""
        if not self._turn.grows:
            return 0
        budget = self._bounds.max_new_tools_per_turn - self._turn.spent
        top = (self._turn.ranking or ())[: self._bounds.top_k]
        fresh = [s.tool_id for s in top if s.tool_id not in self._ids]
        return self._admit_ranked(fresh, budget, Origin.ADDED_RELEVANT)

    def shown(self) -> list[StoredTool]:
        """The tools that the answer holds, in order: what is visible, less what the cap hides."""
        visible = [t for t in self.tools if t.tool_id not in self._hidden]
        excess = len(visible) - self._bounds.capacity
        if excess <= 0:
            return visible
        order = hiding_order(visible, required=self._required, core=self._core, recency=self._recency)
        cut = set(order[:excess])
        return [t for t in visible if t.tool_id not in cut]

    def fill(self, room: int) -> tuple[str, ...]:
        """What the answer, but not the state, takes of the on_no_match set."""
        fresh = [t for t in self._turn.fill if t not in self._ids and self._eligible(t)]
        return tuple(fresh[: max(min(room, self._bounds.seed_tools), 0)])

    def _admit_ranked(self, fresh: Iterable[str], budget: int, origin: Origin) -> int:
        admitted = 0
        # A ranking may be older than the facts: a turn that plans again after a conflict keeps it.
        for tool_id in filter(self._eligible, fresh):
            if admitted >= budget or not self._room_for_one():
                break
            self._append(tool_id, origin)
            admitted += 1
        return admitted

    def _room_for_one(self) -> bool:
        """Whether relevance may append one tool; hidden or stale tools may leave for it (rules 6 and 7)."""
        visible = sum(1 for t in self.tools if t.tool_id not in self._hidden)
        state_need = len(self.tools) + 1 - self._bounds.max_tools
        answer_need = visible + 1 - self._bounds.capacity
        if state_need <= 0 and answer_need <= 0:
            return True
        protected = {*self._required, *self._core, *self._recency}
        if answer_need <= 0:
            order = eviction_order(self.tools, hidden=self._hidden, protected=protected)
            leaving = [t for t in order if t in self._hidden][:state_need]
            if len(leaving) == state_need:
                self._drop(leaving)
                return True
        need = max(state_need, answer_need)
        stale = [t.tool_id for t in newest_first(self.tools) if self._stale(t) and t.tool_id not in protected]
        if len(stale) < need:
            return False
        self._drop(stale[:need])
        return True

    def _stale(self, tool: StoredTool) -> bool:
        return (
            self._bounds.replace_stale
            and tool.tool_id not in self._hidden
            and tool.tool_id not in self._top
            and self.ranked_turns - tool.mark >= self._bounds.stale_after_turns
        )

    def _core_tools(self) -> tuple[str, ...]:
        """The core tools that fit beside required and called ones: stored ones first, oldest first."""
        musts = {*self._required, *self._recency}
        wanted = [t for t in dict.fromkeys(self._turn.core) if t not in musts and self._eligible(t)]
        if not wanted:
            return ()
        places = max(self._bounds.max_tools - len(musts), 0)
        shown = self._bounds.capacity - len(musts - self._hidden)
        oldest_first = reversed(newest_first(self.tools))
        stored = [t.tool_id for t in oldest_first if t.tool_id in wanted][:places]
        free = max(min(places, shown) - len(stored), 0)
        return (*stored, *[t for t in wanted if t not in self._ids][:free])

    def _counts_as_ranked(self) -> bool:
        return self._bounds.replace_stale and bool(self._turn.ranking) and not self._turn.replayed

    def _top_ids(self) -> frozenset[str]:
        """What this turn's ranking names (replace_stale only)."""
        top = (self._turn.ranking or ())[: self._bounds.top_k] if self._bounds.replace_stale else ()
        return frozenset(s.tool_id for s in top)

    def _mark(self) -> None:
        """Note which stored tools this turn's ranking names."""
        if self._counts_as_ranked():
            self.tools = [replace(t, mark=self.ranked_turns) if t.tool_id in self._top else t for t in self.tools]

    def _pinned(self, tool: StoredTool) -> StoredTool:
        recency = self._recency.get(tool.tool_id)
        if recency is None or (tool.pinned and recency == (tool.called_turn, tool.called_place)):
            return tool
        return replace(tool, pinned=True, called_turn=recency[0], called_place=recency[1])

    def _eligible(self, tool_id: str) -> bool:
        fact = self._turn.facts.get(tool_id)
        return fact is not None and fact.standing is Standing.ELIGIBLE

    def _append(self, tool_id: str, origin: Origin) -> None:
        recency = self._recency.get(tool_id)
        turn, place = recency or (0, 0)
        self.tools.append(
            StoredTool(
                tool_id=tool_id,
                fingerprint=self._turn.facts[tool_id].fingerprint,
                pinned=recency is not None,
                first_seen_turn=self._turn.turn,
                called_turn=turn,
                called_place=place,
                mark=self.ranked_turns,
            )
        )
        self._ids.add(tool_id)
        self.origins[tool_id] = Origin.RETAINED if tool_id in self._prior_ids else origin

    def _drop(self, tool_ids: Iterable[str]) -> None:
        gone = set(tool_ids)
        self.tools = [t for t in self.tools if t.tool_id not in gone]
        self._ids -= gone
        self._hidden -= gone
