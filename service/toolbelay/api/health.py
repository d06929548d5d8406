"""grpc.health.v1 whose watchers do not hold a stop up."""

from __future__ import annotations

import asyncio
from typing import Any

from grpc_health.v1 import health, health_pb2


class HealthService(health.aio.HealthServicer):  # type: ignore[misc,name-defined]  # ships without types
    """Check and Watch; `end_watches` ends the open watches, which would otherwise run until the grace time is over."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Stream the status until the client leaves or the watches are ended."""
        watching = asyncio.ensure_future(super().Watch(request, context))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({watching, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            watching.cancel()
            await asyncio.gather(watching, ended, return_exceptions=True)

    def end_watches(self) -> None:
        """End the open watches, and any that begins from now on."""
        self._ended.set()
