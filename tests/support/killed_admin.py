"""`python -m tests.support.killed_admin TOOL`: an apply that denies a tool, killed between its commit and its raise."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from tests.support.fault_world import ROUTES, TOOLS
from tests.support.service import PERMIT_ALL, apply_config, bundle, tool
from toolbelay.sessions.store import RedisSessionStore


async def _die(*_: Any, **__: Any) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


if __name__ == "__main__":
    RedisSessionStore.raise_generation = _die  # type: ignore[method-assign]
    forbid = f'forbid (principal, action, resource == Tool::"{sys.argv[1]}");'
    config = bundle([tool(t) for t in TOOLS], {"all.cedar": PERMIT_ALL + forbid}, ROUTES)
    asyncio.run(apply_config(os.environ, "acme", config, prune=True))
