"""From a request's body to a turn, and from the turn's answer back into the body. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from msgspec import structs

from toolbelay.api import bounds
from toolbelay.application.turn import CALLER_OWNED, ChoiceMode, SelectRequest, Target, ToolChoice
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.offered import MAX_OFFERED
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
    cache_breakpoint: bool = False  # one more breakpoint is wanted, at the answer's stable prefix


def read_chat(body: Body, head: RequestHead, options: ExtProcOptions) -> ChatRequest | None:
    """The turn of a body; `None` where it is no chat request. Raises INVALID_REQUEST with the field."""
    assert head.wire_format is not None
    request = read_turn(body, head.wire_format)
    if request is None:
        return None
    if head.wire_format is WireFormat.OPENAI_CHAT and body.value("functions"):
        # They would pass the policy unseen, and the provider refuses them beside tools.
        raise invalid("functions", "is the older form of tools; send tools and tool_choice")
    turn = structs.replace(
        request.turn,
        route=bounds.printable("route", _route(head, options)),
        session_id=bounds.printable(options.session_header, head.text(options.session_header)),
        turn_id=bounds.printable(options.turn_header, head.text(options.turn_header)),
        target=structs.replace(request.turn.target, capabilities=_capabilities(head, options)),
    )
    wants_breakpoint = head.metadata.get(options.metadata_namespace, {}).get("cache_breakpoint") is True
    return replace(request, turn=turn, cache_breakpoint=wants_breakpoint or options.cache_breakpoint)


def read_turn(body: Body, wire_format: WireFormat) -> ChatRequest | None:
    """What the body alone says of the turn; `None` where it is no chat request. Raises INVALID_REQUEST."""
    conversation = read_conversation(body, wire_format)
    if conversation is None:
        return None
    offered = _offered(body)
    given = _choice(body, wire_format)
    model = body.value("model")
    turn = SelectRequest(
        query=conversation.query,
        called_tools=conversation.called,
        offered_tools=offered,
        target=Target(
            format=wire_format,
            model=bounds.printable("model", model if isinstance(model, str) else "", bounds.MAX_MODEL),
        ),
        choice=given.choice,
    )
    return ChatRequest(body, offered, given, turn)


def _offered(body: Body) -> tuple[bytes, ...]:
    given = body.value("tools")
    if not isinstance(given, list | None):
        raise invalid("tools", "must be an array")
    bounds.count("tools", given or (), MAX_OFFERED)
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


class AnswerItem(Protocol):
    """One tool of an answer."""

    @property
    def definition(self) -> bytes:
        """JSON in the request's format."""

    @property
    def origin(self) -> str:
        """A name of the API's enum."""


class Answer(Protocol):
    """What of an answer goes into a body."""

    @property
    def items(self) -> Sequence[AnswerItem]:
        """The tools, in order."""

    @property
    def choice(self) -> ToolChoice:
        """Consistent with the items."""

    @property
    def stable_prefix(self) -> int:
        """Leading items whose bytes equal the session's last answer."""


def write_answer(request: ChatRequest, answer: Answer) -> bytes:
    """The body with the answer's tools and choice; the same bytes where nothing changes."""
    body, wire_format = request.body, request.turn.target.format
    definitions: Sequence[bytes] = [item.definition for item in answer.items]
    anthropic = wire_format is WireFormat.ANTHROPIC_MESSAGES
    # OpenAI's API has no marks; gateways that translate to Anthropic's take them from OpenAI's shape too.
    if anthropic or any(CACHE_CONTROL.encode() in text for text in request.offered):
        wants_stable = anthropic and request.cache_breakpoint
        definitions = place_breakpoints(
            request.offered,
            definitions,
            stable_prefix=answer.stable_prefix if wants_stable else 0,
            elsewhere=_marks_elsewhere(body) if wants_stable else 0,
        )
    tools: Change = KEEP
    if list(definitions) != list(request.offered):
        tools = b"[%b]" % b",".join(definitions) if definitions else REMOVE
    return splice(body, tools=tools, tool_choice=_choice_change(request, answer, wire_format))


def _choice_change(request: ChatRequest, answer: Answer, wire_format: WireFormat) -> Change:
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
