"""Which tools the strategies find: `make bench-quality` plays sessions and questions and writes the figures into the docs.

Sessions go through ranking, planner and rendering (`toolbelay.application.replay`), the single questions through ranking
alone, with ratel-ai (BM25 for tools, Rust) beside it. No network; the data are in `bench/data`.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import platform
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from msgspec import structs
from rich.progress import Progress

from toolbelay.application.replay import (
    Catalog,
    Hit,
    Measures,
    Question,
    RecordedSession,
    ask_questions,
    replay_sessions,
)
from toolbelay.application.replay_source import read_catalog, read_questions, read_sessions
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.model import Tool
from toolbelay.catalog.routes import Route, parse_route
from toolbelay.cli.replay_plot import Point, write_plot
from toolbelay.ranking.index import CatalogIndex
from toolbelay.ranking.port import RankQuery

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "bench" / "data"
PAGE = ROOT / "docs" / "selection-quality.md"
PICTURE = ROOT / "docs" / "images" / "selection-quality.png"
COMMAND = "make bench-quality"

ANEW = "hybrid, top 16, each turn anew"
ROUTES: dict[str, dict[str, Any]] = {
    "embedding, top 8, each turn anew": {
        "strategy": "embedding", "top_k": 8, "seed_tools": 8, "sticky": {"enabled": False},
    },
    ANEW: {"top_k": 16, "seed_tools": 16, "sticky": {"enabled": False}},
    "keyword, defaults 16/2": {"strategy": "keyword"},
    "embedding, defaults 16/2": {"strategy": "embedding"},
    "**hybrid, defaults 16/2**": {},
    "the same without priors": {
        "ranking": {"toolset_weight": 0, "called_weight": 0, "supply_weight": 0, "news_weight": 0},
    },
    "hybrid 64/8, seeds 24": {"top_k": 16, "seed_tools": 24, "sticky": {"max_tools": 64, "max_new_tools_per_turn": 8}},
    "**profile agentic**": {"profile": "agentic"},
    "profile agentic, one by one": {"profile": "agentic", "ranking": {"admission": "each"}},
}  # fmt: skip
SPEED_SIZES = (1241, 20_000)
SPEED_QUERIES = 300


class Bench:
    """One data set, indexed."""

    def __init__(self, folder: Path) -> None:
        tools, _ = read_catalog(folder / "catalog.jsonl")
        self.catalog = Catalog(tools, WireFormat.OPENAI_CHAT)
        self.sessions = read_sessions(folder / "sessions.jsonl")
        self.questions = read_questions(folder / "questions.jsonl")
        self.index = CatalogIndex()

    def over(self, tools: Sequence[Tool]) -> Bench:
        """The same sessions over other tools."""
        other = copy.copy(self)
        other.catalog = Catalog(tools, self.catalog.wire_format)
        other.index = CatalogIndex()
        return other

    async def ready(self) -> Bench:
        """The data set with its index built."""
        await self.index.refresh(self.catalog.tools)
        return self

    async def play(self, options: dict[str, Any], sessions: Sequence[RecordedSession] | None = None) -> Measures:
        """Sessions on a route."""
        return await replay_sessions(self.index, self.catalog, _route(options), sessions or self.sessions)

    async def ask(self, strategy: str) -> Hit:
        """Questions by a strategy."""
        return await ask_questions(self.index, self.catalog, strategy, self.questions)


async def measure(advance: Callable[[], None]) -> dict[str, Any]:
    """Everything that the page shows."""
    bfcl = await Bench(DATA / "bfcl").ready()
    mcp = await Bench(DATA / "mcp").ready()
    figures: dict[str, Any] = {"sessions": {}, "mcp_sessions": {}, "halves": {}, "questions": {}, "mcp_questions": {}}
    for label, options in ROUTES.items():
        figures["sessions"][label] = asdict(await bfcl.play(options))
        advance()
        figures["mcp_sessions"][label] = asdict(await mcp.play(options))
        advance()
    for name, part in (("even", bfcl.sessions[::2]), ("odd", bfcl.sessions[1::2])):
        for label in ("**hybrid, defaults 16/2**", "**profile agentic**"):
            figures["halves"][f"{label}, {name} sessions"] = asdict(await bfcl.play(ROUTES[label], part))
        advance()
    figures["perturbed"] = {}
    for label, tools in perturbed(bfcl).items():
        other = await bfcl.over(tools).ready()
        for route in ("**hybrid, defaults 16/2**", "**profile agentic**"):
            figures["perturbed"][f"{label}: {route.replace('*', '')}"] = asdict(await other.play(ROUTES[route]))
        advance()
    for strategy in ("keyword", "embedding", "hybrid"):
        figures["questions"][f"{strategy}"] = asdict(await bfcl.ask(strategy))
        figures["mcp_questions"][f"{strategy}"] = asdict(await mcp.ask(strategy))
        advance()
    figures["questions"]["ratel-ai 0.12.0"] = asdict(await ratel(bfcl.catalog, bfcl.questions))
    figures["mcp_questions"]["ratel-ai 0.12.0"] = asdict(await ratel(mcp.catalog, mcp.questions))
    advance()
    figures["speed"] = [await speed(bfcl, size) for size in SPEED_SIZES]
    advance()
    return figures


def perturbed(bench: Bench) -> dict[str, list[Tool]]:
    """The catalog changed in ways that must not matter, or not much; by a fixed seed."""
    chance = random.Random(7)
    tools = sorted(bench.catalog.tools.values(), key=lambda t: t.tool_id)
    toolsets = sorted({t.toolset for t in tools})
    renamed = {name: f"server-{number}" for number, name in enumerate(chance.sample(toolsets, len(toolsets)))}
    pairs = {name: f"pair-{n // 2}" for n, name in enumerate(chance.sample(toolsets, len(toolsets)))}
    wanted = {bench.catalog.resolve(name) for s in bench.sessions for turn in s.turns for name in turn.calls}
    needed = {bench.catalog.tools[tool_id].toolset for tool_id in wanted if tool_id}
    crowd = [t for t in tools if t.toolset not in needed]
    return {
        "toolsets renamed at random": [_moved(t, renamed[t.toolset]) for t in tools],
        "half of the other tools": [t for t in tools if t.toolset in needed] + chance.sample(crowd, len(crowd) // 2),
        "toolsets merged in pairs": [_moved(t, pairs[t.toolset]) for t in tools],
    }


def _moved(tool: Tool, toolset: str) -> Tool:
    return replace(tool, tool_id=f"{toolset}/{tool.name}", toolset=toolset)


async def ratel(catalog: Catalog, questions: Sequence[Question]) -> Hit:
    """The same questions by ratel-ai's BM25."""
    from ratel_ai import ExecutableTool, ToolCatalog

    peer = ToolCatalog()
    await peer.register(
        [
            ExecutableTool(
                id=tool.tool_id,
                name=tool.name,
                description=json.loads(tool.description),
                input_schema=json.loads(tool.input_schema),
                output_schema={"type": "object"},
                execute=lambda _arguments: {},
            )
            for tool in catalog.tools.values()
        ]
    )
    counts = [0, 0, 0, 0]
    for question in questions:
        found = [hit.tool_id for hit in peer.search(question.text, 16)]
        wanted = {catalog.resolve(name) for name in question.calls}
        place = next((n for n, tool_id in enumerate(found) if tool_id in wanted), 16)
        counts = [count + (place < most) for count, most in zip(counts, (1, 5, 10, 16), strict=True)]
    top1, at5, at10, at16 = (count / len(questions) for count in counts)
    return Hit(top1, at5, at10, at16, len(questions))


async def speed(bench: Bench, size: int) -> dict[str, Any]:
    """Milliseconds of ranking (median, 95th percentile) among `size` tools, and of taking one changed tool."""
    tools = grown(list(bench.catalog.tools.values()), size)
    index = CatalogIndex()
    started = time.perf_counter()
    await index.refresh(tools)
    built = time.perf_counter() - started
    texts = [question.text for question in bench.questions][:SPEED_QUERIES]
    result: dict[str, Any] = {"tools": size, "build_seconds": round(built, 2)}
    agentic = _route({"profile": "agentic"})
    for name, given in (
        ("stateless", {"sticky": False}),
        ("in a session", {}),
        ("agentic", {"options": agentic.ranking, "limit": 64}),
    ):
        times = []
        for text in texts:
            query = structs.replace(RankQuery(text, "hybrid", tools.__contains__, 16), **given)
            started = time.perf_counter()
            await index.rank(query)
            times.append((time.perf_counter() - started) * 1000)
        times.sort()
        result[name] = [round(statistics.median(times), 2), round(times[int(len(times) * 0.95)], 2)]
    tool_id, tool = next(iter(tools.items()))
    started = time.perf_counter()
    await index.refresh({**tools, tool_id: replace(tool, description=b'"changed"', fingerprint=b"\0" * 32)})
    result["one_changed_seconds"] = round(time.perf_counter() - started, 2)
    return result


def grown(tools: Sequence[Tool], size: int) -> dict[str, Tool]:
    """The tools, repeated under other toolsets and names until there are `size`."""
    found = {}
    for number in range(size):
        tool, again = tools[number % len(tools)], number // len(tools)
        if again:
            toolset, name = f"{tool.toolset[:50]}-{again}", f"{tool.name}_{again}"
            digest = number.to_bytes(32, "big")
            tool = replace(tool, tool_id=f"{toolset}/{name}", toolset=toolset, name=name, fingerprint=digest)
        found[tool.tool_id] = tool
    return found


def _route(options: dict[str, Any]) -> Route:
    route, faults, _ = parse_route("bench", options)
    if route is None:
        raise SystemExit("; ".join(faults))
    return route


def page_parts(figures: dict[str, Any]) -> dict[str, str]:
    """The tables of the page by the name of their place."""
    parts = {name: _session_table(figures[name]) for name in ("sessions", "mcp_sessions", "halves", "perturbed")}
    for name in ("questions", "mcp_questions"):
        lines = ["| ranker | top 1 | at 5 | at 10 | at 16 |", "| --- | --- | --- | --- | --- |"]
        for label, hit in figures[name].items():
            shares = " | ".join(f"{hit[key]:.3f}" for key in ("top1", "at5", "at10", "at16"))
            lines.append(f"| {label} | {shares} |")
        parts[name] = "\n".join(lines)
    lines = [
        "| tools | stateless: median / p95 ms | in a session | agentic | build, s | one changed, s (off the loop) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in figures["speed"]:
        cells = [f"{row[k][0]} / {row[k][1]}" for k in ("stateless", "in a session", "agentic")]
        cells += [str(row["build_seconds"]), str(row["one_changed_seconds"])]
        lines.append(f"| {row['tools']:,} | {' | '.join(cells)} |")
    parts["speed"] = "\n".join(lines)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    parts["run"] = f"`{COMMAND}`, Python {platform.python_version()}, {machine}."
    return parts


def _session_table(rows: dict[str, dict[str, float]]) -> str:
    base = rows.get(ANEW, {}).get("effective_tokens")
    lines = [
        "| selection | call recall | unchanged | tools | effective tokens |" + (" against anew |" if base else ""),
        "| --- | --- | --- | --- | --- |" + (" --- |" if base else ""),
    ]
    for label, m in rows.items():
        share = f" {m['effective_tokens'] / base:.2f} |" if base else ""
        lines.append(
            f"| {label} | {m['call_recall']:.3f} | {m['unchanged']:.2f} | {m['tools']:.1f} |"
            f" {m['effective_tokens']:,.0f} |{share}"
        )
    return "\n".join(lines)


def refreshed(page: str, parts: dict[str, str]) -> str:
    """The page with each `<!-- figures: name -->` … `<!-- end -->` filled. Raises SystemExit where one is missing."""
    for name, text in parts.items():
        pattern = re.compile(rf"(<!-- figures: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(page):
            raise SystemExit(f"{PAGE.name} has no place for {name}")
        page = pattern.sub(lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page)  # type: ignore[misc]
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the page, the picture, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures and leave the docs alone")
    given = parser.parse_args(arguments)
    with Progress(transient=True) as progress:
        task = progress.add_task("quality", total=2 * len(ROUTES) + 10)
        figures = asyncio.run(measure(lambda: progress.advance(task)))
    if given.json:
        print(json.dumps(figures, indent=2))
        return 0
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8"), page_parts(figures)), encoding="utf-8")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    points = [
        Point(label.replace("*", ""), row["effective_tokens"], row["call_recall"])
        for label, row in figures["sessions"].items()
    ]
    write_plot(PICTURE, points)
    print(f"{PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)} written")
    for row in page_parts(figures).values():
        print(f"\n{row}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
