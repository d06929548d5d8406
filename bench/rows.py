"""The rows of the table, with what they must reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench import world
from bench.cases import AUTHORIZE, Case, Turns

MANY_SESSIONS = 6_000
ADDED_SESSIONS = 4_000  # each takes four turns that add two tools
NAMED = "named60"


def tenants(tools: list[dict[str, Any]]) -> Mapping[str, Mapping[str, str]]:
    """A tenant for each policy set."""
    return {
        "bench": world.policies(1, tools),
        "p60": world.policies(60, tools),
        "p300": world.policies(300, tools),
        NAMED: world.policies(60, tools, single=True),
    }


def unchanged_caller(turns: Turns, name: str = "unchanged turn, caller, 1,241 tools") -> Case:
    """A turn whose candidates the session has all."""
    seeded = turns.seeded("caller")
    return Case(name, turns.unchanged("caller", candidates=8), (seeded, seeded), must=0.55, goal=0.80)


def at_1241(ids: Sequence[str]) -> Iterator[Case]:
    """All cases at 1,241 tools."""
    turns = Turns(ids)
    hybrid, keyword = turns.seeded("default"), turns.seeded("keyword")
    yield unchanged_caller(turns)
    yield _hybrid(turns, "unchanged turn, hybrid, 1,241 tools", 0.40, 0.65)
    yield Case("unchanged turn, keyword, 1,241 tools", turns.unchanged("keyword"), (keyword, keyword))
    yield Case(
        "unchanged turn, hybrid, 1,241 tools, one query",
        turns.unchanged("default", same_text=True),
        (hybrid, hybrid),
        remark="the same text each time",
    )
    yield _without_text(turns, "unchanged turn without text, 1,241 tools")
    many = turns.seeded("crowded", MANY_SESSIONS)
    yield Case(
        "unchanged turn, caller, 6,000 sessions in turns",
        turns.unchanged("crowded", candidates=8, sessions=MANY_SESSIONS),
        (many, many),
        remark="more sessions than are remembered",
    )
    yield Case(
        "turn that adds 2, caller",
        turns.adding("add", ADDED_SESSIONS),
        (turns.known(), turns.first("growing", "add", ADDED_SESSIONS)),
        wraps=False,
        outcome="UPDATED",
        added=2,
        tools=10,
        must=0.40,
        goal=0.60,
    )
    yield _first(turns, "first turn of a new session, known principal", "first", 0.35, 0.55)
    yield Case(
        "first turn of a new session, hybrid",
        turns.first("default", "first-hybrid", 6_000),
        (turns.known(),),
        wraps=False,
        outcome="SEEDED",
        added=16,
        remark="a new query each: ranks the whole catalog",
    )
    yield _strangers(ids, "new principal each call, 60 policies by toolset and tag", "p60", 0.15, 0.35)
    yield _strangers(ids, "new principal each call, 60 policies, a third name single tools", NAMED)
    for tenant, count in (("p60", 60), ("p300", 300)):
        yield unchanged_caller(Turns(ids, tenant), f"unchanged turn, caller, {count} policies")
    yield Case("AuthorizeToolCalls, 3 calls", turns.calls("caller", turns.names), (turns.seeded("caller"),), AUTHORIZE)


def by_size(ids: Sequence[str], size: str, *, must_hybrid: tuple[float, float] | None) -> Iterator[Case]:
    """The cases that depend on the size of the catalog."""
    turns = Turns(ids)
    must, goal = must_hybrid or (None, None)
    yield _without_text(turns, f"unchanged turn without text, {size} tools")
    yield unchanged_caller(turns, f"unchanged turn, caller, {size} tools")
    yield _hybrid(turns, f"unchanged turn, hybrid, {size} tools", must, goal)


def of_workers(ids: Sequence[str], workers: int) -> Iterator[Case]:
    """One case, over more connections."""
    yield unchanged_caller(Turns(ids), f"unchanged turn, caller, {workers} workers, 16 connections")


def _hybrid(turns: Turns, name: str, must: float | None, goal: float | None) -> Case:
    seeded = turns.seeded("default")
    return Case(name, turns.unchanged("default"), (seeded, seeded), must=must, goal=goal, remark="a new query each")


def _without_text(turns: Turns, name: str) -> Case:
    seeded = turns.seeded("default")
    return Case(name, turns.unchanged("default", text=False), (seeded, seeded), must=0.55, goal=0.80)


def _first(turns: Turns, name: str, sessions: str, must: float, goal: float) -> Case:
    records = turns.first("growing", sessions)
    return Case(name, records, (turns.known(),), wraps=False, outcome="SEEDED", added=8, tools=8, must=must, goal=goal)


def _strangers(
    ids: Sequence[str], name: str, tenant: str, must: float | None = None, goal: float | None = None
) -> Case:
    records = Turns(ids, tenant).strangers("growing", tenant)
    return Case(name, records, wraps=False, outcome="SEEDED", added=8, tools=8, must=must, goal=goal)
