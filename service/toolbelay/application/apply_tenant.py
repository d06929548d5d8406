"""Changes of a tenant's generation that are not an apply: ending all sessions, resync after a restore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from toolbelay.application.apply_confirm import CONFIRM_SECONDS, GenerationRaiser, confirm_raise
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.storage.port import CatalogReader, ConfigWriter, StorageUnavailableError

SQL_SECONDS = 30.0
_REDIS_SECONDS = 2.0


class GenerationStore(GenerationRaiser, Protocol):
    """The parts of `sessions.port.SessionStore` that a resync needs."""

    async def generation(self, tenant: str, *, timeout: float) -> tuple[int | None, bool]:
        """The generation in Redis (`None` = missing) and whether the connection was fresh."""


class EndTenantSessions:
    """Ends every session of a tenant by raising its session epoch and generation."""

    def __init__(
        self, writer: ConfigWriter, raiser: GenerationRaiser, *, confirm_seconds: float = CONFIRM_SECONDS
    ) -> None:
        self._writer = writer
        self._raiser = raiser
        self._confirm_seconds = confirm_seconds

    async def run(self, tenant: str, *, who: str, timeout: float = SQL_SECONDS) -> int:
        """The generation after it. Raises ROUTE_NOT_FOUND for an unknown tenant, and as an apply does."""
        try:
            generation = await self._writer.end_sessions(tenant, who=who, timeout=timeout)
        except StorageUnavailableError as error:
            raise _unusable(error) from error
        if generation is None:
            raise ToolbelayError(ErrorReason.ROUTE_NOT_FOUND, "the tenant has no configuration")
        await confirm_raise(self._raiser, tenant, generation, within=self._confirm_seconds)
        return generation


class ResyncGenerations:
    """`toolbelay db resync`: after a restore, every generation goes past what Redis and replicas have seen."""

    def __init__(
        self,
        reader: CatalogReader,
        writer: ConfigWriter,
        store: GenerationStore,
        *,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._store = store
        self._confirm_seconds = confirm_seconds

    async def run(self, *, who: str, timeout: float = SQL_SECONDS) -> Mapping[str, int]:
        """The generation set for each tenant, all confirmed.

        Redis is read first: StateUnavailableError before anything changes. Raises AUTHORITY_UNVERIFIABLE
        when SQL cannot be used, PROPAGATION_UNCONFIRMED for the first tenant that Redis did not confirm.
        """
        try:
            tenants = await self._reader.generations(timeout=timeout)
            in_redis: dict[str, int] = {}
            for tenant in tenants:
                seen, _ = await self._store.generation(tenant, timeout=_REDIS_SECONDS)
                in_redis[tenant] = seen or 0
            raised = await self._writer.resync(in_redis, who=who, timeout=timeout)
        except StorageUnavailableError as error:
            raise _unusable(error) from error
        for tenant, generation in raised.items():
            await confirm_raise(self._store, tenant, generation, within=self._confirm_seconds)
        return raised


def _unusable(error: StorageUnavailableError) -> ToolbelayError:
    return ToolbelayError(
        ErrorReason.AUTHORITY_UNVERIFIABLE,
        f"the database could not be used ({error}); whether the change was committed is not known; repeating is safe",
    )
