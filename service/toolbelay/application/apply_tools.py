"""Tools files into definitions, one per tool id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolbelay.application.apply_bundle import SourceFile
from toolbelay.catalog.definitions import Definition, Fault, read_definitions
from toolbelay.planner.fingerprint import fingerprint

MAX_CATALOG = 100_000  # tools of a tenant


@dataclass(slots=True)
class ReadTools:
    """What the files hold: a definition by tool id, and every fault."""

    definitions: dict[str, Definition]
    faults: list[Fault]


def read_tools(files: Sequence[SourceFile]) -> ReadTools:
    """Every tool of the files. A tool id twice with equal definitions is one; unequal ones are a fault."""
    found = ReadTools({}, [])
    for file in files:
        for item in read_definitions(f"tools/{file.name}", file.content.split(b"\n")):
            if isinstance(item, Fault):
                found.faults.append(item)
                continue
            first = found.definitions.setdefault(item.tool_id, item)
            if first is not item and not equal(first, item):
                found.faults.append(_given_twice(file, item))
    if len(found.definitions) > MAX_CATALOG:
        count = f"{len(found.definitions)} tools are more than the limit of {MAX_CATALOG}"
        found.faults.append(Fault("tools", "", count))
    return found


def equal(first: Definition, other: Definition) -> bool:
    """Whether both mean the same; key order, white space and escapes do not count."""
    labels = (first.tags, first.hints, first.requires) == (other.tags, other.hints, other.requires)
    return labels and fingerprint_of("", first) == fingerprint_of("", other)


def fingerprint_of(exposed_name: str, definition: Definition) -> bytes:
    """The fingerprint of a definition under its exposed name."""
    return fingerprint(exposed_name, definition.description_text, definition.schema_value)


def _given_twice(file: SourceFile, item: Definition) -> Fault:
    return Fault(f"tools/{file.name}", item.tool_id, "given twice, with definitions that differ")
