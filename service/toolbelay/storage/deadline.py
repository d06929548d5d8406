"""Deadlines that hold even when a driver does not let go of a cancelled call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from toolbelay.storage.port import StorageUnavailableError

T = TypeVar("T")


class Deadlines:
    """Runs work under a deadline and remembers what it had to leave behind.

    `asyncio.wait_for` waits for the cancelled task to end; against a frozen PostgreSQL that takes 10 s
    (psycopg waits for its cancel request), against a locked SQLite the busy timeout. So a late task is
    cancelled and left to end by itself. It keeps its pool slot until then, so pools must be bounded.
    """

    def __init__(self) -> None:
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def within(self, timeout: float, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, or StorageUnavailableError after `timeout` seconds."""
        if timeout <= 0:
            work.close()
            raise StorageUnavailableError("SQL: no time left before the deadline")
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if done:
            return task.result()
        self._abandon(task)
        raise StorageUnavailableError(f"SQL: no answer within {timeout:.3g} s")

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.add(task)
        task.add_done_callback(self._forget)
        task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it as lost

    async def drain(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for what was left behind."""
        if self._abandoned:
            await asyncio.wait(set(self._abandoned), timeout=timeout)
