"""Tools files into tools, one per tool id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from toolbelay.application.apply_bundle import SourceFile
from toolbelay.catalog.definitions import Definition, Fault, read_definitions
from toolbelay.catalog.model import Tool, ToolHints
from toolbelay.planner.fingerprint import canonical_definition, fingerprint_of_canonical

MAX_CATALOG = 100_000  # tools of a tenant


@dataclass(frozen=True, slots=True)
class WantedTool:
    """A tool as given, lacking only what its exposed name decides.

    The parsed schema is let go at once: millions of its objects would make the garbage collector stop a
    service that applies a large catalog for hundreds of milliseconds.
    """

    tool_id: str
    toolset: str
    name: str
    description: bytes = field(repr=False)
    input_schema: bytes = field(repr=False)
    canonical: bytes = field(repr=False)  # equal for definitions that differ only in form
    tags: frozenset[str]
    hints: ToolHints
    requires: frozenset[str]

    @classmethod
    def of(cls, given: Definition) -> WantedTool:
        """From a parsed line."""
        return cls(
            tool_id=given.tool_id,
            toolset=given.toolset,
            name=given.name,
            description=given.description,
            input_schema=given.input_schema,
            canonical=canonical_definition(given.description_text, given.schema_value),
            tags=given.tags,
            hints=given.hints,
            requires=given.requires,
        )

    def named(self, exposed_name: str) -> Tool:
        """The tool under its exposed name."""
        return Tool(
            tool_id=self.tool_id,
            toolset=self.toolset,
            name=self.name,
            exposed_name=exposed_name,
            description=self.description,
            input_schema=self.input_schema,
            fingerprint=self.fingerprint(exposed_name),
            tags=self.tags,
            hints=self.hints,
            requires=self.requires,
        )

    def fingerprint(self, exposed_name: str) -> bytes:
        """The fingerprint under an exposed name."""
        return fingerprint_of_canonical(exposed_name, self.canonical)

    def means(self, other: WantedTool) -> bool:
        """Whether both are the same tool; key order, white space and escapes do not count."""
        mine = (self.canonical, self.tags, self.hints, self.requires)
        return mine == (other.canonical, other.tags, other.hints, other.requires)


@dataclass(slots=True)
class ReadTools:
    """What the files hold: a tool by tool id, and every fault."""

    tools: dict[str, WantedTool]
    faults: list[Fault]


def read_tools(files: Sequence[SourceFile]) -> ReadTools:
    """Every tool of the files. A tool id twice with equal definitions is one; unequal ones are a fault."""
    found = ReadTools({}, [])
    for file in files:
        for item in read_definitions(f"tools/{file.name}", file.content.split(b"\n")):
            if isinstance(item, Fault):
                found.faults.append(item)
                continue
            tool = WantedTool.of(item)
            if not found.tools.setdefault(tool.tool_id, tool).means(tool):
                where = f"tools/{file.name}"
                found.faults.append(Fault(where, tool.tool_id, "given twice, with definitions that differ"))
    if len(found.tools) > MAX_CATALOG:
        count = f"{len(found.tools)} tools are more than the limit of {MAX_CATALOG}"
        found.faults.append(Fault("tools", "", count))
    return found
