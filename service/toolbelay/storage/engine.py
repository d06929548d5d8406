"""Async engines: one for reads, one for writes, each call under a deadline, each pool bounded."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from toolbelay.storage.address import DatabaseAddress, Dialect
from toolbelay.storage.deadline import Deadlines
from toolbelay.storage.failure import require_file, unavailable
from toolbelay.storage.port import StorageUnavailableError

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

READ_STATEMENT_SECONDS = 30
WRITE_STATEMENT_SECONDS = 120
DRAIN_SECONDS = 11.0  # psycopg gives up on a frozen server after 10 s
_BUSY_OPTION = "toolbelay_busy_ms"


class Database:
    """A database as the readers and writers use it.

    Reads see one snapshot (REPEATABLE READ, READ ONLY; on SQLite a WAL read transaction). Writes on
    SQLite begin with BEGIN IMMEDIATE: the default, deferred BEGIN loses updates of transactions that
    read first. `pool_size` bounds the connections of reads; writes have `write_pool_size`, 1 on SQLite,
    which has a single writer anyway.
    """

    def __init__(self, url: str, *, pool_size: int = 5, write_pool_size: int = 2) -> None:
        self.address = DatabaseAddress(url)
        self.deadlines = Deadlines()
        self._sqlite = self.address.dialect is Dialect.SQLITE
        self._reads = self._engine(pool_size, writes=False)
        self._writes = self._engine(1 if self._sqlite else write_pool_size, writes=True)

    async def read(self, work: Work[T], *, timeout: float) -> T:
        """Run `work` in one read-only transaction; StorageUnavailableError within `timeout` seconds."""
        return await self.deadlines.within(timeout, self._read(work))

    async def write(self, work: Work[T], *, timeout: float) -> T:
        """Run `work` in one transaction and commit; StorageUnavailableError within `timeout` seconds.

        When the deadline strikes during the commit, whether it took place is unknown. Any other
        exception of `work` rolls back and is passed on.
        """
        return await self.deadlines.within(timeout, self._write(work, time.monotonic() + timeout))

    async def close(self) -> None:
        """Release connections. Call before the loop closes."""
        await self.deadlines.drain(DRAIN_SECONDS)
        await self._reads.dispose()
        await self._writes.dispose()

    async def _read(self, work: Work[T]) -> T:
        try:
            return await self._read_once(work)
        except _LostConnectionError:
            # Ended between the pool's ping and the answer (restart, pg_terminate_backend). A read can be
            # repeated; the pool has dropped the connection.
            return await self._read_once(work)

    async def _read_once(self, work: Work[T]) -> T:
        try:
            async with self._reads.connect() as connection, connection.begin():
                return await work(connection)
        except (SQLAlchemyError, OSError) as error:
            raise _translated(error) from None

    async def _write(self, work: Work[T], deadline: float) -> T:
        try:
            async with self._writes.connect() as connection:
                left = max(1, int((deadline - time.monotonic()) * 1000))
                await connection.execution_options(**{_BUSY_OPTION: left})
                async with connection.begin():
                    return await work(connection)
        except (SQLAlchemyError, OSError) as error:
            raise _translated(error) from None

    def _engine(self, size: int, *, writes: bool) -> AsyncEngine:
        options: dict[str, Any] = {
            "pool_size": size,
            "max_overflow": 0,
            "pool_timeout": WRITE_STATEMENT_SECONDS,  # the deadline of the call ends the wait earlier
            "pool_use_lifo": True,
            "hide_parameters": True,
        }
        if self._sqlite:
            engine = create_async_engine(self.address.for_asyncio, **options)
            _prepare_sqlite(engine, self.address, writes=writes)
            return engine
        engine = create_async_engine(
            self.address.for_asyncio,
            pool_pre_ping=True,
            pool_recycle=1800,
            isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
            execution_options={"postgresql_readonly": not writes},
            connect_args={"connect_timeout": 5, "application_name": "toolbelay"},
            **options,
        )
        _prepare_postgresql(engine, WRITE_STATEMENT_SECONDS if writes else READ_STATEMENT_SECONDS)
        return engine


class _LostConnectionError(StorageUnavailableError):
    """The server ended the connection."""


def _translated(error: Exception) -> StorageUnavailableError:
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return _LostConnectionError(unavailable(error).args[0])
    return unavailable(error)


def _prepare_sqlite(engine: AsyncEngine, address: DatabaseAddress, *, writes: bool) -> None:
    @event.listens_for(engine.sync_engine, "do_connect")
    def look(_dialect: object, _record: object, _args: object, _parameters: object) -> None:
        require_file(address)

    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: DBAPIConnection, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin by itself
        set_sqlite_pragmas(connection, query_only=not writes)

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        if not writes:
            connection.exec_driver_sql("BEGIN")
            return
        busy = int(connection.get_execution_options().get(_BUSY_OPTION, 5000))
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {busy}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def set_sqlite_pragmas(connection: DBAPIConnection, *, query_only: bool) -> None:
    """Settings of each SQLite connection. WAL is a property of the file, and lasts."""
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA busy_timeout = 5000")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")  # acknowledged means on disk
        if query_only:
            cursor.execute("PRAGMA query_only = ON")
        else:
            cursor.execute("PRAGMA journal_mode = WAL")
    finally:
        cursor.close()


def _prepare_postgresql(engine: AsyncEngine, statement_seconds: int) -> None:
    """Bounds that hold on the server, should this process die or stall in mid-transaction."""
    ms = statement_seconds * 1000

    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(
            f"SELECT set_config('statement_timeout', '{ms}', false), "  # an integer of ours
            f"set_config('lock_timeout', '{ms}', false), "
            f"set_config('idle_in_transaction_session_timeout', '{ms}', false)"
        )
        cursor.close()
        connection.commit()
