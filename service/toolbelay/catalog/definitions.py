"""Lines of `tools/*.jsonl`: one tool each, validated, with the exact bytes of what the model will see."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from toolbelay.catalog.model import ToolHints
from toolbelay.catalog.raw_json import MAX_DEPTH, JsonTextError, JsonValue, Span, members

MAX_DEFINITION = 64 * 1024  # bytes of the longest rendering of a tool
MAX_LINE = 128 * 1024  # bytes of a line; tags and white space come on top of the definition
MAX_NAME = 191  # bytes
MAX_LABELS = 64
MAX_LABEL = 128  # bytes
RESERVED_TOOLSET = "caller"  # `Tool::"caller/<name>"` stands for what a request offers itself

_RENDERING = 192  # the longest wire format's own bytes around description and schema, name of 64 included
_TOOLSET = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_KEYS = frozenset({"toolset", "name", "description", "input_schema", "tags", "annotations", "requires"})
_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
_NO_DESCRIPTION = b'""'


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as given; exposed name and fingerprint come at apply. `model.Tool` says what the bytes are."""

    toolset: str
    name: str
    description: bytes  # the JSON string as given; b'""' where it is missing, null or empty
    input_schema: bytes
    description_text: str = field(compare=False)  # the description's value, for the fingerprint
    schema_value: JsonValue = field(compare=False, repr=False)  # the schema's value, for the fingerprint
    tags: frozenset[str]
    hints: ToolHints
    requires: frozenset[str]

    @property
    def tool_id(self) -> str:
        return f"{self.toolset}/{self.name}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why something is refused: where it stands (`tools/crm.jsonl:12`), of which tool ("" unknown), and why."""

    where: str
    subject: str
    message: str


def read_definitions(file: str, lines: Iterable[bytes]) -> Iterator[Definition | Fault]:
    """The tools of one file, line by line; blank lines are skipped, every fault of every line is given."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield from parse_line(line, f"{file}:{number}")


def parse_line(line: bytes, where: str) -> list[Definition | Fault]:
    """One line: its definition, or all its faults."""
    try:
        given = members(line, max_depth=MAX_DEPTH + 1, max_bytes=MAX_LINE)
    except JsonTextError as error:
        return [Fault(where, "", str(error))]
    return _Line(line, given, where).read()


def split_tool_id(tool_id: str) -> tuple[str, str]:
    """Toolset and name of a tool id: the first `/` splits. ValueError when there is none."""
    toolset, slash, name = tool_id.partition("/")
    if not slash:
        raise ValueError(f"{tool_id!r} is not a tool id of the form toolset/name")
    return toolset, name


class _Line:
    """Reads the members of one line and gathers faults."""

    def __init__(self, line: bytes, given: dict[str, Span], where: str) -> None:
        self._line = line
        self._given = given
        self._where = where
        self._faults: list[str] = []

    def read(self) -> list[Definition | Fault]:
        for key in self._given:
            if key not in _KEYS:
                self._faults.append(f"unknown key {key[:64]!r}")
        toolset, name = self._toolset(), self._name()
        description, text = self._description()
        schema, value = self._schema()
        if len(description) + len(schema) + _RENDERING > MAX_DEFINITION:
            size = len(description) + len(schema) + _RENDERING
            self._faults.append(f"the definition is {size} bytes, more than the limit of {MAX_DEFINITION}")
        tags, requires, hints = self._labels("tags"), self._labels("requires"), self._hints()
        if self._faults:
            subject = f"{toolset}/{name}" if toolset and name else ""
            return [Fault(self._where, subject, message) for message in self._faults]
        return [Definition(toolset, name, description, schema, text, value, tags, hints, requires)]

    def _value(self, key: str) -> JsonValue:
        span = self._given.get(key)
        return span.value if span else None

    def _toolset(self) -> str:
        toolset = self._value("toolset")
        if not isinstance(toolset, str) or not _TOOLSET.fullmatch(toolset):
            self._faults.append("toolset must be 1 to 64 of the characters A-Z a-z 0-9 . _ -")
            return ""
        if toolset == RESERVED_TOOLSET:
            self._faults.append(f"the toolset name {RESERVED_TOOLSET!r} is reserved for the caller's own tools")
        return toolset

    def _name(self) -> str:
        name = self._value("name")
        if not isinstance(name, str):
            self._faults.append("name must be a string")
            return ""
        name = name.strip()
        if not name:
            self._faults.append("name is empty")
        elif len(name.encode()) > MAX_NAME:
            self._faults.append(f"name is {len(name.encode())} bytes, more than the limit of {MAX_NAME}")
            return ""
        elif not is_clean_name(name):
            self._faults.append("name holds a control or bidirectional character")
            return ""
        return name

    def _description(self) -> tuple[bytes, str]:
        span = self._given.get("description")
        if span is None or span.value is None or span.value == "":
            return _NO_DESCRIPTION, ""
        if not isinstance(span.value, str):
            self._faults.append("description must be a string or null")
            return _NO_DESCRIPTION, ""
        return span.of(self._line), span.value

    def _schema(self) -> tuple[bytes, JsonValue]:
        span = self._given.get("input_schema")
        if span is None:
            self._faults.append("input_schema is missing")
            return b"", None
        if not isinstance(span.value, dict):
            self._faults.append("input_schema must be an object")
        elif span.value.get("type") != "object":
            self._faults.append('input_schema must have "type": "object" at its top')
        return span.of(self._line), span.value

    def _labels(self, key: str) -> frozenset[str]:
        given = self._value(key)
        if given is None:
            return frozenset()
        if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
            self._faults.append(f"{key} must be a list of strings")
            return frozenset()
        labels = [item for item in given if isinstance(item, str)]
        if len(labels) > MAX_LABELS:
            self._faults.append(f"{len(labels)} {key} are more than the limit of {MAX_LABELS}")
        if any(not 1 <= len(label.encode()) <= MAX_LABEL for label in labels):
            self._faults.append(f"each of {key} must be 1 to {MAX_LABEL} bytes")
        return frozenset(labels)

    def _hints(self) -> ToolHints:
        given = self._value("annotations")
        if given is None:
            return ToolHints()
        if not isinstance(given, dict):
            self._faults.append("annotations must be an object")
            return ToolHints()
        hints: dict[str, bool] = {}
        for key, value in given.items():
            if key == "title":
                continue
            if key not in _HINTS:
                self._faults.append(f"annotations: unknown key {key[:64]!r}")
            elif value is None:
                continue
            elif not isinstance(value, bool):
                self._faults.append(f"annotations.{key} must be true or false")
            else:
                hints[_HINTS[key]] = value
        return ToolHints(**hints)


# Bidirectional formatting that can show a name as another one (Unicode's "Trojan Source" set).
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def is_clean_name(name: str) -> bool:
    """Whether the text holds no control, line-separating or bidirectional character."""
    if name.isascii():
        return name.isprintable()
    return not any(c in _BIDI or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name)
