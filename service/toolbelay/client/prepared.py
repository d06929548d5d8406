"""From an OpenAI or Anthropic request as a dict to a SelectTools call, and its answer back into the dict. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import grpc

from toolbelay.application.turn import ChoiceMode, ToolChoice
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.raw_json import JsonTextError
from toolbelay.client.errors import ToolbelayCallError
from toolbelay.errors import ToolbelayError, invalid
from toolbelay.ext_proc.body import read_body
from toolbelay.ext_proc.rewrite import ChatRequest, read_turn, write_answer
from toolbelay.v1 import selection_pb2 as pb

OnError = Literal["raise", "no_tools", "caller_tools"]
Format = Literal["openai_chat", "openai_responses", "anthropic_messages"]
_OURS = ("tools", "tool_choice")
_READ = ("model", "messages", "input", "system", *_OURS)  # what else a request holds need not even be JSON


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request to send on.

    `body`: a copy of the caller's dict with `tools` and `tool_choice` replaced, or absent where there are
    none. `answer`: `None` when the service could not be asked and `on_error` let the request go on;
    `error` says why.
    """

    body: dict[str, Any]
    answer: pb.SelectToolsResponse | None = None
    error: ToolbelayCallError | None = None

    @property
    def caller_tools(self) -> list[str]:
        """Names of the caller's own tools, for AuthorizeToolCalls."""
        owned = (tool for tool in (self.answer.tools if self.answer else ()) if not tool.tool_id)
        return [tool.name for tool in owned if tool.name]


@dataclass(frozen=True, slots=True)
class Question:
    """One request, on its way."""

    given: Mapping[str, Any]
    chat: ChatRequest
    message: pb.SelectToolsRequest


class Asked(TypedDict, total=False):
    """What `prepare` takes of a turn, in both clients; all of it may be left out.

    `session_id`: "" = no session. `turn_id`: give the same one when you send a turn again; without it each
    call has its own, for its tries alone. `route`: "" = the tenant's default. `format`: guessed where it is not given.
    `capabilities`: of the model. `max_tools`: 0 = the route's bound. `min_generation`: no older answer.
    """

    session_id: str
    turn_id: str
    route: str
    format: Format | None
    capabilities: Sequence[str]
    max_tools: int
    min_generation: int


@dataclass(frozen=True, slots=True)
class _Item:
    definition: bytes
    origin: str


@dataclass(frozen=True, slots=True)
class _Answer:
    items: Sequence[_Item]
    choice: ToolChoice
    stable_prefix: int


def ask(
    body: Mapping[str, Any],
    own_turn_id: str,
    *,
    session_id: str = "",
    turn_id: str = "",
    route: str = "",
    format: Format | None = None,  # noqa: A002 - the word of the API
    capabilities: Sequence[str] = (),
    max_tools: int = 0,
    min_generation: int = 0,
) -> Question:
    """The SelectTools call of a request. Raises ToolbelayCallError INVALID_ARGUMENT for what is no request.

    `own_turn_id`: what a turn of a session is called that has no `turn_id`, so that its tries are one turn. The rest
    is `Asked`.
    """
    chosen = WireFormat[format.upper()] if format else guess_format(body)
    try:
        read = {key: body[key] for key in _READ if key in body}
        text = json.dumps(read, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
        chat = read_turn(read_body(text), chosen)
    except (TypeError, ValueError, ToolbelayError) as error:
        raise _invalid(error) from None
    if chosen is WireFormat.OPENAI_CHAT and body.get("functions"):
        raise _invalid(invalid("functions", "the form before `tools`; nothing could be selected there, so use `tools`"))
    if chat is None:
        raise ToolbelayCallError(grpc.StatusCode.INVALID_ARGUMENT, f"the body is no {chosen.value} request")
    turn = chat.turn
    message = pb.SelectToolsRequest(
        route=route,
        session_id=session_id,
        turn_id=turn_id or (own_turn_id if session_id else ""),
        query=turn.query,
        called_tools=turn.called_tools,
        offered_tools=[pb.OfferedTool(definition=item) for item in turn.offered_tools],
        target=pb.Target(
            format=f"WIRE_FORMAT_{chosen.value}",
            model=turn.target.model,
            capabilities=capabilities,
            max_tools=max_tools,
        ),
        tool_choice=pb.ToolChoice(
            mode=f"MODE_{turn.choice.mode.value}",
            names=turn.choice.names,
            required=turn.choice.required,
        ),
        min_generation=min_generation,
    )
    return Question(body, chat, message)


def _invalid(error: Exception) -> ToolbelayCallError:
    field = error.field or "" if isinstance(error, ToolbelayError) else ""
    field = error.path if isinstance(error, JsonTextError) else field
    return ToolbelayCallError(grpc.StatusCode.INVALID_ARGUMENT, str(error), "INVALID_REQUEST", field)


def answered(question: Question, answer: pb.SelectToolsResponse, *, cache_breakpoint: bool) -> Prepared:
    """The request with the answer's tools."""
    choice = ToolChoice(
        ChoiceMode(pb.ToolChoice.Mode.Name(answer.tool_choice.mode).removeprefix("MODE_"))
        if answer.tool_choice.mode
        else ChoiceMode.AUTO,
        tuple(answer.tool_choice.names),
        answer.tool_choice.required,
    )
    items = [_Item(tool.definition, pb.Origin.Name(tool.origin).removeprefix("ORIGIN_")) for tool in answer.tools]
    chat = replace(question.chat, cache_breakpoint=cache_breakpoint)
    written = json.loads(write_answer(chat, _Answer(items, choice, answer.stable_prefix)))
    body = {key: value for key, value in question.given.items() if key not in _OURS}
    body |= {key: written[key] for key in _OURS if key in written}
    return Prepared(body, answer)


def without_answer(body: Mapping[str, Any], error: ToolbelayCallError, on_error: OnError) -> Prepared:
    """What the caller chose for an outage. Raises the error where that is `raise`, and for every refusal."""
    if on_error == "raise" or not error.is_outage:
        raise error
    if on_error == "caller_tools":
        return Prepared(dict(body), error=error)
    return Prepared({key: value for key, value in body.items() if key not in _OURS}, error=error)


def guess_format(body: Mapping[str, Any]) -> WireFormat:
    """The format of a request that does not say which it is."""
    if "messages" not in body:
        return WireFormat.OPENAI_RESPONSES
    tools = body.get("tools") or ()
    anthropic = any(isinstance(tool, Mapping) and "input_schema" in tool for tool in tools)
    choice = body.get("tool_choice")
    anthropic |= isinstance(choice, Mapping) and choice.get("type") in ("auto", "any", "none", "tool")
    return WireFormat.ANTHROPIC_MESSAGES if anthropic or "system" in body else WireFormat.OPENAI_CHAT
