"""A service with a database and a Redis of its own, closed however its test ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.binaries import redis_binary
from tests.support.require import require
from tests.support.servers import RedisServer
from tests.support.service import Service, migrated


@contextmanager
def served(folder: Path, **environment: str) -> Iterator[Service]:
    """A service on a migrated SQLite file in `folder` and a Valkey that runs; apply to it, then `start()` it.

    `environment`: settings beside the usual ones of `Service`. Skips the test where there is no Valkey.
    """
    require(redis_binary, "valkey")
    database = f"sqlite+aiosqlite:///{folder / 'toolbelay.sqlite'}"
    with closing(RedisServer("valkey")) as redis:
        redis.start()
        with closing(Service(migrated(database), redis.url, folder, **environment)) as service:
            yield service
