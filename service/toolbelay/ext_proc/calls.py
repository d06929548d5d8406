"""The tool calls in a model's buffered answer, and the answer without those that were denied. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolbelay.catalog.formats import WireFormat

Json = dict[str, Any]
_RESPONSE_CALLS = ("function_call", "custom_tool_call")


class UnreadableAnswerError(Exception):
    """No JSON, or more than can be read of it: a client more lenient than this parser could still find calls."""


def read_response(text: bytes) -> Json | None:
    """The answer's JSON object; `None` where the JSON is another value. Raises UnreadableAnswerError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableAnswerError from None
    return value if isinstance(value, dict) else None


def called_names(response: Json, wire_format: WireFormat) -> list[str]:
    """Names of the client-side tools that the model calls, in order. Hosted tools ran at the provider."""
    return [name for name, _ in _calls(response, wire_format)]


def without_denied(response: Json, wire_format: WireFormat, denied: Mapping[str, str]) -> bytes | None:
    """The answer with denied calls (reason by name) replaced by text; `None` when nothing else would be left."""
    left = [name for name, _ in _calls(response, wire_format) if name not in denied]
    if not left and not _has_text(response, wire_format):
        return None
    _REPLACERS[wire_format](response, denied)
    return json.dumps(response, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _note(name: str, reason: str) -> str:
    return f"The tool call {name!r} was denied: {reason}."


def _calls(response: Json, wire_format: WireFormat) -> Iterator[tuple[str, Json]]:
    if wire_format is WireFormat.OPENAI_CHAT:
        for message in _messages(response):
            for call in _dicts(message.get("tool_calls")):
                yield _chat_name(call), call
            legacy = message.get("function_call")
            if isinstance(legacy, dict):
                yield _text(legacy.get("name")), legacy
        return
    key = "content" if wire_format is WireFormat.ANTHROPIC_MESSAGES else "output"
    kinds = ("tool_use",) if wire_format is WireFormat.ANTHROPIC_MESSAGES else _RESPONSE_CALLS
    for item in _dicts(response.get(key)):
        if item.get("type") in kinds:
            yield _text(item.get("name")), item


def _has_text(response: Json, wire_format: WireFormat) -> bool:
    if wire_format is WireFormat.OPENAI_CHAT:
        return any(message.get("content") for message in _messages(response))
    if wire_format is WireFormat.ANTHROPIC_MESSAGES:
        return any(item.get("type") == "text" and item.get("text") for item in _dicts(response.get("content")))
    return any(item.get("type") == "message" for item in _dicts(response.get("output")))


def _replace_chat(response: Json, denied: Mapping[str, str]) -> None:
    for choice in _dicts(response.get("choices")):
        message = choice.get("message")
        if not isinstance(message, dict):
            continue
        notes = []
        if "tool_calls" in message:
            calls = _dicts(message["tool_calls"])
            kept = [call for call in calls if _chat_name(call) not in denied]
            notes += [_note(_chat_name(call), denied[_chat_name(call)]) for call in calls if _chat_name(call) in denied]
            message["tool_calls"] = kept
            if not kept:
                del message["tool_calls"]
        legacy = message.get("function_call")
        if isinstance(legacy, dict) and _text(legacy.get("name")) in denied:
            notes.append(_note(_text(legacy.get("name")), denied[_text(legacy.get("name"))]))
            del message["function_call"]
        if notes:
            message["content"] = _with_notes(message.get("content"), notes)
            if "tool_calls" not in message and "function_call" not in message:
                choice["finish_reason"] = "stop"


def _with_notes(content: Any, notes: list[str]) -> Any:
    """Some model APIs answer with a list of parts where OpenAI has one text."""
    if isinstance(content, list):
        return [*content, *({"type": "text", "text": note} for note in notes)]
    return "\n".join([*filter(None, [_text(content)]), *notes])


def _replace_anthropic(response: Json, denied: Mapping[str, str]) -> None:
    def changed(block: Any) -> Any:
        if isinstance(block, dict) and block.get("type") == "tool_use" and _text(block.get("name")) in denied:
            name = _text(block.get("name"))
            return {"type": "text", "text": _note(name, denied[name])}
        return block

    response["content"] = [changed(block) for block in response.get("content", [])]
    left = any(True for _ in _calls(response, WireFormat.ANTHROPIC_MESSAGES))
    if not left and response.get("stop_reason") == "tool_use":
        response["stop_reason"] = "end_turn"


def _replace_responses(response: Json, denied: Mapping[str, str]) -> None:
    def changed(item: Any) -> Any:
        if isinstance(item, dict) and item.get("type") in _RESPONSE_CALLS and _text(item.get("name")) in denied:
            name = _text(item.get("name"))
            content = [{"type": "output_text", "text": _note(name, denied[name]), "annotations": []}]
            return {
                "id": item.get("id", "msg_denied"),
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        return item

    response["output"] = [changed(item) for item in response.get("output", [])]


_REPLACERS: dict[WireFormat, Callable[[Json, Mapping[str, str]], None]] = {
    WireFormat.OPENAI_CHAT: _replace_chat,
    WireFormat.OPENAI_RESPONSES: _replace_responses,
    WireFormat.ANTHROPIC_MESSAGES: _replace_anthropic,
}


def _messages(response: Json) -> Iterator[Json]:
    for choice in _dicts(response.get("choices")):
        message = choice.get("message")
        if isinstance(message, dict):
            yield message


def _chat_name(call: Json) -> str:
    for kind in ("function", "custom"):
        inner = call.get(kind)
        if isinstance(inner, dict):
            return _text(inner.get("name"))
    return ""


def _dicts(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
