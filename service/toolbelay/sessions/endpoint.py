"""One Redis server: a bounded number of connections, a breaker, and calls that end in time.

redis-py makes and speaks over the connections; which one is used, for how long, and whether it is new to us is decided
here, because the promises of the port hang on it: a wait that ends inside the call's timeout, no reply that another
call reads, no write sent twice, and the knowledge that a generation came over a connection not used for it before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from redis import exceptions as errors
from redis.asyncio.connection import AbstractConnection

from toolbelay.sessions import faults
from toolbelay.sessions.breaker import Breaker
from toolbelay.sessions.lua import Script, command
from toolbelay.sessions.port import StateUnavailableError

TELLING_TIMEOUT = 0.05  # seconds; a call given less that runs out of time says nothing of the server
_ASKING = command(b"ASKING")


@dataclass(frozen=True, slots=True)
class Call:
    """One trip: a script, a generation key to read beside it, or both.

    `proven`: only over a connection that is proven for the generation key. When there is none, nothing is sent and
    the reply is an empty, fresh one.
    """

    script: Script | None = None
    keys: tuple[bytes, ...] = ()
    args: tuple[bytes, ...] = ()
    generation_key: bytes | None = None
    proven: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """`value`: the script's reply. `generation`: the raw value under the key. Either may be the server's error.

    `fresh`: the generation was read on a connection that has not been proven for this key since it was made or
    since the last disturbance; `vouch` proves it. `new_lane`: the connection was made for this very call.
    `reloaded`: the server had forgotten the script.
    """

    value: Any = None
    generation: bytes | errors.ResponseError | None = None
    fresh: bool = False
    vouch: Callable[[], None] | None = None
    new_lane: bool = False
    reloaded: bool = False


_NOTHING_SENT = Reply(fresh=True)


@dataclass(slots=True, eq=False)
class _Lane:
    """A connection, and the generation keys that it is proven for in its current era.

    The set is replaced, never emptied: who vouches late, for what the connection was before, changes nothing.
    """

    connection: AbstractConnection
    era: int = 0
    proven: set[bytes] = field(default_factory=set)

    def proves(self, key: bytes, era: int) -> bool:
        return self.era == era and key in self.proven

    def renew(self, era: int) -> None:
        self.era, self.proven = era, set()


class _Stage(Enum):
    WAITING = 0  # for a free connection
    CONNECTING = 1
    SENT = 2  # the server may have got it


@dataclass(slots=True)
class _Progress:
    stage: _Stage = _Stage.WAITING


class Endpoint:
    """Connections to one server.

    `make` gives an unconnected redis-py connection (with no socket timeout and no retry: time is kept here).
    `aim`, when given, is awaited before each connect to set where the connection goes: Sentinel.
    """

    def __init__(
        self,
        make: Callable[[], AbstractConnection],
        *,
        size: int,
        breaker: Breaker,
        aim: Callable[[AbstractConnection], Awaitable[None]] | None = None,
    ) -> None:
        self.breaker = breaker
        self._make = make
        self._aim = aim
        self._free = asyncio.Semaphore(size)
        self._idle: list[_Lane] = []
        self._busy: set[_Lane] = set()
        self._returned = asyncio.Event()
        self._era = 0
        self._closed = False

    async def call(self, call: Call, *, timeout: float, asking: bool = False) -> Reply:
        """Send a call once and read its replies. Raises StateUnavailableError within `timeout` seconds.

        A cancelled or timed out call loses its connection, so that nobody reads its late reply. The server's own
        refusals come back inside the reply.
        """
        if timeout <= 0:
            raise StateUnavailableError(faults.TIMEOUT)
        if self._closed:
            raise StateUnavailableError(faults.CONNECTION)
        if not self.breaker.admit():
            raise StateUnavailableError(faults.BREAKER_OPEN)
        progress = _Progress()
        told = False
        try:
            async with asyncio.timeout(timeout):
                reply = await self._on_a_lane(call, asking, progress)
            told = reply is not _NOTHING_SENT
            if told:
                self.breaker.succeeded()
            return reply
        except (errors.RedisError, OSError) as error:  # OSError: TimeoutError is one
            refusal = _unavailable(error, progress)
            told = faults.is_outage(refusal.cause) and (refusal.cause != faults.TIMEOUT or timeout >= TELLING_TIMEOUT)
            if told:
                self.breaker.failed()
            raise refusal from error
        finally:
            if not told:
                self.breaker.inconclusive()

    async def forget(self) -> None:
        """Drop the idle connections, and trust nothing read over the others before: the server may have changed."""
        self.disturb()
        lanes, self._idle = self._idle, []
        for lane in lanes:
            await lane.connection.disconnect(nowait=True)

    def disturb(self) -> None:
        """Treat each connection as new for generation reads: the roles or slots of servers have changed."""
        self._era += 1

    async def close(self) -> None:
        """Close idle connections now, and those in use when their calls end."""
        self._closed = True
        await self.forget()

    async def _on_a_lane(self, call: Call, asking: bool, progress: _Progress) -> Reply:  # noqa: FBT001
        while True:
            async with self._free:
                lane = self._pick(call)
                if lane is not None:
                    return await self._over(lane, call, asking, progress)
            key = call.generation_key
            if key is None or not any(busy.proves(key, self._era) for busy in self._busy):
                return _NOTHING_SENT
            self._returned.clear()
            await self._returned.wait()

    def _pick(self, call: Call) -> _Lane | None:
        """An idle connection, a proven one first, or a new one; `None` when only a proven one will do."""
        key = call.generation_key
        if key is not None:
            for at in range(len(self._idle) - 1, -1, -1):
                if self._idle[at].proves(key, self._era):
                    return self._idle.pop(at)
        if call.proven:
            return None
        return self._idle.pop() if self._idle else _Lane(self._make(), self._era)

    async def _over(self, lane: _Lane, call: Call, asking: bool, progress: _Progress) -> Reply:  # noqa: FBT001
        self._busy.add(lane)
        clean = False
        try:
            progress.stage = _Stage.CONNECTING
            new = await self._ready(lane)
            progress.stage = _Stage.SENT
            reply = await self._exchange(lane, call, asking, new)
            clean = True
            return reply
        finally:
            self._busy.discard(lane)
            if not clean or self._closed:
                lane.renew(self._era)
                await lane.connection.disconnect(nowait=True)
            if not self._closed:
                self._idle.append(lane)
            self._returned.set()

    async def _ready(self, lane: _Lane) -> bool:
        """Connect if need be; whether that was needed. An idle connection with unread input or at its end is dead."""
        connection = lane.connection
        if connection.is_connected:
            if not await connection.can_read():
                return False
            await connection.disconnect(nowait=True)
        lane.renew(self._era)
        if self._aim is not None:
            await self._aim(connection)
        await connection.connect()  # type: ignore[no-untyped-call]
        return True

    async def _exchange(self, lane: _Lane, call: Call, asking: bool, new: bool) -> Reply:  # noqa: FBT001
        connection, key = lane.connection, call.generation_key
        words = [_ASKING] if asking else []
        if call.script is not None:
            words.append(call.script.by_hash(call.keys, call.args))
        if key is not None:
            words.append(command(b"GET", key))
        replies = (await _converse(connection, words))[1 if asking else 0 :]
        value = replies[0] if call.script is not None else None
        reloaded = call.script is not None and isinstance(value, errors.NoScriptError)
        if reloaded and call.script is not None:
            again = [_ASKING] if asking else []
            again.append(call.script.by_source(call.keys, call.args))
            value = (await _converse(connection, again))[-1]
        if key is None:
            return Reply(value=value, new_lane=new, reloaded=reloaded)
        if lane.era != self._era:
            lane.renew(self._era)
        fresh = key not in lane.proven
        vouch = partial(lane.proven.add, key) if fresh else None
        return Reply(value, replies[-1], fresh, vouch, new_lane=new, reloaded=reloaded)


async def _converse(connection: AbstractConnection, words: Sequence[bytes]) -> list[Any]:
    """Send commands in one flush and read a reply to each; the server's errors are among the replies."""
    await connection.send_packed_command(b"".join(words), check_health=False)  # one write, one packet
    replies: list[Any] = []
    for _ in words:
        try:
            replies.append(await connection.read_response())
        except errors.ResponseError as refusal:
            replies.append(refusal)
    return replies


def _unavailable(error: Exception, progress: _Progress) -> StateUnavailableError:
    cause = faults.cause_of(error)
    if progress.stage is _Stage.WAITING and cause == faults.TIMEOUT:
        cause = faults.POOL_EXHAUSTED
    unanswered = cause in (faults.TIMEOUT, faults.CONNECTION)
    return StateUnavailableError(cause, maybe_applied=progress.stage is _Stage.SENT and unanswered)
