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
    SelectedItem,
    SelectRequest,
    Target,
    ToolChoice,
)
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.offered import MAX_OFFERED
from toolbelay.errors import invalid
from toolbelay.planner.model import Outcome, Reason, Scored
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
_OUTCOMES: Final[Mapping[Outcome, Any]] = {o: pb.Outcome.Value(f"OUTCOME_{o.value}") for o in Outcome}
_REASONS: Final[Mapping[Reason | None, Any]] = {
    None: pb.REASON_UNSPECIFIED,
    **{reason: pb.Reason.Value(f"REASON_{reason.value}") for reason in Reason},
}
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
    ids = [message.tool_id for message in messages]
    scores = [message.score for message in messages]
    if _ordinary(ids, scores):
        return tuple(map(Scored, ids, scores))
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


def _ordinary(ids: Sequence[str], scores: Sequence[float]) -> bool:
    """Whether candidates surely have no fault: what the loop that names a fault would find, at a tenth of its cost."""
    return (
        all(map(math.isfinite, scores))
        and len(set(ids)) == len(ids)
        and max(map(len, ids), default=0) <= bounds.MAX_TOOL_ID // 4
        and "".join(ids).isprintable()
    )


class ResponseWriter:
    """Encodes answers of SelectTools. One per servicer: what turns share is written once."""

    def __init__(self, items: ItemEncoder) -> None:
        self._items = items
        # One message for all answers: each sets every field, and nothing is awaited in between. Making it anew would
        # take four times as long.
        self._rest = pb.SelectToolsResponse()
        self._choice, self._receipt = self._rest.tool_choice, self._rest.receipt
        self._estimate = self._receipt.estimate
        for part in (self._choice, self._receipt, self._estimate):
            part.SetInParent()

    def write(self, answer: SelectAnswer, *, omit_definitions: bool, known_fingerprints: Sequence[str]) -> bytes:
        """The encoded SelectToolsResponse, without the definitions that the caller does not want."""
        omit = None
        if omit_definitions or known_fingerprints:
            known = frozenset(known_fingerprints) - {""}  # an item without a fingerprint is known by none

            def omit(item: SelectedItem) -> bool:
                return omit_definitions or item.fingerprint in known

        pieces = self._items.encode(answer.items, omit)
        pieces.append(self._the_rest(answer))
        return b"".join(pieces)

    def _the_rest(self, answer: SelectAnswer) -> bytes:
        """The answer without its items."""
        choice, receipt, estimate, counts = self._choice, self._receipt, self._estimate, answer.counts
        choice.mode = _WIRE_MODES[answer.choice.mode]
        choice.names[:] = answer.choice.names
        choice.required = answer.choice.required
        receipt.outcome = _OUTCOMES[answer.outcome]
        receipt.reason = _REASONS[answer.reason]
        receipt.retained = counts.retained
        receipt.added = counts.added
        receipt.pinned = counts.pinned
        receipt.evicted = counts.evicted
        receipt.removed_unauthorized = counts.removed_unauthorized
        receipt.removed_unavailable = counts.removed_unavailable
        receipt.removed_changed = counts.removed_changed
        receipt.removed_incapable = counts.removed_incapable
        receipt.turn = answer.turn
        receipt.revision = answer.revision
        receipt.generation = answer.generation
        receipt.strategy = answer.strategy
        estimate.advertised = answer.advertised_tokens
        estimate.whole_catalog = answer.whole_catalog_tokens
        receipt.replayed = answer.replayed
        receipt.hidden = counts.hidden
        receipt.caller_owned = answer.caller_owned
        receipt.called_ignored = answer.called_ignored
        receipt.candidates_ignored = answer.candidates_ignored
        receipt.offered_dropped = answer.offered_dropped
        receipt.surface_digest = answer.surface_digest
        self._rest.stable_prefix = answer.stable_prefix
        return self._rest.SerializeToString()


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
