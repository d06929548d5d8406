"""`DATABASE_URL`: which databases are understood, and how each driver is named."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

_POSTGRESQL = frozenset({"postgresql+psycopg", "postgresql", "postgres"})
_SQLITE = frozenset({"sqlite+aiosqlite", "sqlite", "sqlite+pysqlite"})


class Dialect(Enum):
    """The two databases that storage runs on."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class DatabaseAddress:
    """A checked `DATABASE_URL`.

    Raises ValueError, in words that never repeat the URL, because it may hold a password.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            raise ValueError(
                "DATABASE_URL: not a database URL; use sqlite+aiosqlite:///file or "
                "postgresql+psycopg://user:password@host/database"
            ) from None
        self.dialect = _dialect(parsed)
        self._url = parsed

    @property
    def for_asyncio(self) -> URL:
        """The URL of the asyncio driver."""
        driver = "sqlite+aiosqlite" if self.dialect is Dialect.SQLITE else "postgresql+psycopg"
        return self._url.set(drivername=driver)

    @property
    def for_migrations(self) -> URL:
        """The URL of the blocking driver, which Alembic uses."""
        driver = "sqlite+pysqlite" if self.dialect is Dialect.SQLITE else "postgresql+psycopg"
        return self._url.set(drivername=driver)

    @property
    def label(self) -> str:
        """The URL fit for messages: no password, no query."""
        shown = self._url.set(query={})
        return shown.render_as_string(hide_password=True)

    @property
    def missing_file(self) -> Path | None:
        """SQLite's file where it is not there: opening it would leave an empty one behind."""
        if self.dialect is not Dialect.SQLITE:
            return None
        name = str(self._url.database)
        is_uri = name.startswith("file:") and "uri" in self._url.query
        file = Path(unquote(urlsplit(name).path) if is_uri else name)
        return None if file.exists() else file

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.label!r})"


def _dialect(url: URL) -> Dialect:
    if url.drivername in _POSTGRESQL:
        return Dialect.POSTGRESQL
    if url.drivername not in _SQLITE:
        raise ValueError("DATABASE_URL: must begin with sqlite+aiosqlite:// or postgresql+psycopg://")
    if url.database in {None, ""} or ":memory:" in str(url.database) or "memory" in str(url.query.get("mode")):
        # Each pooled connection would see a database of its own, and a restart would forget authority.
        raise ValueError("DATABASE_URL: a SQLite database in memory is lost between connections; name a file")
    return Dialect.SQLITE
