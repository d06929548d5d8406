"""What a turn ranks, and by which strategy (rules 5 and 8; section 6 of the design)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

from msgspec import Struct

from toolbelay.application.scene import Scene
from toolbelay.application.turn import ChoiceMode, SelectRequest
from toolbelay.planner.model import Scored
from toolbelay.ranking.port import RankQuery, TenantIndex

STATIC_SCORE = 0.0  # nothing was scored


class Indexes(Protocol):
    """Where a turn finds the index that ranks its tools."""

    async def of(self, scene: Scene, deadline: float) -> TenantIndex:
        """The tenant's index, or one over what the request offers."""


class TurnRanking(Struct, frozen=True, gc=False):
    """What a turn ranked.

    `matches`: best first, thresholds applied; `None` = the turn ranks nothing. `strategy`: what ranked,
    "" where nothing did. `failed`: the route's strategy did not rank. `grows`: whether a seeded session
    may grow by it. `ignored`: candidates that named no eligible tool.
    """

    matches: tuple[Scored, ...] | None = None
    strategy: str = ""
    failed: bool = False
    grows: bool = True
    ignored: int = 0


NOTHING = TurnRanking()


def rank_without_index(request: SelectRequest, scene: Scene) -> TurnRanking | None:
    """The ranking of a turn that ranks nothing, or by the caller's own scores; `None` = `rank_turn` must be asked."""
    strategy = scene.route.strategy
    if request.choice.mode is ChoiceMode.NONE or not scene.route.enabled:
        return NOTHING
    if strategy == "caller":
        return _by_caller(request.candidates, scene)
    return NOTHING if strategy != "static" and not request.query.strip() else None


async def rank_turn(
    request: SelectRequest,
    scene: Scene,
    indexes: Indexes,
    *,
    stored: Sequence[str],
    called: Sequence[str],
    present: int,
    deadline: float,
    chooses: bool = True,
) -> TurnRanking:
    """Rank for one turn that `rank_without_index` leaves open.

    `stored`: tool ids of the session, in its order. `called`: its called tools, most recent last.
    `present`: how many tools the turn may hold before it seeds. `chooses`: whether the ranking may change anything but
    the scores. Never raises for a failing strategy.
    """
    bounds = scene.bounds
    limit = max(bounds.top_k, bounds.seed_tools + present)
    strategy = scene.route.strategy
    if strategy == "static":
        await scene.learn(deadline)
        ids = islice(scene.eligible_ids(), limit)
        return TurnRanking(tuple(Scored(t, STATIC_SCORE) for t in ids), strategy, grows=False)
    route = scene.route
    if chooses:
        await scene.learn(deadline)
    index = await indexes.of(scene, deadline)
    ranking = await index.rank(
        RankQuery(
            query=request.query,
            strategy=strategy,
            eligible=scene.eligible,
            limit=limit,
            threshold=route.threshold or 0.0,
            preserve=route.preserve_count if scene.offer.filters else 0,
            called=tuple(called),
            stored=tuple(stored),
            deadline=deadline,
            options=route.ranking,
            sticky=bool(request.session_id) and route.sticky.enabled,
            memory=scene.ranking_memory,
            chooses=chooses,
        )
    )
    if not ranking.strategy:
        return TurnRanking(None, "", failed=True)
    # The index may lag behind the snapshot: what it names is checked against the authority of now.
    matches = tuple(s for s in ranking.matches if scene.eligible(s.tool_id))
    matches = _preserved(matches, scene)
    return TurnRanking(matches, ranking.strategy, failed=bool(ranking.failed))


def _by_caller(candidates: Sequence[Scored], scene: Scene) -> TurnRanking:
    if not candidates:
        return NOTHING
    known = [c for c in candidates if scene.eligible(c.tool_id)]
    known.sort(key=lambda c: (-c.score, c.tool_id))
    threshold = scene.route.threshold
    reach = len(known) if threshold is None else sum(1 for c in known if c.score >= threshold)
    preserve = scene.route.preserve_count if scene.offer.filters else 0
    matches = _preserved(tuple(known[: max(reach, preserve)]), scene)
    return TurnRanking(matches, "caller", ignored=len(candidates) - len(known))


def _preserved(matches: tuple[Scored, ...], scene: Scene) -> tuple[Scored, ...]:
    """Filter mode: at least the best `preserve_count`; what was not scored comes last, by tool id."""
    missing = scene.route.preserve_count - len(matches) if scene.offer.filters else 0
    if missing <= 0:
        return matches
    have = {s.tool_id for s in matches}
    rest: Iterable[str] = (t for t in scene.eligible_ids() if t not in have)
    return (*matches, *(Scored(t, 0.0) for t in islice(rest, missing)))
