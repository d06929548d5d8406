"""Many calls over one connection: commands leave as they come, replies come back in their order.

redis-py connects, speaks TLS and authenticates; then its stream is taken over. What its own reading costs, two tasks'
worth of buffers and futures for each reply, is a third of a trip, and a connection that serves one call at a time pays
a system call for each command and each reply. Here what is written within one turn of the event loop leaves together.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import hiredis
from redis import exceptions as errors
from redis.asyncio.connection import AbstractConnection

from toolbelay.clock import loop_time

_MORE = object()  # hiredis: the reply is not complete
_MARK = b"*2\r\n$4\r\nECHO\r\n$8\r\n%08d\r\n"  # PING is refused by a server that cannot persist
_MARKS = 100_000_000
_NEVER = float("inf")
_TICK = 0.001  # seconds: what a timer of the loop may come too early


class _Waiting:
    """One call's replies, as they come."""

    __slots__ = ("count", "deadline", "future", "replies")

    def __init__(self, future: asyncio.Future[list[Any]], count: int, deadline: float) -> None:
        self.future = future
        self.count = count
        self.deadline = deadline
        self.replies: list[Any] = []


class _Marked:
    """The mark behind the replies to what was written together."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Wire(asyncio.Protocol):
    """The traffic of one connected redis-py connection.

    Replies belong to calls by their order alone. So a call that is given up keeps its place in it, and its reply is
    read and thrown away: `owing` says whether one is still to come. Whatever lies between may swallow bytes and go on
    (TCP does not, a middlebox can); so each packet ends with an ECHO of its own number, and its replies are given to its
    calls when that number comes in its turn. Anything else there ends the connection, and nobody gets a reply.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        """Take over. The connection's own methods must not be used but `disconnect`."""
        self.open = True
        self.blamed = False  # whether its loss was counted against the server
        self._waiting: deque[_Waiting | _Marked] = deque()
        self._answered: list[_Waiting] = []  # whose replies are there, but not the mark behind them
        self._mark = int.from_bytes(os.urandom(4)) % _MARKS
        self._unsent: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = _NEVER
        # The connection's parser knows which error is which, on a Cluster's nodes too.
        parse_error = connection._parser.parse_error  # noqa: SLF001
        self._reader = hiredis.Reader(protocolError=errors.InvalidResponse, replyError=parse_error, notEnoughData=_MORE)
        writer = connection._writer  # noqa: SLF001
        assert writer is not None, "the connection is not connected"
        self._transport = cast("asyncio.Transport", writer.transport)
        self._transport.set_protocol(self)

    def exchange(self, commands: Sequence[bytes], deadline: float) -> asyncio.Future[list[Any]]:
        """Send commands together; their replies, the server's errors among them.

        The future fails with TimeoutError at `deadline` (loop time), or with redis-py's ConnectionError or
        InvalidResponse. It may be cancelled.
        """
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if not self.open:
            future.set_exception(errors.ConnectionError("the connection was closed"))
            return future
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._waiting.append(_Waiting(future, len(commands), deadline))
        self._unsent += commands
        if deadline < self._wakes_at:
            self._wake(deadline)
        return future

    @property
    def owing(self) -> bool:
        """Whether the reply to a call that was given up has yet to come."""
        return any(waiting.future.done() for waiting in self._calls())

    def abort(self) -> None:
        """End it now. Calls that wait fail."""
        self._give_up(errors.ConnectionError("the connection was given up"))

    def _calls(self) -> Iterator[_Waiting]:
        yield from self._answered
        yield from (waiting for waiting in self._waiting if isinstance(waiting, _Waiting))

    def _wake(self, when: float) -> None:
        """One timer for all that wait: a timer for each call costs more than the call's part of the trip."""
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = when
        self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        now, following = loop_time() + _TICK, _NEVER
        self._timer, self._wakes_at = None, _NEVER
        for waiting in self._calls():
            if waiting.future.done():
                continue
            if waiting.deadline <= now:
                waiting.future.set_exception(TimeoutError())
            else:
                following = min(following, waiting.deadline)
        if following < _NEVER:
            self._wake(following)

    def _send(self) -> None:
        """Write what was gathered since the event loop's last turn: one system call, one packet, one wake-up there."""
        unsent, self._unsent = self._unsent, []
        if self.open:
            self._mark = mark = (self._mark + 1) % _MARKS
            self._waiting.append(_Marked(mark))
            unsent.append(_MARK % mark)
            self._transport.write(b"".join(unsent))

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        try:
            reader.feed(data)
            while waiting and (reply := reader.gets()) is not _MORE:
                first = waiting[0]
                if isinstance(first, _Marked):
                    waiting.popleft()
                    if not _is_mark(reply, first.number):
                        self._give_up(_out_of_turn(reply))
                        return
                    self._deliver()
                    continue
                first.replies.append(reply)
                if len(first.replies) == first.count:
                    waiting.popleft()
                    self._answered.append(first)
        except errors.InvalidResponse as error:
            self._give_up(error)
        else:
            if not waiting and reader.has_data():
                self._give_up(errors.InvalidResponse("a reply that no call asked for"))

    def _deliver(self) -> None:
        for answered in self._answered:
            if not answered.future.done():
                answered.future.set_result(answered.replies)
        self._answered.clear()

    def eof_received(self) -> None:
        self._end(errors.ConnectionError("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(errors.ConnectionError(f"the connection was lost: {type(exc).__name__}"))

    def _give_up(self, error: Exception) -> None:
        self._end(error)
        self._transport.abort()

    def _end(self, error: Exception) -> None:
        self.open = False
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._calls():
            if not waiting.future.done():
                waiting.future.set_exception(error)
        self._answered.clear()
        self._waiting.clear()


def _is_mark(reply: object, number: int) -> bool:
    return isinstance(reply, bytes) and len(reply) == 8 and reply.isdigit() and int(reply) == number


def _out_of_turn(reply: object) -> Exception:
    """What ends the connection: the server's own refusal (NOAUTH, BUSY), or the loss of a reply."""
    return reply if isinstance(reply, errors.RedisError) else errors.ConnectionError("a reply out of its turn")
