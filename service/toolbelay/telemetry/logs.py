"""Structured logs without content: JSON lines for machines, a readable form for a terminal.

A log line holds counts, enums, ids of our own and durations. A processor drops whatever is filed under a
name that could hold a secret or a user's words, so that a slip in one call cannot leak them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Literal, TextIO

import structlog

DROPPED: Final = "[dropped]"
FORBIDDEN: Final = frozenset(
    {
        "authorization", "token", "tokens_text", "jwt", "secret", "password", "api_key", "credentials", "cookie",
        "query", "prompt", "text", "content", "body", "message_text", "arguments", "result", "messages",
        "definition", "definitions", "description", "schema", "input_schema", "policy_text",
        "session_id", "turn_id", "subject", "principal", "claims", "headers", "metadata", "url",
    }
)  # fmt: skip
_FORBIDDEN_PARTS: Final = ("secret", "password", "api_key", "apikey", "authorization", "bearer", "private_key")
MAX_TEXT: Final = 2000  # characters of one value

Format = Literal["json", "console"]


def configure(*, level: str = "info", format: Format = "json", stream: TextIO | None = None) -> None:  # noqa: A002
    """Set up logging of the process, the libraries' included, on `stream` (default: standard error)."""
    out = stream or sys.stderr
    renderer: Any = structlog.processors.JSONRenderer()
    if format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty())
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        drop_forbidden,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared[:3], _library_line],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("toolbelay").setLevel(level.upper())


def drop_forbidden(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the values of forbidden keys, at any depth, and cut long ones."""
    for key in list(event):
        event[key] = _clean(key, event[key])
    return event


def _clean(key: str, value: Any) -> Any:
    name = key.lower()
    if name in FORBIDDEN or any(part in name for part in _FORBIDDEN_PARTS):
        return DROPPED
    if isinstance(value, Mapping):
        return {str(inner): _clean(str(inner), item) for inner, item in value.items()}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return value[:MAX_TEXT] + "…"
    return value


def _library_line(_logger: object, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Library records: their text is kept short, and a traceback's values stay out (they may quote input)."""
    record = event.get("_record")
    info = getattr(record, "exc_info", None)
    if record is not None and info:
        event["kind"] = info[0].__qualname__ if isinstance(info, tuple) and info[0] else "unknown"
        record.exc_info = None
        record.exc_text = None
    event.pop("exc_info", None)
    event["event"] = str(event.get("event", ""))[:300]
    return event
