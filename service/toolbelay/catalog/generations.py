"""What freshness asks of Redis, and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from toolbelay.sessions.port import SeenGeneration


class GenerationRead(Struct, frozen=True, gc=False):
    """What Redis said. `known` False: it could not be asked. `fresh`, `vouch`: see `sessions.port.SeenGeneration`."""

    known: bool
    value: int | None = None
    fresh: bool = False
    vouch: Callable[[], None] | None = None


UNKNOWN_GENERATION = GenerationRead(known=False)


class Generations(Protocol):
    """The generations in Redis."""

    async def see_generation(self, tenant: str, *, timeout: float, proven: bool = False) -> SeenGeneration:
        """The tenant's generation; see `SessionStore`."""

    async def raise_generation(self, tenant: str, generation: int, *, timeout: float) -> int:
        """Set if greater; returns the stored number."""


class FreshnessEvents(Protocol):
    """What is counted."""

    def reloaded(self, tenant: str, generation: int, seconds: float) -> None:
        """A snapshot was swapped in."""

    def load_refused(self, tenant: str, generation: int, cause: str, seconds: float) -> None:
        """What SQL holds makes no snapshot: the tenant is closed."""

    def polled(self, *, lag: int, unverified_seconds: float, tenants: int, closed: int) -> None:
        """After each look at SQL, also one that failed. `lag`: most generations that a snapshot was behind."""

    def unverifiable(self, cause: str) -> None:
        """A call was closed."""

    def poll_failed(self, cause: str) -> None:
        """SQL did not answer the poller."""
