"""Recorded sessions played through ranking, planner and rendering, and measured.

The pieces are the service's own; only authority (everything is permitted) and storage (the state stays here)
are left out, so that a route's figures can be had without a server. All of a session's state is let go at
its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from toolbelay.catalog.formats import WireFormat, carries, default_cap, render
from toolbelay.catalog.model import Tool
from toolbelay.catalog.routes import Route
from toolbelay.planner.model import EMPTY_STATE, Bounds, Fact, Scored, SessionState, Standing, TurnInput
from toolbelay.planner.plan import plan_turn
from toolbelay.ranking.port import RankQuery, TenantIndex

BYTES_PER_TOKEN = 4
CACHED = 0.1  # price of a token that the provider's prompt cache holds, beside one that it reads anew
WRITTEN = 1.25  # price of a token that is written to the cache


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """The user's message, and the names of the tools that a correct assistant calls, in order, with repeats."""

    user: str
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """One conversation."""

    name: str
    turns: tuple[RecordedTurn, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One message; any of `calls` answers it."""

    text: str
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measures:
    """What a route did on sessions.

    `call_recall`: share of the needed calls whose tool was advertised in that turn. `unchanged`: share of turns after
    a session's first whose list equals the last turn's. `tools`: mean length of the list. `effective_tokens`: mean
    per turn of 1.25 x the tokens after the longest common prefix with the last turn's list + 0.1 x those in it.
    """

    call_recall: float
    unchanged: float
    tools: float
    effective_tokens: float
    turns: int
    calls: int


@dataclass(frozen=True, slots=True)
class Hit:
    """How a strategy answers questions: shares with a right tool among the first 1, 5, 10 and 16."""

    top1: float
    at5: float
    at10: float
    at16: float
    questions: int


class Catalog:
    """The tools that a replay offers: those that the format carries, by every name that a recording may use."""

    def __init__(self, tools: Iterable[Tool], wire_format: WireFormat) -> None:
        self.tools: Mapping[str, Tool] = {t.tool_id: t for t in tools}
        self.wire_format = wire_format
        self.carried = frozenset(i for i, t in self.tools.items() if carries(t, wire_format))
        self._sizes: dict[str, float] = {}
        self._by_name: dict[str, str] = {}
        for tool_id in sorted(self.tools, key=str.encode):
            tool = self.tools[tool_id]
            for name in (tool_id, tool.exposed_name, tool.name):
                self._by_name.setdefault(name, tool_id)

    def resolve(self, name: str) -> str | None:
        """A recorded name as tool id: a tool id, an exposed name, or the first tool of a bare name."""
        return name if name in self.tools else self._by_name.get(name)

    def tokens(self, tool_ids: Iterable[str]) -> float:
        """Tokens of their definitions in the format, bytes / 4."""
        total = 0.0
        for tool_id in tool_ids:
            if tool_id not in self._sizes:
                self._sizes[tool_id] = len(render(self.tools[tool_id], self.wire_format)) / BYTES_PER_TOKEN
            total += self._sizes[tool_id]
        return total


@dataclass(slots=True)
class _Tally:
    hits: int = 0
    calls: int = 0
    turns: int = 0
    later: int = 0
    unchanged: int = 0
    tools: int = 0
    effective: float = 0.0


@dataclass(slots=True)
class _Playing:
    """One session as it is played."""

    state: SessionState = EMPTY_STATE
    answer: tuple[str, ...] | None = None
    called: tuple[str, ...] = field(default=())  # of the last turn, to be reported on the next


async def replay_sessions(
    index: TenantIndex,
    catalog: Catalog,
    route: Route,
    sessions: Sequence[RecordedSession],
    advance: Callable[[], None] = lambda: None,
) -> Measures:
    """Play all sessions on one route; `advance` is called after each session."""
    tally = _Tally()
    for session in sessions:
        playing = _Playing()
        for number, turn in enumerate(session.turns, start=1):
            answer = await _turn(index, catalog, route, playing, turn, number)
            _count(tally, catalog, playing, turn, answer)
        advance()
    return Measures(
        call_recall=tally.hits / max(tally.calls, 1),
        unchanged=tally.unchanged / max(tally.later, 1),
        tools=tally.tools / max(tally.turns, 1),
        effective_tokens=tally.effective / max(tally.turns, 1),
        turns=tally.turns,
        calls=tally.calls,
    )


async def ask_questions(
    index: TenantIndex,
    catalog: Catalog,
    strategy: str,
    questions: Sequence[Question],
    advance: Callable[[], None] = lambda: None,
) -> Hit:
    """Rank each question alone, as a stateless selection does."""
    counts = [0, 0, 0, 0]
    for question in questions:
        ranking = await index.rank(RankQuery(question.text, strategy, catalog.carried.__contains__, 16, sticky=False))
        wanted = {catalog.resolve(name) for name in question.calls}
        place = next((n for n, match in enumerate(ranking.matches) if match.tool_id in wanted), 16)
        counts = [count + (place < most) for count, most in zip(counts, (1, 5, 10, 16), strict=True)]
        advance()
    top1, at5, at10, at16 = (count / max(len(questions), 1) for count in counts)
    return Hit(top1, at5, at10, at16, len(questions))


async def _turn(
    index: TenantIndex, catalog: Catalog, route: Route, playing: _Playing, turn: RecordedTurn, number: int
) -> tuple[str, ...]:
    state = playing.state if route.sticky.enabled else EMPTY_STATE
    bounds = _bounds(route, catalog.wire_format)
    ranking = await _ranked(index, catalog, route, state, playing.called, turn.user, bounds)
    static = route.strategy == "static"
    fill = () if state.seeded or ranking else _on_no_match(catalog, route)
    named = (
        *(t.tool_id for t in state.tools),
        *playing.called,
        *route.required_tools,
        *route.core_tools,
        *fill,
        *(match.tool_id for match in ranking or ()),
    )
    plan = plan_turn(
        TurnInput(
            state=state,
            facts={i: _fact(catalog, i) for i in named if i in catalog.tools},
            turn=number,
            bounds=bounds,
            ranking=ranking,
            grows=not static,
            called=playing.called,
            required=route.required_tools,
            core=route.core_tools,
            fill=fill,
        )
    )
    playing.state = plan.state
    return tuple(tool.tool_id for tool in plan.tools)


async def _ranked(
    index: TenantIndex,
    catalog: Catalog,
    route: Route,
    state: SessionState,
    called: tuple[str, ...],
    user: str,
    bounds: Bounds,
) -> tuple[Scored, ...] | None:
    limit = max(bounds.top_k, bounds.seed_tools + len(state.tools))
    if route.strategy == "static":
        first = sorted(catalog.carried, key=str.encode)[:limit]
        return tuple(Scored(tool_id, 0.0) for tool_id in first)
    if route.strategy == "caller" or not user.strip():
        return None
    pins = sorted((t for t in state.tools if t.pinned), key=lambda t: (t.called_turn, t.called_place))
    ranking = await index.rank(
        RankQuery(
            query=user,
            strategy=route.strategy,
            eligible=catalog.carried.__contains__,
            limit=limit,
            threshold=route.threshold or 0.0,
            called=tuple(dict.fromkeys((*(t.tool_id for t in pins), *called))),
            stored=tuple(t.tool_id for t in state.tools),
            options=route.ranking,
            sticky=route.sticky.enabled,
        )
    )
    return ranking.matches if ranking.strategy else None


def _bounds(route: Route, wire_format: WireFormat) -> Bounds:
    sticky = route.sticky
    return Bounds(
        max_tools=sticky.max_tools,
        max_new_tools_per_turn=sticky.max_new_tools_per_turn,
        top_k=route.top_k,
        seed_tools=route.seed_tools,
        capacity=min(sticky.max_tools, default_cap(wire_format) or sticky.max_tools),
        pin_called_tools=sticky.pin_called_tools,
        replace_stale=sticky.when_full == "replace_stale",
        stale_after_turns=sticky.stale_after_turns,
    )


def _fact(catalog: Catalog, tool_id: str) -> Fact:
    standing = Standing.ELIGIBLE if tool_id in catalog.carried else Standing.NOT_CARRIED
    return Fact(standing, catalog.tools[tool_id].fingerprint)


def _on_no_match(catalog: Catalog, route: Route) -> tuple[str, ...]:
    if route.on_no_match == "all":
        return tuple(sorted(catalog.carried, key=str.encode)[: route.seed_tools])
    return route.core_tools if route.on_no_match == "core" else ()


def _count(tally: _Tally, catalog: Catalog, playing: _Playing, turn: RecordedTurn, answer: tuple[str, ...]) -> None:
    prefix = 0
    if playing.answer is not None:
        tally.later += 1
        tally.unchanged += answer == playing.answer
        for one, other in zip(answer, playing.answer, strict=False):
            if one != other:
                break
            prefix += 1
    tally.turns += 1
    tally.tools += len(answer)
    tally.effective += CACHED * catalog.tokens(answer[:prefix]) + WRITTEN * catalog.tokens(answer[prefix:])
    advertised = set(answer)
    wanted = [catalog.resolve(name) for name in turn.calls]
    hits = [tool_id for tool_id in wanted if tool_id is not None and tool_id in advertised]
    tally.calls += len(wanted)
    tally.hits += len(hits)
    playing.answer = answer
    playing.called = tuple(hits)
