"""One connection of an endpoint: the calls on it, what it is proven for, and the late reply that it may owe."""

from __future__ import annotations

from redis.asyncio.connection import AbstractConnection

from toolbelay.sessions.wire import Wire

LATE_SECONDS = (
    1.0  # that a reply may be late before its connection is given up, and proves nothing: roles may have changed
)


class Lane:
    """A connection, the calls on it, and the generation keys that it is proven for in its current era.

    The set is replaced, never emptied: who vouches late, for what the connection was before, changes nothing.
    `closed`: no further calls, because it is being connected or ends when its last call does. `late_since`: a call
    was given up on it then, and its reply may still be to come (`settle` looks); 0 = none.
    """

    __slots__ = ("closed", "connection", "era", "in_flight", "late_since", "proven", "wire")

    def __init__(self, connection: AbstractConnection, era: int) -> None:
        self.connection = connection
        self.era = era
        self.proven: set[bytes] = set()
        self.wire: Wire | None = None
        self.in_flight = 0
        self.closed = False
        self.late_since = 0.0

    @property
    def connected(self) -> bool:
        return self.wire is not None and self.wire.open

    def proves(self, key: bytes, era: int) -> bool:
        return self.era == era and key in self.proven and self.connected

    def renew(self, era: int) -> None:
        self.era, self.proven = era, set()

    def settle(self, now: float) -> None:
        """Forget a late reply that has come; give up who owes one for too long, unless calls wait on it."""
        overdue = now > self.late_since + LATE_SECONDS
        if overdue:
            self.renew(self.era)
        if self.wire is None or not self.wire.owing:
            self.late_since = 0.0
        elif overdue and not self.in_flight:
            self.give_up()

    def give_up(self) -> None:
        self.late_since = 0.0
        if self.wire is not None:
            self.wire.abort()

    async def disconnect(self, era: int) -> None:
        """Without calls: to what it was before it was ever connected."""
        self.closed, self.late_since = True, 0.0
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.abort()
        self.renew(era)
        await self.connection.disconnect(nowait=True)
        self.closed = False
