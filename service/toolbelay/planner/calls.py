"""Which calls of the model may be dispatched, and which of them pin (AuthorizeToolCalls). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from toolbelay.planner.model import SessionState, StoredTool
from toolbelay.planner.recency import wanted_pins


class Verdict(StrEnum):
    """Names as in the API."""

    ALLOWED = "ALLOWED"
    DENIED = "DENIED"
    CALLER_OWNED = "CALLER_OWNED"


class Denial(StrEnum):
    """Names as in the API, in the order in which they are looked for."""

    NOT_ADVERTISED = "NOT_ADVERTISED"
    NOT_IN_CATALOG = "NOT_IN_CATALOG"
    DEFINITION_CHANGED = "DEFINITION_CHANGED"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"


class CallFact(Struct, frozen=True, gc=False):
    """What authority says of a called catalog tool."""

    tool_id: str
    fingerprint: bytes
    advertise: bool
    call: bool


class CallDecision(Struct, frozen=True, gc=False):
    """The decision on one name."""

    verdict: Verdict
    denial: Denial | None = None
    tool_id: str = ""


def decide_call(
    name: str,
    *,
    caller_tools: Collection[str],
    facts: Mapping[str, CallFact],
    stored_names: Mapping[str, StoredTool] | None,
) -> CallDecision:
    """Decide one call; the first reason that applies.

    `facts`: by exposed name, catalog tools only. `stored_names`: the session's stored set by the exposed
    names that its tools have or had; `None` = no state, policy alone decides, and what the caller may not
    see is not there.
    """
    if name in caller_tools:
        return CallDecision(Verdict.CALLER_OWNED)
    fact = facts.get(name)
    if stored_names is None:
        if fact is None or not fact.advertise:
            return _denied(Denial.NOT_IN_CATALOG)
    else:
        stored = stored_names.get(name)
        if stored is None:
            return _denied(Denial.NOT_ADVERTISED)
        if fact is None:
            return _denied(Denial.NOT_IN_CATALOG)
        if fact.fingerprint != stored.fingerprint:
            return _denied(Denial.DEFINITION_CHANGED, fact.tool_id)
    if not (fact.advertise and fact.call):
        return _denied(Denial.NOT_AUTHORIZED, fact.tool_id)
    return CallDecision(Verdict.ALLOWED, None, fact.tool_id)


def _denied(denial: Denial, tool_id: str = "") -> CallDecision:
    return CallDecision(Verdict.DENIED, denial, tool_id)


def pin_calls(
    state: SessionState, allowed: Sequence[str], *, turn: int, max_tools: int, required: Collection[str]
) -> SessionState:
    """Pin stored tools as rule 4 does. `allowed`: tool ids of the stored set, in call order.

    Nothing leaves the stored set here: what no longer fits as a pin is the next turn's to release.
    """
    pinned = tuple(t for t in state.tools if t.pinned)
    present = {t.tool_id for t in state.tools}
    pins = wanted_pins(
        pinned,
        [t for t in allowed if t in present],
        turn=turn,
        required=required,
        present=present,
        visible=present,
        state_places=max_tools,
        answer_places=max_tools,
    )
    tools = tuple(
        replace(t, pinned=True, called_turn=at[0], called_place=at[1])
        if (at := pins.recency.get(t.tool_id)) is not None and (not t.pinned or at != (t.called_turn, t.called_place))
        else t
        for t in state.tools
    )
    return state if tools == state.tools else replace(state, tools=tools)
