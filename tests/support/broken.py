"""`python -m tests.support.broken_…`: the service with one promise taken out, so that the checkers can be checked."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from toolbelay.catalog.freshness import Freshness
from toolbelay.sessions import endpoint, lua
from toolbelay.storage import engine, reader

_PLAIN_SET = """
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return tonumber(ARGV[1])
"""


def without_generation_check() -> None:
    """Every call answers from what the worker holds; only the poller brings news."""

    async def current(self: Freshness[Any], tenant: str, _read: object, **_more: object) -> Any:
        return self.held(tenant)

    Freshness.current = current  # type: ignore[assignment, method-assign]


def plain_set() -> lua.Script:
    """The raise as a plain SET: a late one takes a newer one back."""
    real = lua.RAISE_GENERATION
    return lua.Script(real.name, _PLAIN_SET, real.keys, real.args, real.variadic)


def with_plain_set() -> None:
    """The service raises by SET too."""
    lua.RAISE_GENERATION = plain_set()


def trusting_first_reads() -> None:
    """A connection is proven by its first generation read, whether or not SQL could be asked."""
    exchange = endpoint.Endpoint._exchange

    async def trusting(self: endpoint.Endpoint, *arguments: Any) -> endpoint.Reply:
        reply = await exchange(self, *arguments)
        if reply.vouch is not None:
            reply.vouch()
        return reply

    endpoint.Endpoint._exchange = trusting  # type: ignore[method-assign, assignment]


def without_transaction() -> None:
    """Each statement of a load sees the database as it is at that moment."""
    read_policies = reader._policies

    async def read_once(self: engine.Database, work: Any) -> Any:
        async with self._reads.connect() as connection:
            loose = await connection.execution_options(isolation_level="AUTOCOMMIT")
            return await work(loose)

    async def policies(connection: AsyncConnection, tenant_id: int) -> Any:
        await asyncio.sleep(0.02)  # the statements of a large catalog take longer than those of the tests'
        return await read_policies(connection, tenant_id)

    engine.Database._read_once = read_once  # type: ignore[method-assign]
    reader._policies = policies
