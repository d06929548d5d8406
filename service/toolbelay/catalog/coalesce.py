"""One read at a time, shared by the calls that it may serve."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NextRead(Generic[T]):
    """Runs `read` for many callers: at most one at work and one waiting.

    A caller that needs what is true now may only share a read that starts after it asked. So those who
    come while a read is at work share the next one.
    """

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._at_work: asyncio.Task[T] | None = None
        self._waiting: asyncio.Task[T] | None = None

    def running(self) -> asyncio.Task[T] | None:
        """The read at work, begun before now; `None` when there is none."""
        return self._at_work

    def after_now(self) -> asyncio.Task[T]:
        """A read that begins after this call."""
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._run(self._at_work))
            self._waiting.add_done_callback(_retrieve)
        return self._waiting

    async def _run(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait({before})
        self._at_work, self._waiting = self._waiting, None
        try:
            return await self._read()
        finally:
            self._at_work = None


def _retrieve(task: asyncio.Task[T]) -> None:
    """Take the exception, so that a read whose callers all left does not warn."""
    if not task.cancelled():
        task.exception()
