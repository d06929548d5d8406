"""Tools and toolsets that policies name and the catalog does not have: mostly a slip of the pen, so it is told."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolbelay.authority.dependencies import analyse
from toolbelay.authority.policy import PolicyError, parse_policies
from toolbelay.catalog.definitions import RESERVED_TOOLSET
from toolbelay.storage.port import PolicyFile

MAX_NAMED = 1_000  # names of a bundle that are looked up; further ones are taken on trust
MAX_TOLD = 20  # warnings
_MAX_SHOWN = 200  # characters of a name


@dataclass(frozen=True, slots=True, order=True)
class NamedTool:
    """A name in a policy. `where`: the policy's place. `is_toolset`: else the name is a tool id."""

    where: str
    name: str
    is_toolset: bool


def named_tools(texts: Mapping[str, str]) -> tuple[NamedTool, ...]:
    """What the policies of these files name, by file name and line, at most MAX_NAMED.

    A file with a fault names nothing: it is refused elsewhere. What a caller brings is in no catalog, so it is left out.
    """
    found: list[NamedTool] = []
    for file, text in sorted(texts.items()):
        try:
            policies = parse_policies([PolicyFile(file, text)])
        except PolicyError:
            continue
        for policy in policies:
            names = analyse([policy.node])
            where = f"policies/{file}:{policy.line}"
            toolsets = names.compared.get(("resource", "toolset"), frozenset())
            found += sorted(NamedTool(where, name, is_toolset=True) for name in toolsets if name != RESERVED_TOOLSET)
            own = f"{RESERVED_TOOLSET}/"
            found += sorted(
                NamedTool(where, name, is_toolset=False) for name in names.tools if not name.startswith(own)
            )
            if len(found) > MAX_NAMED:
                return tuple(found[:MAX_NAMED])
    return tuple(found)


def missing_tools(named: Sequence[NamedTool], tools: Collection[str], toolsets: Collection[str]) -> Iterator[str]:
    """A warning for each name that is not among `tools` (ids) or `toolsets`; at most MAX_TOLD, then how many more."""
    missing = [item for item in named if item.name not in (toolsets if item.is_toolset else tools)]
    yield from map(_told, missing[:MAX_TOLD])
    if len(missing) > MAX_TOLD:
        yield f"policies name {len(missing) - MAX_TOLD} more tools and toolsets that are not in the catalog"


def _told(item: NamedTool) -> str:
    shown = json.dumps(item.name[:_MAX_SHOWN], ensure_ascii=not item.name.isprintable())
    if item.is_toolset:
        return f"{item.where}: the catalog has no tool of Toolset::{shown}"
    hint = "" if "/" in item.name else '; a tool is named Tool::"toolset/name"'
    return f"{item.where}: Tool::{shown} is not in the catalog{hint}"
