"""The clock of deadlines: the event loop's.

To ask the loop costs a system call (getpid, in `get_running_loop`), and cold caches after it. On Linux the loop's clock is
`time.monotonic`, so that is read instead. Elsewhere it need not be: on macOS uvloop's goes on while the machine sleeps,
and Python's does not.
"""

from __future__ import annotations

import asyncio
import sys
import time


def _ask() -> float:
    return asyncio.get_running_loop().time()


loop_time = time.monotonic if sys.platform == "linux" else _ask
"""Seconds, as `asyncio.timeout_at` and `call_at` take them. Call it from a coroutine or a callback of the loop."""
