"""Waiting for a condition instead of sleeping for a guess."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

INTERVAL_SECONDS = 0.01


def wait_until(condition: Callable[[], object], timeout: float = 10.0, message: str = "") -> None:
    """Poll `condition` until it returns something true.

    Raises AssertionError when that hasn't happened within `timeout` seconds; an exception of the condition itself
    passes through.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(_failure(timeout, message))
        time.sleep(INTERVAL_SECONDS)


async def wait_until_async(
    condition: Callable[[], object | Awaitable[object]],
    timeout: float = 10.0,
    message: str = "",
) -> None:
    """Like `wait_until`, on the running event loop; `condition` may be an async function."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if time.monotonic() > deadline:
            raise AssertionError(_failure(timeout, message))
        await asyncio.sleep(INTERVAL_SECONDS)


def _failure(timeout: float, message: str) -> str:
    return f"not true within {timeout} s" + (f": {message}" if message else "")
