"""What is measured: for each row of the table the requests, what prepares for them, and what the answers must be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from bench import world
from bench.generator import Record
from bench.limits import METHOD
from bench.stage import TENANT, bearer
from toolbelay.v1 import selection_pb2 as pb

AUTHORIZE = "/toolbelay.v1.ToolSelectionService/AuthorizeToolCalls"
PRINCIPALS = 64
TURNS = 8_192  # distinct requests of a row that leaves its sessions as they are; they begin again at the end
ONCE = 16_384  # requests that can be sent only once: more than are answered in the time of a run
PER_PRINCIPAL = 60  # sessions, below the service's quota


@dataclass(frozen=True, slots=True)
class Case:
    """One row.

    `prepare`: sent once before, in this order, each list to its end. `records`: sent until the time is up; not `wraps`:
    each at most once. `outcome`, `added`, `tools`: of the answers (SelectTools). `must`, `goal`: least ratio to
    *handler + one script call*. `port`: of another listener than the service's first.
    """

    name: str
    records: Callable[[], Iterator[Record]]
    prepare: tuple[Callable[[], Iterator[Record]], ...] = ()
    method: str = METHOD
    wraps: bool = True
    outcome: str = "REUSED"
    added: int = 0
    tools: int = 16
    must: float | None = None
    goal: float | None = None
    remark: str = ""
    port: int = 0


class Turns:
    """Requests against one catalog under one tenant's policies."""

    def __init__(self, ids: Sequence[str], tenant: str = TENANT, label: str = "") -> None:
        self._ids = ids
        self._tenant = tenant
        self._label = label or tenant
        self._tokens = [bearer(f"user-{number}", tenant) for number in range(PRINCIPALS)]
        chance = random.Random(7)
        self._sets = [chance.sample(ids, 16) for _ in range(PRINCIPALS)]

    def seeded(self, route: str, sessions: int = PRINCIPALS) -> Callable[[], Iterator[Record]]:
        """A first turn for each session, with 16 tools where the route lets it."""

        def records() -> Iterator[Record]:
            asked = world.queries(1)
            for number in range(sessions):
                session = self._session(route, number)
                token = self._member(number % self._crowd(sessions))
                yield self._select(token, route, session, next(asked), self._sets[number % PRINCIPALS])

        return records

    def unchanged(
        self,
        route: str,
        *,
        text: bool = True,
        same_text: bool = False,
        candidates: int = 0,
        sessions: int = PRINCIPALS,
    ) -> Callable[[], Iterator[Record]]:
        """Turns of those sessions that change nothing."""

        def records() -> Iterator[Record]:
            asked = world.queries(2)
            query = next(asked)
            for turn in range(TURNS):
                number = turn % sessions
                query = query if same_text else next(asked)
                chosen = random.Random(turn).sample(self._sets[number % PRINCIPALS], candidates)
                token = self._member(number % self._crowd(sessions))
                yield self._select(token, route, self._session(route, number), query if text else "", chosen)

        return records

    def first(self, route: str, name: str, count: int = ONCE) -> Callable[[], Iterator[Record]]:
        """The first turns of new sessions of known principals."""

        def records() -> Iterator[Record]:
            asked = world.queries(3)
            for turn in range(count):
                number = turn % self._crowd(count)
                token = self._member(number)
                session = f"{name}-{turn}"
                yield self._select(token, route, session, next(asked), self._chosen(turn, 0))

        return records

    def known(self, count: int = ONCE) -> Callable[[], Iterator[Record]]:
        """One call without a session for each principal of `first`."""

        def records() -> Iterator[Record]:
            for number in range(self._crowd(count)):
                yield self._select(self._member(number), "caller", "", "", self._sets[0])

        return records

    def adding(self, name: str, count: int) -> Callable[[], Iterator[Record]]:
        """Four turns for each session of `first(…, count)`, each with two tools that the session has not."""

        def records() -> Iterator[Record]:
            asked = world.queries(4)
            for step in range(1, 5):
                for turn in range(count):
                    token = self._member(turn % self._crowd(count))
                    yield self._select(token, "growing", f"{name}-{turn}", next(asked), self._chosen(turn, step))

        return records

    def strangers(self, route: str, name: str) -> Callable[[], Iterator[Record]]:
        """A principal that nobody has seen for each call, of one of four sets of roles."""

        def records() -> Iterator[Record]:
            asked = world.queries(5)
            for turn in range(ONCE):
                roles = world.ROLE_SETS[turn % len(world.ROLE_SETS)]
                token = bearer(f"{name}-{turn}", self._tenant, roles)
                yield self._select(token, route, "chat", next(asked), self._chosen(turn, 0))

        return records

    def calls(self, route: str, names: Callable[[int], Sequence[str]]) -> Callable[[], Iterator[Record]]:
        """AuthorizeToolCalls for three tools of a seeded session. `names`: exposed names by principal."""

        def records() -> Iterator[Record]:
            for number in range(PRINCIPALS):
                request = pb.AuthorizeToolCallsRequest(
                    route=route,
                    session_id=self._session(route, number),
                    calls=[pb.ToolCall(call_id=f"c{n}", name=name) for n, name in enumerate(names(number)[:3])],
                )
                yield Record.of(self._tokens[number], request)

        return records

    def names(self, number: int) -> Sequence[str]:
        """Exposed names of the tools of a principal's session: their own, which are unique in these catalogs."""
        return [tool_id.partition("/")[2] for tool_id in self._sets[number]]

    def _select(self, token: str, route: str, session: str, query: str, candidates: Sequence[str]) -> Record:
        request = pb.SelectToolsRequest(
            route=route,
            session_id=session,
            query=query,
            candidates=[pb.RankedCandidate(tool_id=t, score=1 - n / 32) for n, t in enumerate(candidates)],
        )
        return Record.of(token, request)

    def _session(self, route: str, number: int) -> str:
        return f"{self._label}-{route}-{number}"

    def _crowd(self, sessions: int) -> int:
        """How many principals share the sessions."""
        return max(min(PRINCIPALS, sessions), -(-sessions // PER_PRINCIPAL))

    def _member(self, number: int) -> str:
        while len(self._tokens) <= number:
            self._tokens.append(bearer(f"user-{len(self._tokens)}", self._tenant))
        return self._tokens[number]

    def _chosen(self, turn: int, step: int) -> Sequence[str]:
        """Eight candidates; for steps above 0 the first two are new to the session, the others are its own."""
        own = list(islice(_stride(self._ids, turn), 16))
        return own[:8] if step == 0 else [*own[6 + 2 * step : 8 + 2 * step], *own[:6]]


def _stride(ids: Sequence[str], turn: int) -> Iterator[str]:
    """Sixteen different ids, other ones for each turn."""
    step = max(1, len(ids) // 17)
    return (ids[(turn + n * step) % len(ids)] for n in range(16))
