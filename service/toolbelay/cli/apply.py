"""`toolbelay apply`."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from toolbelay.cli import dev_state
from toolbelay.cli.console import notes, output, plain_table, print_json
from toolbelay.cli.exits import UNCONFIRMED, USAGE, CommandError
from toolbelay.cli.options import json_option, tenant_option
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.settings import Settings
from toolbelay.settings_check import require_apply

if TYPE_CHECKING:
    from toolbelay.application.apply_bundle import ConfigBundle
    from toolbelay.application.apply_config import ApplyResult

PRUNE_ASKS_ABOVE: Final = 0.2  # share of the catalog's tools that a prune may remove without a question
_SHOWN: Final = 60  # rows of the table; --json has all
_PLURALS: Final = {"tool": "tools", "policy": "policies", "route": "routes"}
_COLOURS: Final = {"added": "green", "changed": "yellow", "removed": "red"}


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@tenant_option
@click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
@click.option("--prune", is_flag=True, help="Remove what DIR does not list, of the kinds that DIR has.")
@click.option(
    "--yes", is_flag=True, help="Don't ask before a prune of more than 20 % of the tools, or of every policy."
)
@click.option("--expect", type=click.IntRange(0), metavar="G", help="Refuse unless the tenant is at generation G.")
@json_option
def apply(
    *, folder: Path, tenant: str | None, dry_run: bool, prune: bool, yes: bool, expect: int | None, as_json: bool
) -> None:
    """Put DIR into force: tools/*.jsonl, policies/*.cedar and routes.yaml, in one transaction.

    Works on TOOLBELAY_DATABASE_URL and TOOLBELAY_REDIS_URL. Any fault refuses the whole folder, and all
    faults are listed. When it returns 0 every replica answers from the new generation.

    Exit code 5: committed, but Redis did not confirm; effective by polling. Repeating is safe.

    \b
    Examples:
      toolbelay apply config/ --dry-run
      toolbelay apply config/ --tenant acme --prune
    """  # noqa: D301 - click wants the character
    from toolbelay.application.config_source import read_config
    from toolbelay.cli.minted import tenant_of

    settings = dev_state.settings_of()
    require_apply(settings)
    bundle = read_config(folder)
    work = _apply(settings, tenant_of(settings, tenant), bundle, dry_run=dry_run, prune=prune, yes=yes, expect=expect)
    try:
        result = asyncio.run(work)
    except ToolbelayError as error:
        raise _told(error, settings) from None
    for warning in result.warnings:
        notes().print(f"warning: {warning}", markup=False)
    if as_json:
        print_json(_as_json(result, dry_run=dry_run))
    else:
        _show(result, dry_run=dry_run)


async def _apply(
    settings: Settings,
    tenant: str,
    bundle: ConfigBundle,
    *,
    dry_run: bool,
    prune: bool,
    yes: bool,
    expect: int | None,
) -> ApplyResult:
    from toolbelay.application.apply_plan import ApplyOptions
    from toolbelay.cli.servers import config_applier, operator

    async with config_applier(settings) as use_case:
        options = ApplyOptions(prune=prune, expected_generation=expect)
        if prune and not yes and not dry_run:
            # Looked at first; the apply then insists on the generation that was looked at.
            preview = await use_case.run(tenant, bundle, who=operator(), options=options, dry_run=True)
            await asyncio.to_thread(_ask_when_large, preview, bundle)
            options = ApplyOptions(prune=True, expected_generation=preview.generation)
        return await use_case.run(tenant, bundle, who=operator(), options=options, dry_run=dry_run)


def _ask_when_large(preview: ApplyResult, bundle: ConfigBundle) -> None:
    removed = sum(1 for change in preview.changes if (change.kind, change.action) == ("tool", "removed"))
    large = []
    if removed and removed > PRUNE_ASKS_ABOVE * preview.tools_before:
        large.append(f"{removed} of {preview.tools_before} tools")
    policies = [change for change in preview.changes if (change.kind, change.action) == ("policy", "removed")]
    if policies and not bundle.policies:
        large.append("every policy, after which nobody may use any tool")
    if not large:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"the prune removes {' and '.join(large)}; give --yes to do that", code=USAGE)
    click.confirm(f"This removes {' and '.join(large)}. Go on?", abort=True, err=True)


def _told(error: ToolbelayError, settings: Settings) -> Exception:
    """What became of the change, and what to do, where Redis did not confirm it."""
    from toolbelay.cli.servers import redis_failure
    from toolbelay.sessions.port import StateUnavailableError
    from toolbelay.storage.address import DatabaseAddress

    cause = error.__cause__
    if error.reason is not ErrorReason.PROPAGATION_UNCONFIRMED or not isinstance(cause, StateUnavailableError):
        return error
    generation = error.metadata.get("generation", "?")
    label = DatabaseAddress(settings.database_url.get_secret_value()).label
    remedy = "mend Redis or TOOLBELAY_REDIS_URL, then repeat the apply: that is safe, and confirms it"
    if dev_state.using_dev_state():
        remedy = "`toolbelay serve --dev` does not run here; start it, and it serves the change"
    return CommandError(
        f"{redis_failure(settings, cause)}, so the change is not confirmed",
        f"generation {generation} is committed in {label}, effective within {settings.authority_poll_seconds:g} s"
        " on every replica that polls this database",
        remedy,
        code=UNCONFIRMED,
    )


def _as_json(result: ApplyResult, *, dry_run: bool) -> dict[str, object]:
    return {
        "generation": result.generation,
        "changed": result.changed,
        "dry_run": dry_run,
        "changes": [{"kind": c.kind, "name": c.name, "action": c.action} for c in result.changes],
        "warnings": list(result.warnings),
    }


def _show(result: ApplyResult, *, dry_run: bool) -> None:
    console = output()
    if result.changes:
        table = plain_table("", "kind", "name")
        for change in result.changes[:_SHOWN]:
            colour = _COLOURS[change.action]
            table.add_row(f"[{colour}]{change.action}[/]", change.kind, change.name)
        console.print(table)
        if len(result.changes) > _SHOWN:
            console.print(f"… and {len(result.changes) - _SHOWN} more (--json lists all)")
    counts = Counter((change.kind, change.action) for change in result.changes)
    parts = [f"{n} {_PLURALS[kind] if n > 1 else kind} {action}" for (kind, action), n in sorted(counts.items())]
    summary = ", ".join(parts) or "no changes"
    would_change = dry_run and result.changes
    state = f"would change from generation {result.generation}" if would_change else f"generation {result.generation}"
    console.print(f"{summary}; {state}", style="bold")
