"""Plays turns on the pure planner: a session, what authority says of its tools, and one call per turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from toolbelay.planner.model import EMPTY_STATE, Bounds, Fact, Plan, Scored, Standing, StoredTool, TurnInput
from toolbelay.planner.plan import plan_turn


def fingerprint(tool_id: str, version: int = 0) -> bytes:
    """32 bytes that differ by tool and version."""
    return f"{tool_id}#{version}".encode().ljust(32, b".")[:32]


def scored(tool_ids: Iterable[str]) -> tuple[Scored, ...]:
    """A ranking, best first."""
    listed = list(tool_ids)
    return tuple(Scored(t, float(len(listed) - i)) for i, t in enumerate(listed))


class Table:
    """One session at the planner. Every tool is eligible until said otherwise; ids are single letters."""

    def __init__(self, catalog: str = "abcdefghijklmnopqrstuvwxyz", **bounds: int | bool) -> None:
        self.facts = {t: Fact(Standing.ELIGIBLE, fingerprint(t)) for t in catalog}
        self.bounds = bounds_of(**bounds)
        self.state = EMPTY_STATE
        self.number = 0
        self.core: tuple[str, ...] = ()
        self.required: tuple[str, ...] = ()

    def stands(self, standing: Standing, tools: str) -> None:
        """From now on these tools stand so."""
        for tool_id in tools:
            self.facts[tool_id] = replace(self.facts[tool_id], standing=standing)

    def gone(self, tools: str) -> None:
        """From now on the catalog lacks these tools."""
        for tool_id in tools:
            self.facts.pop(tool_id, None)

    def changed(self, tools: str, version: int = 1) -> None:
        """From now on these tools have another definition."""
        for tool_id in tools:
            self.facts[tool_id] = replace(self.facts[tool_id], fingerprint=fingerprint(tool_id, version))

    def bound(self, **bounds: int | bool) -> None:
        """From now on these bounds hold; `max_tools` moves `capacity` unless that is given."""
        if "max_tools" in bounds:
            bounds.setdefault("capacity", bounds["max_tools"])
        self.bounds = replace(self.bounds, **bounds)

    def input(
        self, ranked: str | None = None, called: str = "", *, again: tuple[int, int] | None = None, **more: object
    ) -> TurnInput:
        """The input of the next turn, or of a repeat: `again` = (its number, what it spent)."""
        number, spent = again or (self.number + 1, 0)
        return TurnInput(
            state=self.state,
            facts=dict(self.facts),
            turn=number,
            bounds=self.bounds,
            ranking=None if ranked is None else scored(t for t in ranked if self.eligible(t)),
            called=tuple(called),
            required=self.required,
            core=self.core,
            spent=spent,
            replayed=again is not None,
            **more,  # type: ignore[arg-type]
        )

    def turn(self, ranked: str | None = None, called: str = "", **more: object) -> Plan:
        """Play one turn and store its result."""
        given = self.input(ranked, called, **more)  # type: ignore[arg-type]
        plan = plan_turn(given)
        self.number = max(self.number, given.turn)
        self.state = plan.state
        return plan

    def eligible(self, tool_id: str) -> bool:
        fact = self.facts.get(tool_id)
        return fact is not None and fact.standing is Standing.ELIGIBLE

    @property
    def stored(self) -> str:
        """Ids of the stored set, in order."""
        return "".join(t.tool_id for t in self.state.tools)

    @property
    def pins(self) -> str:
        """Pinned ids in the stored order."""
        return "".join(t.tool_id for t in self.state.tools if t.pinned)

    def of(self, tool_id: str) -> StoredTool:
        """One stored tool."""
        return next(t for t in self.state.tools if t.tool_id == tool_id)


def bounds_of(**given: int | bool) -> Bounds:
    """Bounds with the route's defaults: capacity is max_tools, seeds are min(top_k, max_tools)."""
    max_tools = int(given.get("max_tools", 16))
    given.setdefault("capacity", max_tools)
    given.setdefault("max_new_tools_per_turn", min(2, max_tools))
    given.setdefault("seed_tools", min(int(given.get("top_k", 8)), max_tools))
    return Bounds(**given)  # type: ignore[arg-type]


def answered(plan: Plan) -> str:
    """Ids of the answer, in order."""
    return "".join(t.tool_id for t in plan.tools)


def origins(plan: Plan) -> Sequence[tuple[str, str]]:
    """(id, origin) of the answer."""
    return [(t.tool_id, t.origin.value) for t in plan.tools]
