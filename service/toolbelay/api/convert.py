"""Wire messages of a turn to the domain's, and back. Bounds are checked here, before anything else is done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolbelay.api import bounds
from toolbelay.api.encode import ItemEncoder
from toolbelay.application.authorize import AuthorizeRequest
from toolbelay.application.turn import (
    ChoiceMode,
    SelectAnswer,
    SelectRequest,
    Target,
    ToolChoice,
)
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.offered import MAX_OFFERED
from toolbelay.errors import invalid
from toolbelay.planner.model import Scored
from toolbelay.v1 import selection_pb2 as pb

MAX_TARGET_TOOLS: Final = 0xFFFFFFFF

_FORMATS: Final = {
    pb.WIRE_FORMAT_UNSPECIFIED: WireFormat.OPENAI_CHAT,
    **{pb.WireFormat.Value(f"WIRE_FORMAT_{f.value}"): f for f in WireFormat},
}
_MODES: Final = {
    pb.ToolChoice.MODE_UNSPECIFIED: ChoiceMode.AUTO,
    **{pb.ToolChoice.Mode.Value(f"MODE_{m.value}"): m for m in ChoiceMode},
}
# Enum values by the domain's names. The stubs type them as distinct enums, hence Any.
_WIRE_MODES: Final[Mapping[ChoiceMode, Any]] = {
    mode: pb.ToolChoice.Mode.Value(f"MODE_{mode.value}") for mode in ChoiceMode
}
_OUTCOMES: Final[Mapping[str, Any]] = {n.removeprefix("OUTCOME_"): v for n, v in pb.Outcome.items()}
_REASONS: Final[Mapping[str, Any]] = {n.removeprefix("REASON_"): v for n, v in pb.Reason.items()}
VERDICTS: Final[Mapping[str, Any]] = {n.removeprefix("VERDICT_"): v for n, v in pb.Verdict.items()}
DENIALS: Final[Mapping[str, Any]] = {n.removeprefix("DENIAL_REASON_"): v for n, v in pb.DenialReason.items()}


def select_request(message: pb.SelectToolsRequest) -> SelectRequest:
    """A checked request. Raises INVALID_REQUEST with the field."""
    bounds.count("called_tools", message.called_tools, bounds.MAX_CALLS)
    bounds.count("offered_tools", message.offered_tools, MAX_OFFERED)
    bounds.count("known_fingerprints", message.known_fingerprints, bounds.MAX_FINGERPRINTS)
    target = _target(message.target) if message.HasField("target") else _NO_TARGET
    choice = _choice(message.tool_choice) if message.HasField("tool_choice") else _NO_CHOICE
    return SelectRequest(
        route=bounds.printable("route", message.route),
        session_id=bounds.printable("session_id", message.session_id),
        turn_id=bounds.printable("turn_id", message.turn_id),
        query=bounds.text("query", message.query, bounds.MAX_QUERY),
        called_tools=_names("called_tools", message.called_tools),
        offered_tools=tuple(item.definition for item in message.offered_tools),
        candidates=_candidates(message.candidates),
        target=target,
        choice=choice,
        min_generation=message.min_generation,
    )


_NO_TARGET = Target()
_NO_CHOICE = ToolChoice()


def _target(message: pb.Target) -> Target:
    bounds.count("target.capabilities", message.capabilities, bounds.MAX_CAPABILITIES)
    wire_format = _FORMATS.get(message.format)
    if wire_format is None:
        raise invalid("target.format", f"{message.format} is not a wire format")
    for index, capability in enumerate(message.capabilities):
        bounds.printable(f"target.capabilities[{index}]", capability)
    return Target(
        format=wire_format,
        model=bounds.printable("target.model", message.model, bounds.MAX_MODEL),
        capabilities=frozenset(message.capabilities),
        max_tools=message.max_tools,
        supports_tools=message.supports_tools if message.HasField("supports_tools") else True,
    )


def _choice(message: pb.ToolChoice) -> ToolChoice:
    mode = _MODES.get(message.mode)
    if mode is None:
        raise invalid("tool_choice.mode", f"{message.mode} is not a mode")
    names = message.names
    bounds.count("tool_choice.names", names, bounds.MAX_CHOICE_NAMES)
    if mode is ChoiceMode.NAMED and len(names) != 1:
        raise invalid("tool_choice.names", f"NAMED takes exactly one name, not {len(names)}")
    if mode is ChoiceMode.ALLOWED and not names:
        raise invalid("tool_choice.names", "ALLOWED takes at least one name")
    if mode not in (ChoiceMode.NAMED, ChoiceMode.ALLOWED) and names:
        raise invalid("tool_choice.names", f"{mode.value} takes no names")
    checked = _names("tool_choice.names", names)
    if "" in checked:
        raise invalid(f"tool_choice.names[{checked.index('')}]", "must not be empty")
    return ToolChoice(mode, checked, message.required and mode is ChoiceMode.ALLOWED)


def _names(field: str, names: Sequence[str]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if len(name) > bounds.MAX_NAME // 4 or not name.isprintable():
            bounds.text(f"{field}[{index}]", name, bounds.MAX_NAME)
    return tuple(names)


def _candidates(messages: Sequence[pb.RankedCandidate]) -> tuple[Scored, ...]:
    bounds.count("candidates", messages, bounds.MAX_CANDIDATES)
    scored: list[Scored] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        tool_id, score = message.tool_id, message.score
        if not math.isfinite(score):
            raise invalid(f"candidates[{index}].score", "must be finite")
        if len(tool_id) > bounds.MAX_TOOL_ID // 4 or not tool_id.isprintable():
            bounds.text(f"candidates[{index}].tool_id", tool_id, bounds.MAX_TOOL_ID)
        if tool_id in seen:
            raise invalid(f"candidates[{index}].tool_id", "occurs twice")
        seen.add(tool_id)
        scored.append(Scored(tool_id, score))
    return tuple(scored)


def select_response(
    answer: SelectAnswer, encoder: ItemEncoder, *, omit_definitions: bool, known_fingerprints: Sequence[str]
) -> bytes:
    """The encoded SelectToolsResponse, without the definitions that the caller does not want."""
    known = frozenset(known_fingerprints) - {""}  # an item without a fingerprint is known by none
    parts = [encoder.encode(item, omit=omit_definitions or item.fingerprint in known) for item in answer.items]
    parts.append(_rest(answer).SerializeToString())
    return b"".join(parts)


def _rest(answer: SelectAnswer) -> pb.SelectToolsResponse:
    """The answer without its items."""
    counts = answer.counts
    return pb.SelectToolsResponse(
        tool_choice=pb.ToolChoice(
            mode=_WIRE_MODES[answer.choice.mode],
            names=answer.choice.names,
            required=answer.choice.required,
        ),
        receipt=pb.Receipt(
            outcome=_OUTCOMES[answer.outcome.value],
            reason=_REASONS[answer.reason.value] if answer.reason is not None else None,
            retained=counts.retained,
            added=counts.added,
            pinned=counts.pinned,
            evicted=counts.evicted,
            removed_unauthorized=counts.removed_unauthorized,
            removed_unavailable=counts.removed_unavailable,
            removed_changed=counts.removed_changed,
            removed_incapable=counts.removed_incapable,
            turn=answer.turn,
            revision=answer.revision,
            generation=answer.generation,
            strategy=answer.strategy,
            estimate=pb.TokenEstimate(advertised=answer.advertised_tokens, whole_catalog=answer.whole_catalog_tokens),
            replayed=answer.replayed,
            hidden=counts.hidden,
            caller_owned=answer.caller_owned,
            called_ignored=answer.called_ignored,
            candidates_ignored=answer.candidates_ignored,
            offered_dropped=answer.offered_dropped,
            surface_digest=answer.surface_digest,
        ),
        stable_prefix=answer.stable_prefix,
    )


def authorize_request(message: pb.AuthorizeToolCallsRequest) -> AuthorizeRequest:
    """A checked request. Raises INVALID_REQUEST with the field."""
    bounds.count("calls", message.calls, bounds.MAX_CALLS)
    bounds.count("caller_tools", message.caller_tools, bounds.MAX_CALLER_TOOLS)
    names: list[str] = []
    for index, call in enumerate(message.calls):
        bounds.printable(f"calls[{index}].call_id", call.call_id)
        names.append(bounds.text(f"calls[{index}].name", call.name, bounds.MAX_NAME))
    return AuthorizeRequest(
        route=bounds.printable("route", message.route),
        session_id=bounds.printable("session_id", message.session_id),
        names=tuple(names),
        model=_target(message.target).model,
        caller_tools=frozenset(_names("caller_tools", message.caller_tools)),
    )


def required_session(message: Any) -> tuple[str, str]:
    """(route, session_id) of a message that must name a session."""
    session_id = bounds.printable("session_id", message.session_id)
    if not session_id:
        raise invalid("session_id", "must not be empty")
    return bounds.printable("route", message.route), session_id
