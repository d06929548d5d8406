"""The raise of a generation in Redis after its commit: what makes a change acknowledged."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.sessions.port import StateUnavailableError

CONFIRM_SECONDS = 5.0
_TRY_SECONDS = 1.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
# The event loop itself holds tasks weakly; these outlive their caller.
_RAISING: set[asyncio.Task[int]] = set()


class GenerationRaiser(Protocol):
    """The part of `sessions.port.SessionStore` that an apply needs."""

    async def raise_generation(self, tenant: str, generation: int, *, timeout: float) -> int:
        """Set the generation if greater; returns the stored number. StateUnavailableError within `timeout`."""


async def confirm_raise(
    raiser: GenerationRaiser, tenant: str, generation: int, *, within: float = CONFIRM_SECONDS
) -> int:
    """Raise until Redis confirms, for `within` seconds; else PROPAGATION_UNCONFIRMED with the generation.

    Returns the number in Redis: a greater one is another admin's, or of a database that was restored since.

    Goes on when the caller is cancelled: the commit took place, and the sooner it is seen the better.
    """
    task = asyncio.ensure_future(_confirm(raiser, tenant, generation, within))
    _RAISING.add(task)
    task.add_done_callback(_RAISING.discard)
    return await asyncio.shield(task)


def behind_redis(generation: int, stored: int) -> ToolbelayError:
    """A change of a restored database: the replicas hold newer generations of the lost one, and would not see it."""
    return ToolbelayError(
        ErrorReason.PROPAGATION_UNCONFIRMED,
        f"generation {generation} is committed, but Redis holds {stored}, which this database never had: where it was "
        "restored from a backup, run `toolbelay db resync`",
        metadata={"generation": str(generation)},
    )


async def _confirm(raiser: GenerationRaiser, tenant: str, generation: int, within: float) -> int:
    deadline = time.monotonic() + within
    pause = _FIRST_PAUSE
    failed: StateUnavailableError | None = None
    while (left := deadline - time.monotonic()) > 0:
        try:
            # An answer is a confirmation: the script sets if greater, so the stored number is no less.
            return await raiser.raise_generation(tenant, generation, timeout=min(_TRY_SECONDS, left))
        except StateUnavailableError as error:
            failed = failed or error  # the later ones may only say that the breaker is open
            await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, _LONGEST_PAUSE)
    raise ToolbelayError(
        ErrorReason.PROPAGATION_UNCONFIRMED,
        f"generation {generation} is committed, but Redis did not confirm it "
        f"({failed.cause if failed else 'no time was left'}): it takes effect by polling; repeating the call is safe",
        metadata={"generation": str(generation)},
    ) from failed
