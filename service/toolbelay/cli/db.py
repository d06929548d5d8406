"""`toolbelay db …`."""

from __future__ import annotations

import asyncio
import sys

import click

from toolbelay.cli import dev_state
from toolbelay.cli.console import output, plain_table, print_json
from toolbelay.cli.exits import FAILED, CommandError
from toolbelay.cli.options import json_option
from toolbelay.settings_check import require_apply, require_database


@click.group()
def db() -> None:
    """Migrate and check the database that TOOLBELAY_DATABASE_URL names."""


def _url() -> str:
    settings = dev_state.settings_of()
    require_database(settings)
    return settings.database_url.get_secret_value()


@db.command()
def upgrade() -> None:
    """Bring the schema to this build's revision. Any number of replicas may run it at once."""
    from toolbelay.storage import migrate

    click.echo(f"at revision {migrate.upgrade(_url())}")


@db.command(context_settings={"ignore_unknown_options": True})
@click.argument("revision")
@click.option("--force", is_flag=True, help="Also when rows would be lost.")
def downgrade(*, revision: str, force: bool) -> None:
    """Go back to REVISION: a number, -1 for one step, or "base" for an empty database.

    Refuses to lose rows without --force.
    """
    from toolbelay.storage import migrate

    reached = migrate.downgrade(_url(), revision, force=force)
    click.echo(f"at revision {reached}" if reached else "no schema is left")


@db.command()
@json_option
def current(*, as_json: bool) -> None:
    """Print the revision that the database is at."""
    from toolbelay.storage import migrate

    found = migrate.current(_url())
    if as_json:
        print_json({"revision": found, "head": migrate.head()})
    else:
        click.echo(found or "no schema yet; run `toolbelay db upgrade`")


@db.command()
@json_option
def check(*, as_json: bool) -> None:
    """Compare the schema with what this build needs; exit code 1 when they differ."""
    from toolbelay.storage import migrate

    state = migrate.check(_url())
    if as_json:
        print_json({"revision": state.current, "head": state.head, "problems": list(state.problems)})
    elif not state.problems:
        click.echo(f"the schema is at revision {state.head} and complete")
    if state.problems:
        raise CommandError(*state.problems, code=FAILED)


@db.command()
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def resync(*, yes: bool, as_json: bool) -> None:
    """After restoring a backup: set every generation beyond what replicas have seen.

    Each becomes max(database, Redis) + 1, so that every replica loads the restored catalog.
    """
    from toolbelay.cli.servers import resync_generations

    settings = dev_state.settings_of()
    require_apply(settings)
    if not yes and sys.stdin.isatty():  # scripts run this after a restore; it destroys nothing
        click.confirm("Raise the generation of every tenant?", abort=True, err=True)
    generations = asyncio.run(resync_generations(settings))
    if as_json:
        print_json({"generations": generations})
        return
    table = plain_table("tenant", ">generation")
    for tenant, generation in sorted(generations.items()):
        table.add_row(tenant, str(generation))
    output().print(table)
