"""What an apply changes: the difference between a validated bundle and the rows in force. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from toolbelay.application.apply_bundle import MAX_POLICIES, ConfigKind, ConfigRefusedError
from toolbelay.application.apply_named import NamedTool, missing_tools
from toolbelay.application.apply_routes import MAX_ROUTES, WantedRoute, route_tool_ids, same_route
from toolbelay.application.apply_tools import MAX_CATALOG, WantedTool
from toolbelay.catalog.definitions import Fault, is_clean_name
from toolbelay.catalog.model import Tool
from toolbelay.catalog.names import assign_exposed_names
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.storage.port import ChangeScope, ConfigChange, CurrentConfig, CurrentTool, PolicyFile

MAX_RESERVED_NAMES = 1_000_000  # exposed names of a tenant, those of removed tools included
_AUDITED_NAMES = 200


class ChangeAction(Enum):
    """What happens to an item; the names are those of ConfigChange.Action in the API."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, order=True)
class ItemChange:
    """One difference. `name`: tool id, policy file name or route name."""

    kind: str
    name: str
    action: str

    @classmethod
    def of(cls, kind: ConfigKind, name: str, action: ChangeAction) -> ItemChange:
        return cls(kind.value, name, action.value)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A bundle whose every file was read without a fault. `None`: the kind is not part of it.

    `named`: what the policies name.
    """

    tools: Mapping[str, WantedTool] | None = None
    policies: Mapping[str, str] | None = None
    routes: Mapping[str, WantedRoute] | None = None
    named: Sequence[NamedTool] = ()


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """`prune`: what the bundle does not list goes, for each kind that is part of it."""

    prune: bool = False
    expected_generation: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is written, what is told, and how many tools there were."""

    write: ConfigChange
    changes: tuple[ItemChange, ...]
    warnings: tuple[str, ...]
    tools_before: int


# Faults of a whole policy set; empty when it is valid.
PolicyCheck = Callable[[Sequence[PolicyFile]], Sequence[Fault]]


def scope_of(wanted: Wanted, options: ApplyOptions) -> ChangeScope:
    """The rows that `plan` has to see."""
    by_routes = {tool_id for route in (wanted.routes or {}).values() for tool_id in route.tool_ids}
    by_policies = [item for item in wanted.named if is_clean_name(item.name)]  # the catalog has no others
    return ChangeScope(
        listed=frozenset(wanted.tools or ()),
        mentioned=frozenset(by_routes | {item.name for item in by_policies if not item.is_toolset}),
        toolsets=frozenset(item.name for item in by_policies if item.is_toolset),
        every_tool=options.prune and wanted.tools is not None,
    )


def plan(wanted: Wanted, current: CurrentConfig, options: ApplyOptions, check_policies: PolicyCheck) -> Plan:
    """The difference. Raises GENERATION_CONFLICT, or ConfigRefusedError with every fault of the result."""
    _expect_generation(current.generation, options.expected_generation)
    added, changed = _tools(wanted, current)
    removed = sorted(current.tools.keys() - wanted.tools.keys()) if options.prune and wanted.tools is not None else []
    policies = _texts(wanted.policies, current.policies, prune=options.prune)
    routes = None if wanted.routes is None else _route_texts(wanted.routes, current.routes)
    new_routes = _texts(routes, current.routes, prune=options.prune)
    _check_result(current, len(added) - len(removed), policies, new_routes, check_policies)
    write = ConfigChange(
        added=added,
        changed=changed,
        removed=removed,
        reserve=_unreserved(added, current),
        policies=policies,
        routes=new_routes,
    )
    changes = tuple(sorted(_described(write, current)))
    write = replace(write, summary=_summary(changes))
    return Plan(write, changes, tuple(_warnings(wanted, current, options, removed)), current.tool_count)


def _expect_generation(current: int, expected: int | None) -> None:
    if expected is None or expected == current:
        return
    raise ToolbelayError(
        ErrorReason.GENERATION_CONFLICT,
        f"the tenant is at generation {current}, not at the expected {expected}; nothing was applied",
        metadata={"generation": str(current), "expected_generation": str(expected)},
    )


def _tools(wanted: Wanted, current: CurrentConfig) -> tuple[list[Tool], list[Tool]]:
    """(new tools, tools that change); a definition that only differs in form keeps its stored bytes."""
    listed = wanted.tools or {}
    new = [(tool_id, tool.toolset, tool.name) for tool_id, tool in listed.items() if tool_id not in current.tools]
    names = assign_exposed_names(new, current.reserved)
    added = [listed[tool_id].named(name) for tool_id, name in names.items()]
    changed = []
    for tool_id, stored in current.tools.items():
        tool = listed.get(tool_id)
        if tool is not None and not _same(tool, stored):
            changed.append(tool.named(stored.exposed_name))
    return added, changed


def _same(tool: WantedTool, stored: CurrentTool) -> bool:
    digest = tool.fingerprint(stored.exposed_name)
    given = (digest, tool.tags, tool.hints, tool.requires)
    return given == (stored.fingerprint, stored.tags, stored.hints, stored.requires)


def _unreserved(added: Sequence[Tool], current: CurrentConfig) -> dict[str, str]:
    """Names to reserve; a tool that came back has its own already."""
    return {tool.exposed_name: tool.tool_id for tool in added if tool.exposed_name not in current.reserved}


def _texts(wanted: Mapping[str, str] | None, current: Mapping[str, str], *, prune: bool) -> dict[str, str | None]:
    """New and changed texts by name, `None` for those that go."""
    if wanted is None:
        return {}
    changed: dict[str, str | None] = {name: text for name, text in wanted.items() if current.get(name) != text}
    if prune:
        changed |= dict.fromkeys(current.keys() - wanted.keys())
    return changed


def _route_texts(wanted: Mapping[str, WantedRoute], current: Mapping[str, str]) -> dict[str, str]:
    """Texts by name; a route that means what is in force keeps its stored text."""
    return {
        name: current[name] if name in current and same_route(name, current[name], route.json) else route.json
        for name, route in wanted.items()
    }


def _after(current: Mapping[str, str], change: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in {**current, **change}.items() if text is not None}


def _check_result(
    current: CurrentConfig,
    growth: int,
    policies: Mapping[str, str | None],
    routes: Mapping[str, str | None],
    check_policies: PolicyCheck,
) -> None:
    faults: list[Fault] = []
    after = _after(current.policies, policies)
    counts = (
        ("tools", current.tool_count + growth, MAX_CATALOG),
        ("policies", len(after), MAX_POLICIES),
        ("routes", len(_after(current.routes, routes)), MAX_ROUTES),
        ("exposed names", len(current.reserved) + growth, MAX_RESERVED_NAMES),
    )
    faults += [
        Fault("", "", f"the tenant would have {count} {what}, more than the limit of {most}")
        for what, count, most in counts
        if count > most
    ]
    if policies:
        faults += check_policies([PolicyFile(name, text) for name, text in sorted(after.items())])
    if faults:
        raise ConfigRefusedError(faults)


def _described(write: ConfigChange, current: CurrentConfig) -> Iterator[ItemChange]:
    for tool in write.added:
        yield ItemChange.of(ConfigKind.TOOL, tool.tool_id, ChangeAction.ADDED)
    for tool in write.changed:
        yield ItemChange.of(ConfigKind.TOOL, tool.tool_id, ChangeAction.CHANGED)
    for tool_id in write.removed:
        yield ItemChange.of(ConfigKind.TOOL, tool_id, ChangeAction.REMOVED)
    for kind, change, before in (
        (ConfigKind.POLICY, write.policies, current.policies),
        (ConfigKind.ROUTE, write.routes, current.routes),
    ):
        for name, text in change.items():
            replaced = ChangeAction.CHANGED if name in before else ChangeAction.ADDED
            yield ItemChange.of(kind, name, ChangeAction.REMOVED if text is None else replaced)


def _summary(changes: Sequence[ItemChange]) -> str:
    """Counts, and the first names; no definition and no policy text."""
    counts: dict[str, int] = {}
    for change in changes:
        key = f"{change.kind}_{change.action}"
        counts[key] = counts.get(key, 0) + 1
    names = [f"{change.action} {change.kind} {change.name}" for change in changes[:_AUDITED_NAMES]]
    return json.dumps({"counts": counts, "changes": names}, ensure_ascii=False)


def _warnings(wanted: Wanted, current: CurrentConfig, options: ApplyOptions, removed: Sequence[str]) -> Iterator[str]:
    catalog = (current.tools.keys() | (wanted.tools or {}).keys()) - set(removed)
    routes = {name: route.tool_ids for name, route in (wanted.routes or {}).items()}
    if removed:
        kept = current.routes.items() if not (options.prune and wanted.routes is not None) else ()
        routes = {name: route_tool_ids(text) for name, text in kept} | routes
    for name, tool_ids in sorted(routes.items()):
        for tool_id in sorted(tool_ids - catalog):
            yield f"route {name}: {tool_id} is not in the catalog"
    if options.prune:
        if wanted.tools is None and current.tool_count:
            yield f"tools are not part of this apply: the {current.tool_count} tools in force stay"
        if wanted.policies is None and current.policies:
            yield f"policies are not part of this apply: the {len(current.policies)} policies in force stay"
        if wanted.routes is None and current.routes:
            yield f"routes are not part of this apply: the {len(current.routes)} routes in force stay"
    listed = {tool.toolset for tool in (wanted.tools or {}).values()}
    stays = not options.prune or wanted.tools is None
    yield from missing_tools(wanted.named, catalog, listed | current.toolsets if stays else listed)
