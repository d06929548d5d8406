"""Schema migrations: `toolbelay db upgrade / downgrade / current / check`.

Blocking: call from a command or a thread. Each function opens one connection, takes a lock that lets any
number of processes start at once, and does all its work in one transaction.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Engine, create_engine, event, pool, text
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

import toolbelay
from toolbelay.storage.address import DatabaseAddress, Dialect
from toolbelay.storage.failure import SchemaNotReadyError, require_file, unavailable
from toolbelay.storage.guard import FORCE, MigrationError
from toolbelay.storage.models import Base
from toolbelay.storage.port import StorageUnavailableError

LOCK_SECONDS = 60
_ADVISORY_LOCK = 0x746F6F6C62656C61  # "toolbela": one number for every Toolbelay on a database


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What `check` found. `problems` is empty when the schema is what this build needs."""

    current: str | None
    head: str
    problems: tuple[str, ...]


def upgrade(url: str) -> str:
    """Bring the schema to this build's head; returns the head. Safe in several processes at once."""
    target = head()
    with _locked(url, create=True) as connection:
        _known_revision(_revision_of(connection))
        command.upgrade(_config(connection), target)
        _check_references(connection)
    _switch_to_wal(url)
    return target


def downgrade(url: str, revision: str, *, force: bool = False) -> str | None:
    """Go back to `revision` (`base` = empty database, `-1` = one step); returns the revision reached.

    Refuses (MigrationError) to destroy rows unless `force`.
    """
    head()
    with _locked(url) as connection:
        before = _revision_of(connection)
        _known_revision(before)
        if before is None:
            raise MigrationError("the database has no schema: there is nothing to downgrade")
        config = _config(connection)
        config.attributes[FORCE] = force
        command.downgrade(config, revision)
        _check_references(connection)
        return _revision_of(connection)


def current(url: str) -> str | None:
    """The revision that the database is at; `None` = no schema yet."""
    file = _address(url).missing_file
    if file is not None and file.parent.is_dir():
        return None
    with _connected(url) as connection:
        return _revision_of(connection)


def check(url: str) -> SchemaState:
    """Whether the database is at head and its tables equal the models."""
    target = head()
    try:
        require_file(_address(url))
    except SchemaNotReadyError as error:
        return SchemaState(None, target, (str(error),))
    with _connected(url) as connection:
        revision = _revision_of(connection)
        problems = list(_revision_problems(revision, target))
        if not problems:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            problems += [_described(difference) for difference in compare_metadata(context, Base.metadata)]
    return SchemaState(revision, target, tuple(problems))


def head() -> str:
    """This build's newest revision. MigrationError when the migrations have several heads, or none."""
    heads = _scripts().get_heads()
    if len(heads) == 1:
        return heads[0]
    if not heads:
        raise MigrationError(f"no migrations found in {migrations_folder()}")
    raise MigrationError(
        f"the migrations have several heads ({', '.join(sorted(heads))}): two revisions name the same parent; "
        "make one follow the other. Nothing was changed"
    )


def migrations_folder() -> Path:
    """Where the migrations are: inside an installed wheel, or at the root of a checkout."""
    package = Path(toolbelay.__file__).parent
    for folder in (package / "_migrations", package.parents[1] / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise MigrationError("the migrations are missing from this installation")


def require_known_head(revision: str | None, target: str) -> None:
    """Raise MigrationError unless `revision` is `target`."""
    for problem in _revision_problems(revision, target):
        raise MigrationError(problem)


def is_known(revision: str | None) -> bool:
    """Whether this build has migrations that begin or pass at `revision`; `None` = no schema yet."""
    try:
        _known_revision(revision)
    except MigrationError:
        return False
    return True


def new_revision(message: str) -> None:
    """Write a revision with the differences between the models and a scratch database at head."""
    import tempfile  # developers only

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/scratch.sqlite"
        number = f"{int(upgrade(url)) + 1:04d}"
        with _locked(url) as connection:
            command.revision(_config(connection), message, autogenerate=True, rev_id=number)


def _revision_problems(revision: str | None, target: str) -> Iterator[str]:
    if revision is None:
        yield "the database has no schema yet; run `toolbelay db upgrade`"
    elif revision != target:
        try:
            _known_revision(revision)
        except MigrationError as error:
            yield str(error)
            return
        yield f"the database is at revision {revision}, this build needs {target}; run `toolbelay db upgrade`"


def _known_revision(revision: str | None) -> None:
    if revision is None:
        return
    known = {script.revision for script in _scripts().walk_revisions()}
    if revision not in known:
        raise MigrationError(
            f"the database is at revision {revision}, which this build does not know (its newest is {head()}): "
            "a newer build migrated it, so run that build. Nothing was changed"
        )


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(migrations_folder()))


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _revision_of(connection: Connection) -> str | None:
    heads = MigrationContext.configure(connection).get_current_heads()
    if len(heads) > 1:
        raise MigrationError(f"the database is at several revisions at once: {', '.join(sorted(heads))}")
    return heads[0] if heads else None


def _switch_to_wal(url: str) -> None:
    """SQLite: let readers go on beside the writer, from the first reader on. A property of the file."""
    address = DatabaseAddress(url)
    if address.dialect is not Dialect.SQLITE:
        return
    engine = create_engine(address.for_migrations, poolclass=pool.NullPool)
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                with engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                return
            except OperationalError as error:  # another process holds the file: SQLite does not wait here
                busy = str(getattr(error.orig, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
                if not busy or time.monotonic() > deadline:
                    raise StorageUnavailableError(f"{address.label}: {unavailable(error)}") from None
                time.sleep(0.05)
    finally:
        engine.dispose()


def _check_references(connection: Connection) -> None:
    """SQLite: foreign keys are off while tables are rebuilt, so that nothing cascades; look afterwards."""
    if connection.dialect.name == "sqlite" and connection.execute(text("PRAGMA foreign_key_check")).first():
        raise MigrationError("the migration would leave rows without the row they refer to; nothing was changed")


@contextmanager
def _locked(url: str, *, create: bool = False) -> Iterator[Connection]:
    with _connected(url, exclusive=True, create=create) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ADVISORY_LOCK})
        yield connection


@contextmanager
def _connected(url: str, *, exclusive: bool = False, create: bool = False) -> Iterator[Connection]:
    """One connection in one transaction, its failures as MigrationError or StorageUnavailableError.

    `create`: a SQLite file that is not there is made.
    """
    address = _address(url)
    if not create:
        require_file(address)
    engine = _engine(address, exclusive=exclusive)
    try:
        with engine.connect() as connection, connection.begin():
            if address.dialect is Dialect.POSTGRESQL:
                _bound_waits(connection)
            yield connection
    except CommandError as error:
        raise MigrationError(f"{error}; nothing was changed") from error
    except (SQLAlchemyError, OSError) as error:
        raise _failed(error, address) from None
    finally:
        engine.dispose()


def _address(url: str) -> DatabaseAddress:
    try:
        return DatabaseAddress(url)
    except ValueError as error:
        raise MigrationError(str(error)) from None


def _bound_waits(connection: Connection) -> None:
    """Wait for locks within a bound; a limit that operators set for ordinary transactions is not for these."""
    connection.execute(
        text(
            f"SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', true), "
            "set_config('statement_timeout', '0', true), "
            "set_config('idle_in_transaction_session_timeout', '0', true)"
        )
    )


def _failed(error: Exception, address: DatabaseAddress) -> Exception:
    told = unavailable(error)
    schema = isinstance(told, SchemaNotReadyError) or not isinstance(error, OperationalError)
    if isinstance(error, DBAPIError) and schema and not error.connection_invalidated:
        # A statement of a migration failed, not the connection. The first line quotes no row.
        cause = str(error.orig).splitlines()[0]
        return MigrationError(f"a migration failed ({type(error.orig).__name__}: {cause}); nothing was changed")
    return StorageUnavailableError(f"{address.label}: {told}")


def _engine(address: DatabaseAddress, *, exclusive: bool) -> Engine:
    if address.dialect is Dialect.POSTGRESQL:
        return create_engine(
            address.for_migrations, poolclass=pool.NullPool, hide_parameters=True, connect_args={"connect_timeout": 5}
        )
    engine = create_engine(address.for_migrations, poolclass=pool.NullPool, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def connect(connection: DBAPIConnection, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin by itself
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {LOCK_SECONDS * 1000}")
        cursor.execute("PRAGMA foreign_keys = OFF")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN EXCLUSIVE" if exclusive else "BEGIN")

    return engine


def _described(difference: object) -> str:
    if isinstance(difference, tuple) and difference:
        return " ".join(str(part) for part in difference if part is not None)
    return str(difference)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "new":
        raise SystemExit('usage: python -m toolbelay.storage.migrate new "what it does"')
    new_revision(sys.argv[2])
