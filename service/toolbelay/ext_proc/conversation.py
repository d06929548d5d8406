"""What a chat request's body says of its conversation: the latest user text, and the tools called so far.

Three wire formats; content may be text, a list of parts, or null. Only text is ever read: images, files,
tool arguments and tool results stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.raw_json import JsonValue
from toolbelay.ext_proc.body import Body

MAX_QUERY = 1024 * 1024  # bytes; rankers read the first and last 8 KiB
MAX_CALLED = 256
MAX_CALLED_NAME = 256  # bytes
_QUERY_END = 64 * 1024  # characters kept of each end of a longer text

_PATHS = {
    "/chat/completions": WireFormat.OPENAI_CHAT,
    "/responses": WireFormat.OPENAI_RESPONSES,
    "/messages": WireFormat.ANTHROPIC_MESSAGES,
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """`query` is "" on a step whose last message is a tool result. `called`: names, oldest first."""

    query: str
    called: tuple[str, ...]


class _Kind(Enum):
    USER = "user"
    TOOL_RESULT = "tool result"
    ASSISTANT = "assistant"
    OTHER = "other"


class _Step(NamedTuple):
    """One message: who speaks, what the user says in it, and the tools that it calls."""

    kind: _Kind
    content: JsonValue = None
    calls: tuple[str, ...] = ()


def format_of_path(path: str) -> WireFormat | None:
    """The chat endpoint's format by the end of its path, whatever stands before; `None` for other paths.

    Upper case counts as lower case: some model APIs do not tell them apart.
    """
    bare = path.partition("?")[0].rstrip("/").lower()
    return next((wire_format for end, wire_format in _PATHS.items() if bare.endswith(end)), None)


def read_conversation(body: Body, wire_format: WireFormat) -> Conversation | None:
    """The conversation of a request; `None` where the body is no chat request of the format."""
    if not isinstance(body.value("model"), str):
        return None
    read: Callable[[JsonValue], _Step]
    if wire_format is WireFormat.OPENAI_RESPONSES:
        given = body.value("input")
        if isinstance(given, str):
            return Conversation(_clean(given), ())
        read = _response_item
    else:
        given = body.value("messages")
        read = _chat_message if wire_format is WireFormat.OPENAI_CHAT else _anthropic_message
    if not isinstance(given, list):
        # Responses may continue a stored prompt or response without input.
        return Conversation("", ()) if wire_format is WireFormat.OPENAI_RESPONSES else None
    return _conversation(map(read, reversed(given)))


def _conversation(newest_first: Iterable[_Step]) -> Conversation:
    """The last text of the users' last run of messages, "" when a tool result stands at the end; and the calls.

    No more steps are read than it takes.
    """
    query: str | None = None
    in_run = False
    called: list[str] = []
    for step in newest_first:
        if query is None:
            if step.kind is _Kind.TOOL_RESULT:
                query = ""
            elif step.kind is _Kind.USER:
                in_run = True
                text = _text_of(step.content)
                query = text if text.strip() else None
            elif step.kind is _Kind.ASSISTANT and in_run:
                query = ""  # the user's run holds only images or files
        called += [n for n in reversed(step.calls) if 0 < len(n.encode(errors="replace")) <= MAX_CALLED_NAME]
        if query is not None and len(called) >= MAX_CALLED:
            break
    oldest_first = reversed(called[:MAX_CALLED])
    return Conversation(_clean(query or ""), tuple(_clean(name) for name in oldest_first))


def _chat_message(message: JsonValue) -> _Step:
    if not isinstance(message, dict):
        return _Step(_Kind.OTHER)
    role = message.get("role")
    if role == "user":
        return _Step(_Kind.USER, message.get("content"))
    if role in ("tool", "function"):
        return _Step(_Kind.TOOL_RESULT)
    if role == "assistant":
        return _Step(_Kind.ASSISTANT, calls=tuple(_chat_calls(message)))
    return _Step(_Kind.OTHER)


def _chat_calls(message: dict[str, JsonValue]) -> Iterator[str]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict):
            for kind in ("function", "custom"):
                yield from _name_of(call.get(kind))
    yield from _name_of(message.get("function_call"))


def _anthropic_message(message: JsonValue) -> _Step:
    if not isinstance(message, dict):
        return _Step(_Kind.OTHER)
    role, content = message.get("role"), message.get("content")
    if role == "assistant":
        blocks = content if isinstance(content, list) else []
        calls = [
            name
            for block in blocks
            if isinstance(block, dict) and block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use")
            for name in _name_of(block)
        ]
        return _Step(_Kind.ASSISTANT, calls=tuple(calls))
    if role != "user":
        return _Step(_Kind.OTHER)
    after = _after_results(content)
    return _Step(_Kind.TOOL_RESULT) if after is None else _Step(_Kind.USER, after)


def _after_results(content: JsonValue) -> JsonValue:
    """What the user said behind the last tool result; `None` when the message ends with one."""
    if not isinstance(content, list):
        return content or ""
    results = [
        index for index, part in enumerate(content) if isinstance(part, dict) and part.get("type") == "tool_result"
    ]
    if not results:
        return content
    return content[results[-1] + 1 :] or None


_RESPONSE_CALLS = ("function_call", "custom_tool_call", "mcp_call")


def _response_item(item: JsonValue) -> _Step:
    if not isinstance(item, dict):
        return _Step(_Kind.OTHER)
    kind, role = item.get("type", "message"), item.get("role")
    if kind in _RESPONSE_CALLS:
        return _Step(_Kind.ASSISTANT, calls=tuple(_name_of(item)))
    if isinstance(kind, str) and kind.endswith(("_output", "_approval_response")):
        return _Step(_Kind.TOOL_RESULT)
    if kind != "message":
        return _Step(_Kind.OTHER)
    if role == "user":
        return _Step(_Kind.USER, item.get("content"))
    return _Step(_Kind.ASSISTANT if role == "assistant" else _Kind.OTHER)


def _name_of(part: JsonValue) -> Iterator[str]:
    if isinstance(part, dict):
        name = part.get("name")
        if isinstance(name, str):
            yield name


def _text_of(content: JsonValue) -> str:
    """Text, or the text parts joined by a line break."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type") in ("text", "input_text"):
            text = part.get("text")
            if isinstance(text, str):
                texts.append(text)
    return "\n".join(texts)


def _clean(text: str) -> str:
    """Text that the application takes: no NUL, no lone surrogate (clients cut emoji in half), bounded."""
    text = text.encode("utf-8", "replace").decode().replace("\x00", "")
    if len(text) > MAX_QUERY // 4 and len(text.encode()) > MAX_QUERY:
        return text[:_QUERY_END] + text[-_QUERY_END:]
    return text
