"""The port of storage: catalog, policy and routes of each tenant, generation by generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolbelay.catalog.model import Tool


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

    `tools`: those changed after `since` (all when `since` is 0). `removed`: ids of those removed after
    `since`. `policies` and `routes` are always whole.
    """

    tenant: str
    generation: int
    session_epoch: int
    since: int
    tools: Sequence[Tool]
    removed: Sequence[str]
    policies: Sequence[PolicyFile]
    routes: Sequence[RouteRow]


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

        `since` > 0 loads by difference to that generation.
        """

    async def ready(self, *, timeout: float) -> None:
        """Raise unless the schema is at this build's head."""
