"""`toolbelay config check`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

from toolbelay.cli import dev_state
from toolbelay.cli.console import output, plain_table, print_json
from toolbelay.cli.exits import UNAVAILABLE
from toolbelay.settings import Settings
from toolbelay.settings_check import require_serving

_TIMEOUT = 5.0  # seconds for each server


@click.group()
def config() -> None:
    """Check the settings without serving."""


@config.command()
@click.option("--offline", is_flag=True, help="Check the settings only; connect to nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(*, offline: bool, as_json: bool) -> None:
    """Check all settings, then that database, Redis and keys can be used.

    Exit code 3: a setting is wrong (one line each, with the remedy). 4: a server cannot be used.
    """
    settings = dev_state.settings_of()
    require_serving(settings)
    results = [("settings", "ok")]
    if not offline:
        results += asyncio.run(_connect(settings))
    if as_json:
        print_json(dict(results))
    else:
        table = plain_table("part", "result")
        for name, result in results:
            table.add_row(name, result)
        output().print(table)
    if any(result != "ok" for _, result in results):
        raise click.exceptions.Exit(UNAVAILABLE)


@config.command()
def reference() -> None:
    """Print the page of all settings, Markdown (docs/configuration.md)."""
    from toolbelay.cli.config_reference import reference as page

    click.echo(page(), nl=False)


async def _connect(settings: Settings) -> list[tuple[str, str]]:
    parts: list[tuple[str, Callable[[Settings], Awaitable[None]], str]] = [
        ("database", _check_database, "TOOLBELAY_DATABASE_URL"),
        ("redis", _check_redis, "TOOLBELAY_REDIS_URL"),
        ("keys", _check_keys, "TOOLBELAY_JWT_…"),
    ]
    return [(name, await _result(check_part, settings, variable)) for name, check_part, variable in parts]


async def _result(check_part: Callable[[Settings], Awaitable[None]], settings: Settings, variable: str) -> str:
    try:
        await check_part(settings)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result of the check
        told = str(error) or type(error).__name__
        return told if "`" in told or "TOOLBELAY_" in told else f"{told} (see {variable})"
    return "ok"


async def _check_database(settings: Settings) -> None:
    from toolbelay.storage import migrate

    state = await asyncio.to_thread(migrate.check, settings.database_url.get_secret_value())
    if state.problems:
        raise RuntimeError("; ".join(state.problems))


async def _check_redis(settings: Settings) -> None:
    from toolbelay.cli.servers import redis_failure, session_store
    from toolbelay.sessions.port import StateUnavailableError

    store = session_store(settings)
    try:
        await store.ping(timeout=_TIMEOUT)
    except StateUnavailableError as error:
        raise RuntimeError(redis_failure(settings, error)) from None
    finally:
        await store.close()


async def _check_keys(settings: Settings) -> None:
    from toolbelay.cli.servers import check_keys

    await check_keys(settings, timeout=_TIMEOUT)
