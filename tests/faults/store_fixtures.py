"""What the store's fault tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from tests.contract.session_store_tools import TTL, Session
from tests.support.servers import RedisServer
from toolbelay.sessions.port import Opened, StateUnavailableError

QUARTER = 0.25  # seconds: what a turn gives one call at most
ENDS_SECONDS = 5.0  # a call that takes this long hangs


async def cause_of(work: Awaitable[object]) -> str:
    """The cause that a call fails with. A call that outlives its own timeout by far fails the test."""
    with pytest.raises(StateUnavailableError) as caught:
        await asyncio.wait_for(work, ENDS_SECONDS)
    return caught.value.cause


async def quick_open(session: Session, timeout: float = QUARTER) -> Opened:
    return await session.store.open(session.ref, epoch=0, ttl_seconds=TTL, timeout=timeout)


async def works(session: Session) -> bool:
    try:
        await quick_open(session)
    except StateUnavailableError:
        return False
    return True


async def ping_cause(session: Session, timeout: float = QUARTER) -> str | None:
    try:
        await asyncio.wait_for(session.store.ping(timeout=timeout), ENDS_SECONDS)
    except StateUnavailableError as error:
        return error.cause
    return None


def in_step(primary: RedisServer, replica: RedisServer) -> bool:
    """Whether the replica has every write. (WAIT would speak only of the writes of its own connection.)"""
    one, other = primary.command("INFO", "replication"), replica.command("INFO", "replication")
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    if other.get("master_link_status") != "up":
        return False
    return bool(one["master_repl_offset"] == other["slave_repl_offset"])
