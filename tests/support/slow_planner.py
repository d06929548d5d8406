"""The rules of a turn, written a second time: one tool after another, slow and plain, from the sentences alone.

Shares no code with the planner but its values. What it says is compared with what the planner does.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from toolbelay.planner.model import Standing, StoredTool, TurnInput


class RequiredError(Exception):
    """Rule 3's error; the argument is its reason."""


@dataclass
class SlowPlan:
    """What a turn answers and stores."""

    answer: list[tuple[str, str, bool]]  # (id, origin, pinned)
    stored: list[tuple[str, bool, int]]  # (id, pinned, first-seen turn)
    recency: list[str]  # pins, called longest ago first
    outcome: str
    seeded: bool
    evicted: int
    hidden: int


def slow_plan(turn: TurnInput) -> SlowPlan:
    return _Slow(turn).play()


class _Slow:
    def __init__(self, turn: TurnInput) -> None:
        self.turn, self.bounds = turn, turn.bounds
        self.tools: list[StoredTool] = []
        self.pins: list[str] = []
        self.core: list[str] = []
        self.origins: dict[str, str] = {}
        self.known = {t.tool_id for t in turn.state.tools}

    def play(self) -> SlowPlan:
        turn = self.turn
        self.required = self.require()
        self.revalidate()
        revalidated = {t.tool_id for t in self.tools}
        cold = turn.cold and turn.state.seeded and bool(turn.ranking)
        if cold:
            self.tools = [t for t in self.tools if t.pinned]
        self.pin()
        self.core = self.fitting_core()
        for tool_id in self.required:
            self.must_have(tool_id, "REQUIRED")
        for tool_id in dict.fromkeys(turn.core):
            if tool_id in self.core or (tool_id in self.pins and self.eligible(tool_id)):
                self.must_have(tool_id, "CORE")
        for tool_id in self.pins:
            self.must_have(tool_id, "ADDED_CALLED")
        while len(self.tools) > self.bounds.max_tools:
            self.evict()
        seeded = turn.state.seeded and not cold
        if seeded:
            top = [s.tool_id for s in (turn.ranking or ())[: self.bounds.top_k]]
            self.relevance(top if turn.grows else [], self.bounds.max_new_tools_per_turn - turn.spent, "ADDED_RELEVANT")
        elif turn.ranking:
            self.relevance([s.tool_id for s in turn.ranking], self.bounds.seed_tools, "SEEDED")
        shown = self.shown()
        answer = [(t.tool_id, self.origins[t.tool_id], t.pinned) for t in shown]
        if not seeded and not turn.ranking:
            have = {t.tool_id for t in self.tools}
            fill = [t for t in turn.fill if t not in have and self.eligible(t)][: self.bounds.seed_tools]
            answer += [(t, "SEEDED", False) for t in fill[: max(self.bounds.capacity - len(shown), 0)]]
        outcome = "UPDATED" if seeded else "UNSEEDED" if not turn.ranking else "RESET" if cold else "SEEDED"
        have = {t.tool_id for t in self.tools}
        return SlowPlan(
            answer=answer,
            stored=[(t.tool_id, t.pinned, t.first_seen_turn) for t in self.tools],
            recency=[t for t in self.pins if t in have],
            outcome=outcome,
            seeded=outcome != "UNSEEDED",
            evicted=len(revalidated - have),
            hidden=len(self.tools) - len(shown),
        )

    # What is there.

    def eligible(self, tool_id: str) -> bool:
        fact = self.turn.facts.get(tool_id)
        return fact is not None and fact.standing is Standing.ELIGIBLE

    def require(self) -> list[str]:
        wanted = list(dict.fromkeys([*self.turn.required, *([self.turn.named] if self.turn.named else [])]))
        if not all(self.eligible(t) for t in wanted):
            raise RequiredError("REQUIRED_TOOL_UNAVAILABLE")
        if len(wanted) > self.bounds.capacity:
            raise RequiredError("REQUIRED_TOOLS_EXCEED_CAPACITY")
        return wanted

    def revalidate(self) -> None:
        kept: list[StoredTool] = []
        changed: list[StoredTool] = []
        for stored in self.turn.state.tools:
            fact = self.turn.facts.get(stored.tool_id)
            if fact is None or fact.standing is Standing.DENIED:
                continue
            tool = stored if self.bounds.pin_called_tools else replace(stored, pinned=False)
            if fact.fingerprint == tool.fingerprint:
                kept.append(tool)
                self.origins[tool.tool_id] = "RETAINED"
            else:
                changed.append(replace(tool, first_seen_turn=self.turn.turn, fingerprint=fact.fingerprint))
                self.origins[tool.tool_id] = "ADDED_CHANGED"
        self.tools = kept + changed

    # Pins.

    def pin(self) -> None:
        """Move each reported tool to the end of the order of recency, then let the oldest go until the rest fits."""
        self.pins = []
        if not self.bounds.pin_called_tools:
            return
        pinned = [t for t in self.tools if t.pinned]
        order = [t.tool_id for t in sorted(pinned, key=lambda t: (t.called_turn, t.called_place))]
        later = {t.tool_id for t in pinned if t.called_turn > self.turn.turn}
        end = len(order) - len(later)
        for tool_id in self.turn.called:
            if tool_id in later or not (self.eligible(tool_id) or tool_id in {t.tool_id for t in pinned}):
                continue
            if tool_id in order:
                order.remove(tool_id)
                end -= 1
            order.insert(end, tool_id)
            end += 1
        present = {t.tool_id for t in self.tools}
        for at, tool_id in enumerate(order):
            if tool_id in self.required:
                self.pins.append(tool_id)
                continue
            after = [t for t in order[at + 1 :] if t not in self.required]
            after = [t for t in after if t in present or self.fits_answer(t, order)]
            fits_state = len(after) < self.bounds.max_tools - len(self.required)
            if fits_state and (tool_id in present or self.fits_answer(tool_id, order)):
                self.pins.append(tool_id)
        self.tools = [t for t in self.tools if not t.pinned or t.tool_id in self.pins]
        self.tools = [replace(t, pinned=t.tool_id in self.pins) for t in self.tools]

    def fits_answer(self, tool_id: str, order: list[str]) -> bool:
        """Whether the answer has a place for a missing tool beside what was called after it."""
        present = {t.tool_id for t in self.tools}
        places = self.bounds.capacity - len(self.required)
        state = self.bounds.max_tools - len(self.required)
        for other in reversed(order[order.index(tool_id) + 1 :]):
            if other in self.required or state <= 0 or (other not in present and places <= 0):
                continue
            state -= 1
            places -= self.eligible(other)
        return places > 0 and state > 0

    # Places.

    def fitting_core(self) -> list[str]:
        musts = {*self.required, *self.pins}
        wanted = [t for t in dict.fromkeys(self.turn.core) if t not in musts and self.eligible(t)]
        state = self.bounds.max_tools - len(musts)
        answer = self.bounds.capacity - sum(self.eligible(t) for t in musts)
        order = sorted(enumerate(self.tools), key=lambda p: (p[1].first_seen_turn, p[0]))
        fitting: list[str] = []
        for tool_id in [t.tool_id for _, t in order if t.tool_id in wanted]:
            if len(fitting) < state:
                fitting.append(tool_id)
        present = {t.tool_id for t in self.tools}
        for tool_id in wanted:
            if tool_id not in present and len(fitting) < min(state, answer):
                fitting.append(tool_id)
        return fitting

    def must_have(self, tool_id: str, origin: str) -> None:
        if any(t.tool_id == tool_id for t in self.tools):
            return
        while len(self.tools) >= self.bounds.max_tools:
            self.evict()
        self.append(tool_id, origin)

    def evict(self) -> None:
        safe = {*self.required, *self.core, *self.pins}
        open_tools = [t for t in self.tools if t.tool_id not in safe]
        hidden = [t for t in open_tools if not self.eligible(t.tool_id)]
        self.tools.remove(self.newest(hidden or open_tools))

    def newest(self, tools: list[StoredTool]) -> StoredTool:
        return max(tools, key=lambda t: (t.first_seen_turn, self.tools.index(t)))

    def append(self, tool_id: str, origin: str) -> None:
        fingerprint = self.turn.facts[tool_id].fingerprint
        self.tools.append(StoredTool(tool_id, fingerprint, tool_id in self.pins, self.turn.turn))
        self.origins[tool_id] = "RETAINED" if tool_id in self.known else origin

    # Relevance.

    def relevance(self, ranked: list[str], budget: int, origin: str) -> None:
        ranked = [t for t in ranked if self.eligible(t) and t not in {x.tool_id for x in self.tools}]
        for tool_id in ranked[: max(budget, 0)]:
            if not self.make_room():
                return
            self.append(tool_id, origin)

    def make_room(self) -> bool:
        safe = {*self.required, *self.core, *self.pins}
        visible = [t for t in self.tools if self.eligible(t.tool_id)]
        over_answer = len(visible) + 1 - self.bounds.capacity
        over_state = len(self.tools) + 1 - self.bounds.max_tools
        if over_answer <= 0 and over_state <= 0:
            return True
        hidden = [t for t in self.tools if not self.eligible(t.tool_id) and t.tool_id not in safe]
        if over_answer <= 0 and len(hidden) >= over_state:
            for _ in range(over_state):
                gone = self.newest(hidden)
                hidden.remove(gone)
                self.tools.remove(gone)
            return True
        return False

    def shown(self) -> list[StoredTool]:
        shown = [t for t in self.tools if self.eligible(t.tool_id)]
        while len(shown) > self.bounds.capacity:
            plain = [t for t in shown if t.tool_id not in {*self.required, *self.turn.core, *self.pins}]
            core = [t for t in shown if t.tool_id in self.core and t.tool_id not in {*self.required, *self.pins}]
            if plain or core:
                shown.remove(self.newest(plain or core))
            else:
                oldest = next(t for t in self.pins if t not in self.required and any(x.tool_id == t for x in shown))
                shown = [t for t in shown if t.tool_id != oldest]
        return shown
