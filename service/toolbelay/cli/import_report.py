"""What an import found, for people and for programs."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolbelay.catalog.formats import OPENAI_CAP, Quirk, quirks_of
from toolbelay.cli.console import output, print_json
from toolbelay.cli.exits import PARTIAL, REFUSED, CommandError
from toolbelay.imports.candidates import Listing, shown
from toolbelay.imports.difference import Change, ImportPlan

_QUIRKS = {
    Quirk.UNION_AT_TOP: "anyOf, oneOf or allOf at the top: not sent to OpenAI and Anthropic",
    Quirk.LIST_AT_TOP: "enum or not at the top: not sent to OpenAI",
    Quirk.ARRAY_WITHOUT_ITEMS: "an array without items: not sent to OpenAI",
}


def report(plan: ImportPlan, listing: Listing, path: Path, *, as_json: bool, written: bool) -> None:
    """Print all of it, what a server wrote made safe for a terminal."""
    notes = dict(_notes(listing))
    if as_json:
        print_json(_as_json(plan, notes, path, written=written))
        return
    console = output()
    for line, style in _lines(plan, notes):
        console.print(shown(line), style=style, markup=False, soft_wrap=True)
    parts = [f"{len(plan.added)} added", f"{len(plan.changed)} changed", f"{len(plan.removed)} removed"]
    parts += [f"{plan.unchanged} unchanged", f"{len(plan.held)} held back", f"{len(plan.quarantined)} left out"]
    state = f"wrote {path}" if written else f"{path} stays as it is"
    console.print(f"{', '.join(parts)}; {state}", style="bold", markup=False, soft_wrap=True)
    if written:
        console.print(f"next: toolbelay apply {path.parent.parent}", markup=False, soft_wrap=True)


def conclude(plan: ImportPlan) -> None:
    """Raise CommandError, and so end with its exit code, unless everything listed is in the file."""
    if plan.refusal:
        raise CommandError(plan.refusal, code=REFUSED)
    if plan.held:
        names = ", ".join(shown(change.name) for change in plan.held[:5])
        raise CommandError(
            f"{len(plan.held)} changed definitions held back ({names}{', …' if len(plan.held) > 5 else ''});"
            " look at the diff, then --accept-changes",
            code=PARTIAL,
        )
    if plan.quarantined:
        raise CommandError(f"{len(plan.quarantined)} bad definitions left out", code=PARTIAL)


def _lines(plan: ImportPlan, notes: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((f"+ {name}", "green") for name in plan.added)
    yield from ((f"- {name}", "red") for name in plan.removed)
    for word, changes in (("changed", plan.changed), ("held back", plan.held)):
        for change in changes:
            yield f"~ {change.name} ({word})", "yellow"
            yield from ((f"    {line}", "green" if line[0] == "+" else "red") for line in difference_of(change))
    for bad in plan.quarantined:
        yield f"! {bad.name} (left out)", "magenta"
        yield from ((f"    {reason}", "magenta") for reason in bad.reasons)
    yield from ((f"  {name}: {note}", "dim") for name, note in notes.items())
    if len(plan.lines) > OPENAI_CAP:
        yield f"  more tools than one OpenAI request takes ({OPENAI_CAP}): routes choose among them", "dim"


def difference_of(change: Change) -> list[str]:
    """The lines that go (-) and come (+), whole: a reviewer must not miss what was put at a long line's end."""
    old, new = _readable(change.old), _readable(change.new)
    return [line for line in difflib.ndiff(old, new) if line[0] in "+-"]


def _readable(line: bytes) -> list[str]:
    given: dict[str, Any] = json.loads(line)
    text: list[str] = str(given.get("description") or "").splitlines()
    for key in ("input_schema", "annotations"):
        if key in given:
            pretty = json.dumps(given[key], indent=2, ensure_ascii=False, sort_keys=True)
            text += f"{key}: {pretty}".splitlines()
    return text


def _notes(listing: Listing) -> Iterator[tuple[str, str]]:
    for one in listing.candidates:
        quirks = quirks_of(one.definition.input_schema)
        found = [text for quirk, text in _QUIRKS.items() if quirk in quirks]
        if found:
            yield one.definition.name, "; ".join(found)


def _as_json(plan: ImportPlan, notes: dict[str, str], path: Path, *, written: bool) -> dict[str, Any]:
    return {
        "file": str(path),
        "written": written,
        "added": list(plan.added),
        "changed": [{"name": change.name, "diff": difference_of(change)} for change in plan.changed],
        "held": [{"name": change.name, "diff": difference_of(change)} for change in plan.held],
        "removed": list(plan.removed),
        "unchanged": plan.unchanged,
        "quarantined": [{"name": bad.name, "reasons": list(bad.reasons)} for bad in plan.quarantined],
        "notes": notes,
        "refusal": plan.refusal,
    }
