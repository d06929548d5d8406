"""Failures of SQL, told without credentials and without content."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from toolbelay.storage.address import DatabaseAddress
from toolbelay.storage.port import StorageUnavailableError

UPGRADE_HINT = "run `toolbelay db upgrade` with this build"
_MISSING_TABLE = "no such table"
_MISSING_COLUMN = "no such column"


class SchemaNotReadyError(StorageUnavailableError):
    """The database's schema is not at this build's head; the message says which it is."""


class ForeignSchemaError(SchemaNotReadyError):
    """The schema is one that this build does not know; no `db upgrade` with this build cures that."""


def require_file(address: DatabaseAddress) -> None:
    """Raise SchemaNotReadyError for a SQLite database whose file is not there: only a migration makes one."""
    file = address.missing_file
    if file is not None:
        what = "such file; make it" if file.parent.is_dir() else "folder for this file; make the folder, then the file"
        raise SchemaNotReadyError(
            f"{address.label}: there is no {what} with `toolbelay db upgrade`, name another in"
            " TOOLBELAY_DATABASE_URL, or work in the folder of `toolbelay serve --dev`"
        )


def unavailable(error: Exception) -> StorageUnavailableError:
    """The error to raise for one of SQLAlchemy, a driver or the operating system.

    Only names of error classes and codes are kept: a driver's text may quote a row, a parameter or the
    connection string.
    """
    if isinstance(error, PoolTimeoutError):
        return StorageUnavailableError("SQL: every connection of the pool is in use")
    if not isinstance(error, DBAPIError):
        return StorageUnavailableError(f"SQL: {type(error).__name__}")
    if _schema_is_missing(error):
        return SchemaNotReadyError(f"SQL: tables are missing; {UPGRADE_HINT}")
    cause = error.orig
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    return StorageUnavailableError(f"SQL: {type(cause).__name__}{f' ({code})' if code else ''}")


def _schema_is_missing(error: DBAPIError) -> bool:
    if isinstance(error, ProgrammingError):
        return getattr(error.orig, "sqlstate", None) in {"42P01", "42703"}
    text = str(error.orig)
    return _MISSING_TABLE in text or _MISSING_COLUMN in text
