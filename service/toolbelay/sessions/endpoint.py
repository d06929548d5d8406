"""One Redis server: a bounded number of connections, a breaker, and calls that end in time.

redis-py makes the connections, `wire.py` speaks over them; which one is used, for how long, and whether it is new to us
is decided here, because the promises of the port hang on it: a wait that ends inside the call's timeout, no reply that another
call reads, no write sent twice, and the knowledge that a generation came over a connection not used for it before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import Any

from msgspec import Struct
from redis import exceptions as errors
from redis.asyncio.connection import AbstractConnection

from toolbelay.clock import loop_time
from toolbelay.sessions import faults
from toolbelay.sessions.breaker import Breaker
from toolbelay.sessions.lane import Lane
from toolbelay.sessions.lua import Script, command
from toolbelay.sessions.port import StateUnavailableError
from toolbelay.sessions.wire import Wire

AT_ONCE = 32  # calls that share a connection
KEPT = 2  # connections that concurrent calls open before they share one: who loses one then loses no proof
GROW_AGAIN = 1.0  # seconds after a failed connect in which calls share what there is
TELLING_TIMEOUT = 0.05  # seconds; a call given less that runs out of time says nothing of the server
_ASKING = command(b"ASKING")


class Call(Struct, frozen=True, gc=False):
    """One trip: a script, a generation key to read beside it, or both.

    `proven`: only over a connection that is proven for the generation key. When there is none, nothing is sent and
    the reply is an empty, fresh one.
    """

    script: Script | None = None
    keys: tuple[bytes, ...] = ()
    args: tuple[bytes, ...] = ()
    generation_key: bytes | None = None
    proven: bool = False


class Reply(Struct, frozen=True, gc=False):
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


class _Stage(Enum):
    WAITING = 0  # for a free connection
    CONNECTING = 1
    SENT = 2  # the server may have got it


@dataclass(slots=True)
class _Progress:
    deadline: float
    stage: _Stage = _Stage.WAITING
    wire: Wire | None = None


class Endpoint:
    """Connections to one server, each shared by up to `AT_ONCE` calls.

    `make` gives an unconnected redis-py connection (with no socket timeout and no retry: time is kept here). `size`:
    connections. `aim`, when given, is awaited before each connect to set where the connection goes: Sentinel.
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
        self._size = size
        self._lanes: list[Lane] = []
        self._queue: deque[asyncio.Future[None]] = deque()
        self._era = 0
        self._grow_after = float("-inf")
        self._closed = False

    async def call(self, call: Call, *, timeout: float, asking: bool = False) -> Reply:
        """Send a call once and read its replies. Raises StateUnavailableError within `timeout` seconds.

        The reply to a call that is cancelled or runs out of time is thrown away when it comes (`Wire` keeps its place).
        Until then its connection takes no further calls, except those that want a proven one: its proof is worth
        keeping. The server's own refusals come back inside the reply.
        """
        if timeout <= 0:
            raise StateUnavailableError(faults.TIMEOUT)
        if self._closed:
            raise StateUnavailableError(faults.CONNECTION)
        if not self.breaker.admit():
            raise StateUnavailableError(faults.BREAKER_OPEN)
        progress = _Progress(loop_time() + timeout)
        told = False
        try:
            lane = self._pick(call)
            if lane is None:
                if call.proven:
                    return _NOTHING_SENT
                lane = await self._place(call, progress)
            if self._queue:
                self._call_next()  # there may be room for more than one
            reply = await self._over(lane, call, asking, progress)
            told = True
            self.breaker.succeeded()
            return reply
        except (errors.RedisError, OSError) as error:  # OSError: TimeoutError is one
            refusal = _unavailable(error, progress)
            told = _tells(refusal.cause, progress.wire, timeout)
            if told:
                self.breaker.failed()
            raise refusal from error
        finally:
            if not told:
                self.breaker.inconclusive()

    async def forget(self) -> None:
        """Drop the idle connections, the others when they are idle, and trust nothing read over them before.

        The server may have changed.
        """
        self.disturb()
        for lane in self._lanes:
            if lane.in_flight:
                lane.closed = True
            else:
                await lane.disconnect(self._era)

    def disturb(self) -> None:
        """Treat each connection as new for generation reads: the roles or slots of servers have changed."""
        self._era += 1

    async def close(self) -> None:
        """Close idle connections now, and those in use when their calls end."""
        self._closed = True
        await self.forget()

    async def _place(self, call: Call, progress: _Progress) -> Lane:
        """Wait for a connection with room."""
        while True:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(place)
            try:
                async with asyncio.timeout_at(progress.deadline):
                    await place
            except (asyncio.CancelledError, TimeoutError):
                if place.done() and not place.cancelled():
                    self._call_next()  # the place that this call was given is the next one's
                raise
            lane = self._pick(call)
            if lane is not None:
                return lane

    def _pick(self, call: Call) -> Lane | None:
        for lane in self._lanes:
            if lane.late_since:
                lane.settle(loop_time())
        return self._pick_proven(call.generation_key) if call.proven else self._pick_any(call.generation_key)

    def _pick_any(self, key: bytes | None) -> Lane | None:
        """A connection with room: a proven one first, then a connected one, then one to connect.

        A proven one at work is left alone while there are fewer than `KEPT`: when it is lost, a second one that is
        proven too lets the others go on, whether SQL can be asked or not. One that owes a late reply is given up when
        there is no other.
        """
        spare, busy, late = None, None, None
        for lane in self._lanes:
            connected = lane.connected
            if lane.closed or lane.in_flight >= AT_ONCE or (lane.in_flight and not connected):
                continue
            if lane.late_since:
                late = late if lane.in_flight else lane
            elif connected and (key is None or lane.proves(key, self._era)):
                if not lane.in_flight:
                    return lane
                busy = busy or lane
            elif spare is None or (connected and not spare.connected):
                spare = lane
        if busy is not None and not self._may_grow():
            return busy
        return spare or self._added() or busy or _given_up(late)

    def _pick_proven(self, key: bytes | None) -> Lane | None:
        """Full or late, if need be: what is asked of it is short, and wanted when the others have no proof."""
        proven = [lane for lane in self._lanes if key is not None and not lane.closed and lane.proves(key, self._era)]
        return min(proven, key=lambda lane: (lane.late_since > 0, lane.in_flight), default=None)

    def _added(self) -> Lane | None:
        if len(self._lanes) >= self._size:
            return None
        self._lanes.append(Lane(self._make(), self._era))
        return self._lanes[-1]

    def _may_grow(self) -> bool:
        at_work = sum(1 for lane in self._lanes if (lane.connected and not lane.late_since) or lane.in_flight)
        return at_work < min(KEPT, self._size) and loop_time() >= self._grow_after

    def _call_next(self) -> None:
        """Let one call that waits for a place look again."""
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return

    async def _over(self, lane: Lane, call: Call, asking: bool, progress: _Progress) -> Reply:  # noqa: FBT001
        lane.in_flight += 1
        sound = False
        try:
            new = not lane.connected
            if new:
                progress.stage = _Stage.CONNECTING
                self._grow_after = loop_time() + GROW_AGAIN
                async with asyncio.timeout_at(progress.deadline):
                    await self._connect(lane)
                self._grow_after = float("-inf")
            progress.stage, progress.wire = _Stage.SENT, lane.wire
            reply = await self._exchange(lane, call, asking, new, progress.deadline)
            sound = True
            return reply
        except (asyncio.CancelledError, TimeoutError):
            sound = progress.stage is _Stage.SENT and lane.connected
            if sound and not lane.late_since:
                lane.late_since = loop_time()
            raise
        finally:
            lane.in_flight -= 1
            if not sound or self._closed:
                lane.closed = True
            if lane.closed and not lane.in_flight:
                await lane.disconnect(self._era)
            if self._queue:
                self._call_next()

    async def _connect(self, lane: Lane) -> None:
        """Alone on the lane. Who fails here leaves it to `_over` to clean up."""
        if lane.wire is not None:
            await lane.disconnect(self._era)  # it was lost while idle
        lane.closed = True
        lane.renew(self._era)
        if self._aim is not None:
            await self._aim(lane.connection)
        aimed = self._era
        await lane.connection.connect()  # type: ignore[no-untyped-call]
        lane.wire = Wire(lane.connection)
        lane.closed = self._era != aimed  # the servers changed meanwhile: this call's alone
        self._call_next()

    async def _exchange(self, lane: Lane, call: Call, asking: bool, new: bool, deadline: float) -> Reply:  # noqa: FBT001
        wire, script, key = lane.wire, call.script, call.generation_key
        assert wire is not None, "the lane is not connected"
        first = [_ASKING] if asking else []
        words = first if script is None else [*first, script.by_hash(call.keys, call.args)]
        if key is not None:
            words = [*words, _reading(key)]
        replies = _usable(await wire.exchange(words, deadline))
        value = None if script is None else replies[len(first)]
        reloaded = script is not None and isinstance(value, errors.NoScriptError)
        if reloaded and script is not None:
            value = _usable(await wire.exchange([*first, script.by_source(call.keys, call.args)], deadline))[-1]
        if key is None:
            return Reply(value=value, new_lane=new, reloaded=reloaded)
        if lane.era != self._era:
            lane.renew(self._era)
        fresh = key not in lane.proven
        vouch = partial(lane.proven.add, key) if fresh else None
        return Reply(value, replies[-1], fresh, vouch, new_lane=new, reloaded=reloaded)


def _given_up(lane: Lane | None) -> Lane | None:
    if lane is not None:
        lane.give_up()
    return lane


@lru_cache(maxsize=4_096)
def _reading(key: bytes) -> bytes:
    return command(b"GET", key)


def _usable(replies: list[Any]) -> list[Any]:
    """The replies, the server's errors among them. Raises those that say that the connection is of no use."""
    for reply in replies:
        if isinstance(reply, errors.ConnectionError):  # LOADING and NOAUTH are such
            raise reply
    return replies


def _tells(cause: str, wire: Wire | None, timeout: float) -> bool:
    """Whether a failure counts against the server. The loss of a connection does once, however many calls were on it."""
    if cause == faults.CONNECTION and wire is not None:
        told, wire.blamed = wire.blamed, True
        return not told
    return faults.is_outage(cause) and (cause != faults.TIMEOUT or timeout >= TELLING_TIMEOUT)


def _unavailable(error: Exception, progress: _Progress) -> StateUnavailableError:
    cause = faults.cause_of(error)
    if progress.stage is _Stage.WAITING and cause == faults.TIMEOUT:
        cause = faults.POOL_EXHAUSTED
    unanswered = cause in (faults.TIMEOUT, faults.CONNECTION)
    return StateUnavailableError(cause, maybe_applied=progress.stage is _Stage.SENT and unanswered)
