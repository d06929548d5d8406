"""What a settled turn tells its caller: outcome, reason, choice, counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from toolbelay.application.access import Access
from toolbelay.application.answer import stable_prefix, surface_digest
from toolbelay.application.planning import Planned
from toolbelay.application.settling import Settled
from toolbelay.application.tool_choice import answer_choice, narrowed
from toolbelay.application.turn import SelectAnswer, SelectRequest, ToolChoice
from toolbelay.planner.model import Counts, Outcome, Reason
from toolbelay.sessions.port import Found

# These say more about the answer than a tool_choice that could not be kept.
_STRONGER = frozenset(
    {
        Reason.COLD,
        Reason.STATE_DAMAGED,
        Reason.STATE_UNAVAILABLE,
        Reason.STATE_CONFLICT,
        Reason.SESSION_ENDED,
    }
)
NO_COUNTS = Counts(0, 0, 0, 0, 0, 0, 0, 0, 0)


def answer_of(request: SelectRequest, access: Access, settled: Settled) -> SelectAnswer:
    """The answer of a turn that was settled."""
    planned, opened = settled.planned, settled.opened
    scene, items, digests = planned.scene, planned.items, planned.digests
    choice, dropped = _choice(request, planned)
    outcome, reason = _outcome(access, settled, digests)
    if dropped and reason not in _STRONGER:
        reason = Reason.TOOL_CHOICE_DROPPED
    return SelectAnswer(
        items=items,
        choice=choice,
        outcome=outcome,
        reason=reason,
        counts=planned.plan.counts,
        turn=opened.turn if opened is not None else 0,
        revision=settled.revision,
        generation=scene.snapshot.generation,
        strategy=planned.ranking.strategy,
        advertised_tokens=planned.footprint.tokens,
        whole_catalog_tokens=scene.snapshot.surface.whole_tokens(scene.target.format),
        replayed=opened is not None and opened.replayed,
        caller_owned=len(scene.offer.owned),
        called_ignored=planned.called_ignored,
        candidates_ignored=planned.ranking.ignored,
        offered_dropped=scene.offer.dropped,
        surface_digest=planned.footprint.digest,
        stable_prefix=stable_prefix(digests, opened.state.last_answer if opened is not None else ()),
    )


def toolless_answer(request: SelectRequest, access: Access, offered: int) -> SelectAnswer:
    """The answer for a target that takes no tools. `offered`: items that the caller offered."""
    choice, dropped = answer_choice(request.choice, ())
    return SelectAnswer(
        items=(),
        choice=choice,
        outcome=Outcome.STATELESS,
        reason=Reason.TOOL_CHOICE_DROPPED if dropped else Reason.TARGET_WITHOUT_TOOLS,
        counts=NO_COUNTS,
        turn=0,
        revision=0,
        generation=access.snapshot.generation,
        strategy="",
        advertised_tokens=0,
        whole_catalog_tokens=access.snapshot.surface.whole_tokens(request.target.format),
        replayed=False,
        caller_owned=0,
        called_ignored=0,
        candidates_ignored=0,
        offered_dropped=offered,
        surface_digest=surface_digest(()),
        stable_prefix=0,
    )


def _choice(request: SelectRequest, planned: Planned) -> tuple[ToolChoice, bool]:
    choice, dropped = answer_choice(request.choice, planned.items)
    scene = planned.scene
    if scene.route.narrow == "allowed_tools" and scene.target.format.is_openai and planned.ranking.matches:
        keep = planned.plan.relevant | {*scene.route.core_tools, *scene.route.required_tools}
        choice = narrowed(choice, planned.items, keep) or choice
    return choice, dropped


def _outcome(access: Access, settled: Settled, digests: Sequence[bytes]) -> tuple[Outcome, Reason | None]:
    plan, opened = settled.planned.plan, settled.opened
    fallback = Reason.RANKER_FALLBACK if settled.planned.ranking.failed else None
    if opened is None:
        reason = settled.reason or access.stateless
        return Outcome.STATELESS, reason if reason is Reason.STATE_UNAVAILABLE else fallback or reason
    if opened.found is Found.DAMAGED:
        fresh = Outcome.RESET if plan.outcome is Outcome.SEEDED else plan.outcome
        return fresh, settled.reason or Reason.STATE_DAMAGED
    if plan.outcome is Outcome.RESET:
        return plan.outcome, settled.reason or plan.reason
    same = opened.found is Found.PRESENT and digests == opened.state.last_answer
    outcome = Outcome.REUSED if same and plan.outcome is Outcome.UPDATED else plan.outcome
    return outcome, settled.reason or fallback or plan.reason
