"""From a request's body to a turn, and from the turn's answer back into the body. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolbelay.api import bounds
from toolbelay.application.turn import CALLER_OWNED, ChoiceMode, SelectAnswer, SelectRequest, Target
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.raw_json import JsonTextError, JsonValue, parse
from toolbelay.errors import invalid
from toolbelay.ext_proc.body import KEEP, MAX_BODY_DEPTH, REMOVE, Body, Change, splice
from toolbelay.ext_proc.breakpoints import KEY as CACHE_CONTROL
from toolbelay.ext_proc.breakpoints import place_breakpoints
from toolbelay.ext_proc.choice import GivenChoice, read_choice, write_choice
from toolbelay.ext_proc.conversation import read_conversation
from toolbelay.ext_proc.head import RequestHead
from toolbelay.ext_proc.options import ExtProcOptions


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat request: the turn that it asks for, and what is needed to write the answer into it."""

    body: Body
    offered: tuple[bytes, ...]
    given: GivenChoice
    turn: SelectRequest
    cache_breakpoint: bool  # one more breakpoint is wanted, at the answer's stable prefix


def read_chat(body: Body, head: RequestHead, options: ExtProcOptions) -> ChatRequest | None:
    """The turn of a body; `None` where it is no chat request. Raises INVALID_REQUEST with the field."""
    assert head.wire_format is not None
    conversation = read_conversation(body, head.wire_format)
    if conversation is None:
        return None
    offered = _offered(body)
    given = _choice(body, head.wire_format)
    model = body.value("model")
    turn = SelectRequest(
        route=bounds.printable("route", _route(head, options)),
        session_id=bounds.printable(options.session_header, head.text(options.session_header)),
        turn_id=bounds.printable(options.turn_header, head.text(options.turn_header)),
        query=conversation.query,
        called_tools=conversation.called,
        offered_tools=offered,
        target=Target(
            format=head.wire_format,
            model=bounds.printable("model", model if isinstance(model, str) else "", bounds.MAX_MODEL),
            capabilities=_capabilities(head, options),
        ),
        choice=given.choice,
    )
    wants_breakpoint = head.metadata.get(options.metadata_namespace, {}).get("cache_breakpoint") is True
    return ChatRequest(body, offered, given, turn, wants_breakpoint or options.cache_breakpoint)


def _offered(body: Body) -> tuple[bytes, ...]:
    if not isinstance(body.value("tools"), list | None):
        raise invalid("tools", "must be an array")
    try:
        return tuple(body.raw_items("tools") or ())
    except JsonTextError as error:
        raise invalid(error.path or "tools", error.message) from None


def _choice(body: Body, wire_format: WireFormat) -> GivenChoice:
    try:
        given = read_choice(body.raw("tool_choice"), wire_format)
    except JsonTextError as error:
        path = f"tool_choice.{error.path}" if error.path else "tool_choice"
        raise invalid(path, error.message) from None
    bounds.count("tool_choice", given.choice.names, bounds.MAX_CHOICE_NAMES)
    for name in given.choice.names:
        bounds.text("tool_choice", name, bounds.MAX_NAME)
    return given


def _route(head: RequestHead, options: ExtProcOptions) -> str:
    """The route that Envoy's filters chose; a header's only where a setting says so."""
    route = head.metadata.get(options.metadata_namespace, {}).get("route")
    if isinstance(route, str) and route:
        return route
    return head.text(options.route_header)


def _capabilities(head: RequestHead, options: ExtProcOptions) -> frozenset[str]:
    given = head.metadata.get(options.metadata_namespace, {}).get("capabilities")
    if not isinstance(given, list) or len(given) > bounds.MAX_CAPABILITIES:
        return frozenset()
    return frozenset(item for item in given if isinstance(item, str))


def write_answer(request: ChatRequest, answer: SelectAnswer) -> bytes:
    """The body with the answer's tools and choice; the same bytes where nothing changes."""
    body, wire_format = request.body, request.turn.target.format
    definitions: Sequence[bytes] = [item.definition for item in answer.items]
    if wire_format is WireFormat.ANTHROPIC_MESSAGES:
        definitions = place_breakpoints(
            request.offered,
            definitions,
            stable_prefix=answer.stable_prefix if request.cache_breakpoint else 0,
            elsewhere=_marks_elsewhere(body) if request.cache_breakpoint else 0,
        )
    tools: Change = KEEP
    if list(definitions) != list(request.offered):
        tools = b"[%b]" % b",".join(definitions) if definitions else REMOVE
    return splice(body, tools=tools, tool_choice=_choice_change(request, answer, wire_format))


def _choice_change(request: ChatRequest, answer: SelectAnswer, wire_format: WireFormat) -> Change:
    if not answer.items:
        return REMOVE
    if request.given.opaque:
        # A hosted tool is demanded: it stands among the caller's own, or the demand makes no sense.
        return KEEP if any(item.origin == CALLER_OWNED for item in answer.items) else REMOVE
    if answer.choice == request.given.choice:
        return KEEP
    if answer.choice.mode is ChoiceMode.AUTO and request.body.member("tool_choice") is None:
        return KEEP
    return write_choice(answer.choice, request.given, wire_format, _kinds(request.offered))


def _kinds(offered: Sequence[bytes]) -> dict[str, str]:
    """Names of the caller's custom tools, which a choice must call so."""
    kinds: dict[str, str] = {}
    for text in offered:
        item = parse(text, max_depth=MAX_BODY_DEPTH)
        if isinstance(item, dict) and item.get("type") == "custom":
            inner = item.get("custom")
            name = (inner if isinstance(inner, dict) else item).get("name")
            if isinstance(name, str):
                kinds[name] = "custom"
    return kinds


def _marks_elsewhere(body: Body) -> int:
    """Cache breakpoints in the system prompt and the messages."""
    return sum(_count_marks(member.span.value) for member in body.members if member.key != "tools")


def _count_marks(value: JsonValue) -> int:
    if isinstance(value, list):
        return sum(map(_count_marks, value))
    if isinstance(value, dict):
        own = value.get(CACHE_CONTROL) is not None
        return own + sum(map(_count_marks, value.values()))
    return 0
