"""The port of ranking: one index per tenant, one call per turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol

from msgspec import Struct, field

from toolbelay.catalog.model import Tool
from toolbelay.planner.model import Scored
from toolbelay.ranking.options import RankingOptions


class RankQuery(Struct, frozen=True, gc=False):
    """What to rank for.

    `query`: the latest user message, any length; rankers read its first and last 8 KiB.
    `eligible`: whether a tool id may be answered to this caller now. Only such ids are returned, and
    evidence from other tools must not show in the order.
    `limit`: how many of the best are wanted; fewer are returned where fewer match.
    `preserve`: at least so many of the best by score are returned even below `threshold` (filter mode).
    `called`: tool ids that the session called (pinned ones), most recent last: context for priors.
    `stored`: tool ids of the session's stored set, in its order.
    `sticky`: later turns of a session will keep what is chosen now, so that priors may look beyond this query;
    False (stateless selections) ranks by relevance to the query alone.
    `deadline`: `asyncio` loop time by which the answer is wanted.
    `chooses`: False where the session stays as it is whatever ranks: then `stored` alone is scored, by relevance to the
    query, which is what a tool's score tells.
    `memory`: where an index may leave what it knows of `eligible`. Two queries have the same one only where `eligible`
    answers the same for both. Bounded by what the index puts in: a byte for each tool.
    """

    query: str
    strategy: str  # keyword | embedding | hybrid | rewrite
    eligible: Callable[[str], bool]
    limit: int
    threshold: float = 0.0
    preserve: int = 0
    called: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    sticky: bool = True
    deadline: float = float("inf")
    options: RankingOptions = field(default_factory=RankingOptions)
    memory: MutableMapping[str, Any] | None = None
    chooses: bool = True


class Ranking(Struct, frozen=True, gc=False):
    """Eligible tools with a score > 0 that reaches the threshold, best first, ties by tool id's bytes.

    `strategy`: what ranked, after any fallback; "" when nothing could rank.
    `failed`: strategies that were tried and failed, in order.
    """

    matches: tuple[Scored, ...]
    strategy: str
    failed: tuple[str, ...] = ()


class TenantIndex(Protocol):
    """Ranks the tools of one tenant. Holds nothing of another tenant."""

    async def refresh(self, tools: Mapping[str, Tool]) -> None:
        """Take the catalog as it stands, by difference, heavy work off the event loop, swapped in whole.

        Concurrent calls are serialized; the last catalog given wins.
        """

    async def rank(self, query: RankQuery) -> Ranking:
        """Rank. Never raises for a failing strategy: falls to the next cheaper one and says so."""

    @property
    def ready(self) -> bool:
        """Whether a first catalog has been taken."""

    async def aclose(self) -> None:
        """Stop work in the background. Idempotent; never raises."""
