"""The ports of storage: catalog, policy and routes of each tenant, generation by generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from toolbelay.catalog.model import Tool, ToolHints


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One Cedar file of a tenant. `name` is its identity, such as "support.cedar"."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RouteRow:
    """One route as given: `json` is the JSON object of the keys that were set, defaults left out."""

    name: str
    json: str


@dataclass(frozen=True, slots=True)
class TenantRows:
    """All of a tenant read in one transaction, or the difference to `since`.

    `tools`: those changed after `since` (all when `since` is 0), in no order. `removed`: ids of those
    removed after `since`. `policies` and `routes` are always whole. `since` is 0 also where a difference
    was asked for that is not known any more: these rows then replace everything. `retired`: exposed names,
    by tool id, of the removed tools (of all that are gone when `since` is 0); they stay reserved.
    """

    tenant: str
    generation: int
    session_epoch: int
    since: int
    tools: Sequence[Tool]
    removed: Sequence[str]
    policies: Sequence[PolicyFile]
    routes: Sequence[RouteRow]
    retired: Mapping[str, str] = field(default_factory=dict)


class StorageUnavailableError(Exception):
    """SQL could not be used in time. The message holds no credentials."""


class CatalogReader(Protocol):
    """Reads, on the primary. Every method raises StorageUnavailableError within `timeout` seconds."""

    async def generations(self, *, timeout: float) -> Mapping[str, int]:
        """Generation of every tenant."""

    async def generation(self, tenant: str, *, timeout: float) -> int | None:
        """Generation of one tenant; `None` = no such tenant."""

    async def load(self, tenant: str, *, since: int, timeout: float) -> TenantRows | None:
        """Generation and rows in one REPEATABLE READ transaction; `None` = no such tenant.

        `since` > 0 loads by difference to that generation, or everything (`since` 0 in the answer) when
        that difference is not known.
        """

    async def ready(self, *, timeout: float) -> None:
        """Raise StorageUnavailableError unless the schema is at this build's head."""


@dataclass(frozen=True, slots=True)
class CurrentTool:
    """What decides whether a tool changes: a definition of equal fingerprint is no change."""

    exposed_name: str
    fingerprint: bytes
    tags: frozenset[str]
    hints: ToolHints
    requires: frozenset[str]


@dataclass(frozen=True, slots=True)
class ChangeScope:
    """What a change has to see: the tools it lists, tools it only mentions, or (`every_tool`) all.

    `toolsets`: names of which it has to know whether they have a tool.
    """

    listed: frozenset[str] = frozenset()
    mentioned: frozenset[str] = frozenset()
    toolsets: frozenset[str] = frozenset()
    every_tool: bool = False


@dataclass(frozen=True, slots=True)
class CurrentConfig:
    """A tenant's rows inside the transaction of a change, after its row was locked.

    `generation` is 0 when the tenant does not exist. `tools`: of the scope. `reserved`: tool id by exposed
    name, of every name ever given; left empty where the scope lists no tool that is new. `toolsets`: those of the
    scope that have a tool.
    """

    generation: int
    tool_count: int
    tools: Mapping[str, CurrentTool]
    toolsets: frozenset[str]
    reserved: Mapping[str, str]
    policies: Mapping[str, str]
    routes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Rows to write. In `policies` and `routes`, `None` removes. `summary` goes to the audit log (JSON)."""

    added: Sequence[Tool] = ()
    changed: Sequence[Tool] = ()
    removed: Sequence[str] = ()
    reserve: Mapping[str, str] = field(default_factory=dict)  # tool id by exposed name
    policies: Mapping[str, str | None] = field(default_factory=dict)
    routes: Mapping[str, str | None] = field(default_factory=dict)
    summary: str = "{}"

    @property
    def empty(self) -> bool:
        """Whether nothing is written, so that the generation stays."""
        return not (self.added or self.changed or self.removed or self.policies or self.routes)


class ConfigWriter(Protocol):
    """Changes, on the primary. Every method raises StorageUnavailableError within `timeout` seconds.

    After that error it is unknown whether the change took place; repeating is safe.
    """

    async def change(
        self,
        tenant: str,
        scope: ChangeScope,
        decide: Callable[[CurrentConfig], ConfigChange],
        *,
        who: str,
        dry_run: bool,
        timeout: float,
    ) -> int:
        """One transaction: lock the tenant, read, `decide` (in a thread), write; the generation after it.

        An empty change leaves the generation; any other raises it by one and leaves an audit row. A dry
        run writes nothing and returns the present generation. What `decide` raises refuses everything.
        """

    async def end_sessions(self, tenant: str, *, who: str, timeout: float) -> int | None:
        """Raise the tenant's session epoch and generation; the generation, `None` = no such tenant."""

    async def resync(self, in_redis: Mapping[str, int], *, who: str, timeout: float) -> Mapping[str, int]:
        """Set every generation to max(SQL, Redis) + 1 after a restore; the generations set.

        Replicas that loaded before then load everything again.
        """

    async def audit(self, tenant: str, *, who: str, action: str, summary: str, timeout: float) -> None:
        """Leave an audit row without a change. Nothing happens for an unknown tenant."""
