"""Database, Redis and keys as commands on them need them."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolbelay.application.apply_config import ApplyConfig
from toolbelay.application.apply_tenant import ResyncGenerations
from toolbelay.sessions import faults
from toolbelay.sessions.connect import open_link, parse
from toolbelay.sessions.observer import Unobserved
from toolbelay.sessions.port import StateUnavailableError
from toolbelay.sessions.store import RedisSessionStore
from toolbelay.settings import Settings
from toolbelay.storage.engine import Database
from toolbelay.storage.port import StorageUnavailableError
from toolbelay.storage.reader import SqlCatalogReader
from toolbelay.storage.writer import SqlConfigWriter

# Causes of a Redis that does not answer, among those of docs/state.md; the others are refusals of one that does.
_UNREACHED = frozenset({faults.CONNECTION, faults.TIMEOUT, faults.BREAKER_OPEN, faults.POOL_EXHAUSTED})
# Commands raise generations and ping; no key that they touch depends on the secret.
_UNUSED_SECRET = bytes(32)


def session_store(settings: Settings) -> RedisSessionStore:
    """The state store, for generations and pings only."""
    link = open_link(settings.redis_url.get_secret_value(), pool_size=2, observer=Unobserved())
    return RedisSessionStore(link, secret=_UNUSED_SECRET)


def redis_failure(settings: Settings, error: StateUnavailableError) -> str:
    """What happened at which Redis, without its credentials."""
    what = "could not be reached" if error.cause in _UNREACHED else "answers, but cannot be used"
    return f"Redis at {_redis_address(settings.redis_url.get_secret_value())} {what} ({error.cause})"


def _redis_address(url: str) -> str:
    """`host:port` of each server, or the path of the socket."""
    target = parse(url)
    options = target.options
    if "path" in options:
        return str(options["path"])
    hosts = target.hosts or ((options.get("host", "localhost"), options.get("port", 6379)),)
    shown = ", ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
    return f"{shown} ({target.kind})" if target.hosts else shown


@asynccontextmanager
async def config_applier(settings: Settings) -> AsyncIterator[ApplyConfig]:
    """The apply use case on the settings' database and Redis."""
    database = Database(settings.database_url.get_secret_value(), pool_size=1)
    store = session_store(settings)
    try:
        await _schema_is_there(database)
        yield ApplyConfig(SqlConfigWriter(database), store)
    finally:
        await store.close()
        await database.close()


async def _schema_is_there(database: Database) -> None:
    """A failure says which database it was: it may not be the one that was meant."""
    try:
        await SqlCatalogReader(database).ready(timeout=10.0)
    except StorageUnavailableError as error:
        label, told = database.address.label, str(error)
        raise type(error)(told if told.startswith(label) else f"{label}: {told}") from None


async def resync_generations(settings: Settings) -> dict[str, int]:
    """Set every tenant's generation beyond SQL's and Redis's."""
    database = Database(settings.database_url.get_secret_value(), pool_size=1)
    store = session_store(settings)
    try:
        use_case = ResyncGenerations(SqlCatalogReader(database), SqlConfigWriter(database), store)
        return dict(await use_case.run(who=operator()))
    finally:
        await store.close()
        await database.close()


async def check_keys(settings: Settings, *, timeout: float) -> None:
    """Read the token keys once. Raises when there are none to verify with."""
    from toolbelay.application.runtime import token_config
    from toolbelay.authority.tokens import TokenVerifier

    verifier = TokenVerifier(token_config(settings))
    try:
        await asyncio.wait_for(verifier.start(), timeout)
        if not verifier.ready:
            raise RuntimeError("no keys could be read; see TOOLBELAY_JWT_JWKS_URL")
    finally:
        await verifier.close()


def operator() -> str:
    """Who the audit log names for a command: the system's user."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:uid={os.getuid()}"
