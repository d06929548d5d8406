"""From a call to the server or servers that answer it: one server (plain, or found by Sentinel), or a Cluster."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from redis import exceptions as errors

from toolbelay.sessions import faults
from toolbelay.sessions.endpoint import Call, Endpoint, Reply
from toolbelay.sessions.observer import StoreEvent, StoreObserver
from toolbelay.sessions.port import StateUnavailableError


class Link(Protocol):
    """A way to Redis. Raises StateUnavailableError within the timeout; a reply of a link holds no error."""

    async def call(self, call: Call, *, timeout: float) -> Reply: ...

    async def close(self) -> None: ...


class SingleLink:
    """One server at a time: `redis://`, `rediss://`, `unix://` and `redis+sentinel://`.

    A READONLY refusal means that the server was demoted behind our back. Its connections are dropped and the call,
    which surely was not applied, is tried once more on a new one, for which name or Sentinel is asked again. When the
    refused connection was itself new there is no better primary to be found, and the call fails.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        observer: StoreObserver,
        *,
        also_close: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._also_close = also_close
        self._observer = observer
        self._clock = clock

    async def call(self, call: Call, *, timeout: float) -> Reply:
        deadline = self._clock() + timeout
        reply = await self._endpoint.call(call, timeout=timeout)
        if isinstance(reply.value, errors.ReadOnlyError):
            await self._endpoint.forget()
            if not reply.new_lane:
                self._observer.happened(StoreEvent.RETRIED)
                reply = await self._endpoint.call(call, timeout=deadline - self._clock())
                if isinstance(reply.value, errors.ReadOnlyError):
                    await self._endpoint.forget()
        return checked(reply, self._observer)

    async def close(self) -> None:
        await self._endpoint.close()
        if self._also_close is not None:
            await self._also_close()


def checked(reply: Reply, observer: StoreObserver) -> Reply:
    """The reply, unless its script was refused. Raises StateUnavailableError."""
    if reply.reloaded:
        observer.happened(StoreEvent.SCRIPT_RELOADED)
    if isinstance(reply.value, errors.ResponseError):
        raise StateUnavailableError(faults.cause_of(reply.value)) from reply.value
    return reply
