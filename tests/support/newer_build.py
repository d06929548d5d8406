"""`python -m tests.support.newer_build`: this build as a later one might be, which stores more in a session.

It adds a map key, `n`, that counts its own saves, and an element to each tool. Both are additive, as
docs/compatibility.md demands.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolbelay.api.serve import run
from toolbelay.planner.model import SessionState
from toolbelay.sessions import envelope
from toolbelay.settings import load

_encode = envelope.encode_tail


def encode_tail(state: SessionState) -> tuple[bytes, bool]:
    """What this build writes, and more."""
    counted: Any = state.extra.get("n", 0)
    tools = tuple(replace(tool, extra=tool.extra or ("later",)) for tool in state.tools)
    return _encode(replace(state, tools=tools, extra={**state.extra, "n": counted + 1}))


if __name__ == "__main__":
    envelope.encode_tail = encode_tail
    run(load())
