"""A TCP proxy that is slow, silent, gone or breaks off, and that counts round trips.

It runs its own event loop in a thread, so synchronous and asynchronous tests use it alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from tests.support.ports import ReservedPort

CHUNK_BYTES = 64 * 1024
CALL_SECONDS = 10.0


class Mode(Enum):
    PASS = "pass"
    DELAY = "delay"
    BLACK_HOLE = "black hole"
    REFUSE = "refuse"
    CUT = "cut"


@dataclass(slots=True, eq=False)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    asking: bool = False


class Proxy:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`target`. Use as a context manager, or call `close()`.

    `round_trips` counts, for each connection by itself, a flush from the client that is followed by one from the
    server: a pipeline is one trip, and so is a script. Two connections that ask at the same time are two.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self._reserved = ReservedPort()
        self._mode = Mode.PASS
        self._delay = 0.0
        self._cut_after = 0
        self._trips = 0
        self._accepted = 0
        self._swallowed = 0
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self._call(self._listen())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        return self._reserved.number

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def round_trips(self) -> int:
        """Since the start or the last `reset()`."""
        return self._trips

    @property
    def accepted(self) -> int:
        """Connections taken since the start or the last `reset()`."""
        return self._accepted

    @property
    def swallowed(self) -> int:
        """Requests that went into a black hole."""
        return self._swallowed

    def reset(self) -> None:
        """Count from zero again."""
        self._trips = self._accepted = 0

    def forward(self) -> None:
        """Behave (mode PASS), for new and for open connections; what a black hole swallowed stays lost."""
        self._call(self._switch(Mode.PASS))

    def delay(self, seconds: float) -> None:
        """Hold every chunk of every reply back for `seconds`."""
        self._call(self._switch(Mode.DELAY, delay=seconds))

    def black_hole(self) -> None:
        """Accept connections and bytes, deliver nothing in either direction; open connections stay open."""
        self._call(self._switch(Mode.BLACK_HOLE))

    def refuse(self) -> None:
        """Drop the open connections and refuse new ones."""
        self._call(self._switch(Mode.REFUSE))

    def cut_replies_after(self, count: int) -> None:
        """Deliver the request, then break each connection off when `count` more bytes of reply have passed on it."""
        self._call(self._switch(Mode.CUT, cut_after=count))

    def drop_connections(self) -> None:
        """Reset the open connections, and keep the mode."""
        self._call(self._drop())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()
        self._reserved.release()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, reuse_address=True, limit=CHUNK_BYTES
        )

    async def _switch(self, mode: Mode, *, delay: float = 0.0, cut_after: int = 0) -> None:
        self._mode, self._delay, self._cut_after = mode, delay, cut_after
        if mode is Mode.REFUSE:
            await self._stop_listening()
            await self._drop()
        elif self._listener is None:
            await self._listen()

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _drop(self) -> None:
        for connection in list(self._connections):
            _abort(connection)

    async def _end(self) -> None:
        await self._stop_listening()
        await self._drop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close on the next turn of the loop

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # only `close()` cancels; asyncio's server would report it as an error
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted += 1
        try:
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self.target, limit=CHUNK_BYTES)
        except OSError:
            return
        for end in (writer, upstream):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(writer, upstream)
        self._connections.add(connection)
        pumps = [
            asyncio.ensure_future(self._pump_requests(reader, connection)),
            asyncio.ensure_future(self._pump_replies(upstream_reader, connection)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._connections.discard(connection)
            connection.client.close()  # delivers what was written before it ends
            connection.server.close()

    async def _pump_requests(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self._mode is Mode.BLACK_HOLE:
                    self._swallowed += 1
                    continue
                connection.asking = True
                connection.server.write(chunk)
                await connection.server.drain()

    async def _pump_replies(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        passed = 0
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self._mode is Mode.DELAY:
                    await asyncio.sleep(self._delay)
                if self._mode is Mode.BLACK_HOLE:
                    continue
                if connection.asking:
                    connection.asking = False
                    self._trips += 1
                if self._mode is Mode.CUT:
                    kept = chunk[: max(0, self._cut_after - passed)]
                    passed += len(kept)
                    connection.client.write(kept)
                    await connection.client.drain()
                    if passed >= self._cut_after:
                        return
                    continue
                passed = 0
                connection.client.write(chunk)
                await connection.client.drain()


def _abort(connection: _Connection) -> None:
    connection.client.transport.abort()
    connection.server.transport.abort()
