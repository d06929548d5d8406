"""All of a tenant at one generation, in memory, immutable from outside, made by difference."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from toolbelay.catalog.estimate import Estimator
from toolbelay.catalog.model import Tool
from toolbelay.catalog.routes import DEFAULT_ROUTE, Route, parse_route
from toolbelay.catalog.surface import Digester, Surface
from toolbelay.storage.port import PolicyFile, TenantRows

P = TypeVar("P")

_FEW = 256  # so many changed ids are inserted one by one; more are sorted anew


class SnapshotError(Exception):
    """The rows of a generation make no snapshot: a policy or a route does not parse."""


@dataclass(frozen=True, slots=True, eq=False)
class TenantSnapshot(Generic[P]):
    """One tenant at one generation. `P` is the compiled policy set, opaque here.

    `sorted_ids`: every tool id in byte order. `by_name`: tools by exposed name. `retired`: exposed names
    of removed tools, by tool id; they stay reserved. `memory`: what others remember of this snapshot, and
    forget with it; they keep it bounded.
    """

    tenant: str
    generation: int
    session_epoch: int
    tools: Mapping[str, Tool]
    by_name: Mapping[str, Tool]
    sorted_ids: Sequence[str]
    policies: P
    policy_files: tuple[PolicyFile, ...]
    routes: Mapping[str, Route]
    surface: Surface
    retired: Mapping[str, str]
    memory: dict[Hashable, Any] = field(default_factory=dict)

    def exposed_name(self, tool_id: str) -> str | None:
        """The name reserved for a tool, also of one that is gone from the catalog."""
        tool = self.tools.get(tool_id)
        return self.retired.get(tool_id) if tool is None else tool.exposed_name

    def route(self, name: str) -> Route | None:
        """The route of a request; every tenant has a default route."""
        return self.routes.get(name or DEFAULT_ROUTE)


def build_snapshot(
    rows: TenantRows,
    previous: TenantSnapshot[P] | None,
    compile_policies: Callable[[Sequence[PolicyFile]], P],
    digest: Digester,
    estimator: Estimator | None = None,
) -> TenantSnapshot[P]:
    """The snapshot that `rows` lead to, from `previous` where rows are a difference to it.

    Blocking and long for large catalogs: run it off the event loop. Raises SnapshotError.
    """
    base = previous if previous is not None and rows.since == previous.generation and rows.since else None
    if rows.since and base is None:
        raise SnapshotError("the rows are a difference to a generation that is not held")
    files = tuple(rows.policies)
    if base is not None and files == base.policy_files:
        policies = base.policies
    else:
        try:
            policies = compile_policies(files)
        except Exception as error:
            raise SnapshotError(f"the policy set does not compile: {error}") from error
    retired = {**base.retired, **rows.retired} if base else dict(rows.retired)
    tools = dict(base.tools) if base else {}
    by_name = dict(base.by_name) if base else {}
    for tool_id in rows.removed:
        gone = tools.pop(tool_id, None)
        if gone is not None:
            by_name.pop(gone.exposed_name, None)
            retired[tool_id] = gone.exposed_name
    for tool in rows.tools:
        tools[tool.tool_id] = tool
        by_name[tool.exposed_name] = tool
        retired.pop(tool.tool_id, None)
    touched = {*rows.removed, *(t.tool_id for t in rows.tools)}
    return TenantSnapshot(
        tenant=rows.tenant,
        generation=rows.generation,
        session_epoch=rows.session_epoch,
        tools=tools,
        by_name=by_name,
        sorted_ids=_sorted_ids(base.sorted_ids if base else (), tools, touched),
        policies=policies,
        policy_files=files,
        routes=_routes(rows),
        surface=base.surface.without(touched, base.tools, tools)
        if base
        else Surface.of(tools.values(), digest, estimator),
        retired=retired,
    )


def _routes(rows: TenantRows) -> Mapping[str, Route]:
    routes: dict[str, Route] = {DEFAULT_ROUTE: Route()}
    for row in rows.routes:
        route, faults, _ = parse_route(row.name, json.loads(row.json))
        if route is None:
            raise SnapshotError("; ".join(faults))
        routes[row.name] = route
    return routes


def _sorted_ids(before: Sequence[str], tools: Mapping[str, Tool], touched: set[str]) -> Sequence[str]:
    if not before or len(touched) > _FEW:
        return sorted(tools)
    ids = list(before)
    for tool_id in touched:
        at = bisect_left(ids, tool_id)
        held = at < len(ids) and ids[at] == tool_id
        if held and tool_id not in tools:
            del ids[at]
        elif not held and tool_id in tools:
            insort(ids, tool_id)
    return ids
