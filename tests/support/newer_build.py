"""`python -m tests.support.newer_build`: this build as a later one might be, which stores more in a session.

It adds a map key, `n`, that counts its own saves, and an element to each tool. Both are additive, as
docs/compatibility.md demands.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolbelay.api.serve import run
from toolbelay.planner.model import SessionState
from toolbelay.sessions.store import RedisSessionStore
from toolbelay.settings import load

_tail = RedisSessionStore._tail


def tail(self: RedisSessionStore, state: SessionState) -> bytes:
    """What this build writes, and more; what it remembers of it has the more too."""
    counted: Any = state.extra.get("n", 0)
    tools = tuple(replace(tool, extra=tool.extra or ("later",)) for tool in state.tools)
    return _tail(self, replace(state, tools=tools, extra={**state.extra, "n": counted + 1}))


if __name__ == "__main__":
    RedisSessionStore._tail = tail  # type: ignore[method-assign]
    run(load())
