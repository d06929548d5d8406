"""`toolbelay replay`: plays recorded sessions through selection and measures it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolbelay.cli.console import notes, output, plain_table, print_json
from toolbelay.cli.exits import REFUSED, CommandError
from toolbelay.cli.options import json_option

if TYPE_CHECKING:
    from toolbelay.application.replay import Hit, Measures
    from toolbelay.catalog.routes import Route

STRATEGIES = ("keyword", "embedding", "hybrid", "static")
DEFAULT_STRATEGIES = ("keyword", "embedding", "hybrid")
ANEW = "anew"  # the comparison that each replay has: no session, the best 16 of each turn

EXISTING = click.Path(exists=True, path_type=Path)


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    measures: Measures


@click.command(short_help="Play recorded sessions through selection and measure it.")
@click.argument("sessions", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("catalog", type=EXISTING)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    type=click.Choice(STRATEGIES),
    help="With the default bounds 16/2; repeatable. Default: keyword, embedding and hybrid.",
)
@click.option("--route", "routes", multiple=True, metavar="NAME", help="A route of CATALOG/routes.yaml; repeatable.")
@click.option("--questions", type=EXISTING, help="Single questions beside the sessions.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture: .html, .svg or .png.")
@json_option
def replay(
    sessions: Path,
    catalog: Path,
    strategies: tuple[str, ...],
    routes: tuple[str, ...],
    questions: Path | None,
    plot: Path | None,
    as_json: bool,  # noqa: FBT001 - click passes it by name
) -> None:
    """Play SESSIONS (a .jsonl of recorded turns) against CATALOG (a folder as for `apply`, or a .jsonl of tools).

    Shows, per strategy and route: the share of needed calls whose tool was advertised, how often the list stayed as it
    was, and what it costs in tokens with a prompt cache. Every tool counts as permitted; no server is needed.
    The profile `agentic` and the hybrid top 16 of each turn anew stand beside what is asked for.
    """
    from toolbelay.application.apply_bundle import ConfigRefusedError

    try:
        rows, hits = asyncio.run(_played(sessions, catalog, strategies or DEFAULT_STRATEGIES, routes, questions))
    except ConfigRefusedError as error:
        lines = [f"{f.where}: {f.subject + ': ' if f.subject else ''}{f.message}" for f in error.faults]
        raise CommandError(*lines, code=REFUSED) from None
    if plot is not None:
        _plot(plot, rows)
    if as_json:
        print_json(_json(rows, hits))
        return
    _show(rows, hits)


async def _played(
    sessions: Path, catalog: Path, strategies: Sequence[str], wanted: Sequence[str], questions: Path | None
) -> tuple[list[_Row], dict[str, Hit]]:
    from rich.progress import Progress

    from toolbelay.application.replay import Catalog, ask_questions, replay_sessions
    from toolbelay.application.replay_source import read_catalog, read_questions, read_sessions
    from toolbelay.catalog.formats import WireFormat
    from toolbelay.ranking.wiring import IndexMaker

    tools, known = read_catalog(catalog)
    recorded = read_sessions(sessions)
    asked = read_questions(questions) if questions is not None else []
    played = _routes(strategies, wanted, known)
    offered = Catalog(tools, WireFormat.OPENAI_CHAT)
    index = IndexMaker()()
    await index.refresh(offered.tools)
    rows: list[_Row] = []
    hits: dict[str, Hit] = {}
    with Progress(console=notes(), transient=True) as progress:
        for label, route in played.items():
            task = progress.add_task(label, total=len(recorded))
            measures = await replay_sessions(index, offered, route, recorded, lambda t=task: progress.advance(t))  # type: ignore[misc]
            rows.append(_Row(label, measures))
        for strategy in [s for s in strategies if s != "static"] if asked else ():
            task = progress.add_task(f"questions, {strategy}", total=len(asked))
            hits[strategy] = await ask_questions(
                index,
                offered,
                strategy,
                asked,
                lambda t=task: progress.advance(t),  # type: ignore[misc]
            )
    return rows, hits


def _routes(strategies: Sequence[str], wanted: Sequence[str], known: dict[str, Route]) -> dict[str, Route]:
    missing = [name for name in wanted if name not in known]
    if missing:
        there = ", ".join(sorted(known)) or "none"
        raise CommandError(*(f"no route {name!r} in routes.yaml; there: {there}" for name in missing), code=REFUSED)
    anew = {"top_k": 16, "seed_tools": 16, "sticky": {"enabled": False}}
    played = {f"hybrid, top 16 {ANEW}": _made(anew)}
    played |= {f"{strategy} 16/2": _made({"strategy": strategy}) for strategy in strategies}
    played["profile agentic"] = _made({"profile": "agentic"})
    return played | {f"route {name}": known[name] for name in wanted}


def _made(options: dict[str, Any]) -> Route:
    from toolbelay.catalog.routes import parse_route

    route, faults, _ = parse_route("replay", options)
    if route is None:
        raise CommandError(*faults)
    return route


def _show(rows: Sequence[_Row], hits: dict[str, Hit]) -> None:
    base = next(row.measures.effective_tokens for row in rows if row.label.endswith(ANEW))
    first = rows[0].measures
    table = plain_table(
        "selection", ">call recall", ">unchanged", ">tools", ">effective tokens", ">against anew",
        title=f"{first.turns} turns, {first.calls} calls",
    )  # fmt: skip
    for row in rows:
        m = row.measures
        share = f"{m.effective_tokens / base:.2f}" if base else "-"
        numbers = (f"{m.call_recall:.3f}", f"{m.unchanged:.2f}", f"{m.tools:.1f}", f"{m.effective_tokens:,.0f}", share)
        table.add_row(row.label, *numbers)
    output().print(table)
    if not hits:
        return
    table = plain_table("strategy", ">top 1", ">at 5", ">at 10", ">at 16", title="single questions")
    for strategy, hit in hits.items():
        table.add_row(strategy, *(f"{share:.3f}" for share in (hit.top1, hit.at5, hit.at10, hit.at16)))
    output().print(table)


def _json(rows: Sequence[_Row], hits: dict[str, Hit]) -> dict[str, Any]:
    return {
        "selections": [{"selection": row.label, **asdict(row.measures)} for row in rows],
        "questions": [{"strategy": strategy, **asdict(hit)} for strategy, hit in hits.items()],
    }


def _plot(path: Path, rows: Sequence[_Row]) -> None:
    from toolbelay.cli.replay_plot import Point, write_plot

    write_plot(path, [Point(r.label, r.measures.effective_tokens, r.measures.call_recall) for r in rows])
    notes().print(f"plot: {path}")
