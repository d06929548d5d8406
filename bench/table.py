"""The result as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measure import Row

_HEAD = ("case", "ratio", "must", "goal", "req/s", "p50 ms", "p99 ms", "CPU µs", "trips", "Redis cmds", "remark")


def table(limits: Mapping[str, float], rows: Sequence[Row], facts: Sequence[tuple[str, str, str]]) -> str:
    """Markdown: the limits, the rows, and what is measured otherwise as (what, figure, must and goal)."""
    lines = ["| limit | req/s |", "| --- | ---: |", *(f"| {name} | {rate:,.0f} |" for name, rate in limits.items()), ""]
    lines += [_line(_HEAD), _line(["---", *["---:"] * (len(_HEAD) - 2), "---"])]
    lines += [_line(_cells(row)) for row in rows]
    lines += ["", "| also | figure | must, goal |", "| --- | --- | --- |", *(_line(fact) for fact in facts)]
    return "\n".join(lines)


def write(path: Path, machine: Mapping[str, str], limits: Mapping[str, float], rows: Sequence[Row], facts: Any) -> None:
    """The same as JSON."""
    path.parent.mkdir(exist_ok=True)
    result = {"machine": machine, "limits": limits, "rows": [row.as_json() for row in rows], "also": facts}
    path.write_text(json.dumps(result, indent=2))


def short(row: Row) -> str:
    """One row while the bench runs."""
    spread = " ".join(f"{ratio:.2f}" for ratio in row.ratios)
    must = f", must {row.must:.2f}" if row.must is not None else ""
    cpu = f"CPU {row.cpu_us:.0f} µs against {row.limit_cpu_us:.0f}"
    return f"{row.name:55} ratio {row.ratio:.2f} ({spread}{must}), {row.rate:,.0f}/s, p99 {row.p99_ms:.1f} ms, {cpu}"


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        f"**{row.ratio:.2f}**",
        "" if row.must is None else f"{row.must:.2f}",
        "" if row.goal is None else f"{row.goal:.2f}",
        f"{row.rate:,.0f}",
        f"{row.p50_ms:.1f}",
        f"{row.p99_ms:.1f}",
        f"{row.cpu_us:.0f}",
        f"{row.trips:.2f}",
        f"{row.commands:.1f}",
        row.remark,
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
