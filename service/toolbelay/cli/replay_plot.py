"""The picture of a replay: call recall against effective tokens a turn, as HTML or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from toolbelay.cli.exits import CommandError

WIDTH, HEIGHT, MARGIN = 760, 460, 64


@dataclass(frozen=True, slots=True)
class Point:
    """One row of the table."""

    label: str
    tokens: float
    recall: float


def write_plot(path: Path, points: Sequence[Point]) -> None:
    """Write it, by the file's ending. PNG needs matplotlib; HTML needs nothing."""
    if path.suffix in {".html", ".htm", ".svg"}:
        drawing = _svg(points)
        path.write_text(drawing if path.suffix == ".svg" else _page(drawing), encoding="utf-8")
    elif path.suffix == ".png":
        _png(path, points)
    else:
        raise CommandError(f"{path}: a plot ends in .html, .svg or .png")


def _page(drawing: str) -> str:
    return f"<!doctype html><meta charset=utf-8><title>Toolbelay replay</title>{drawing}\n"


def _svg(points: Sequence[Point]) -> str:
    most = max((p.tokens for p in points), default=1.0) * 1.1 or 1.0
    least = min((p.recall for p in points), default=0.0)
    floor = max(0.0, least - 0.1)

    def at(point: Point) -> tuple[float, float]:
        x = MARGIN + point.tokens / most * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - (point.recall - floor) / (1 - floor or 1.0) * (HEIGHT - 2 * MARGIN)
        return round(x, 1), round(y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for step in range(6):
        recall = floor + (1 - floor) * step / 5
        _, y = at(Point("", 0, recall))
        parts.append(f'<path d="M{MARGIN} {y}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y + 4}" text-anchor="end">{recall:.2f}</text>')
        x, _ = at(Point("", most * step / 5, floor))
        parts.append(f'<text x="{x}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{most * step / 5:,.0f}</text>')
    for number, point in enumerate(sorted(points, key=lambda p: p.tokens)):
        x, y = at(point)
        left, low = point.tokens > most / 2, number % 2
        parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="#2563a8"/>')
        place = f'x="{x - 8 if left else x + 8}" y="{y + 14 if low else y - 6}"'
        parts.append(f'<text {place} text-anchor="{"end" if left else "start"}">{escape(point.label)}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 16}" text-anchor="middle">effective tokens a turn</text>')
    parts.append(f'<text x="{MARGIN}" y="{MARGIN - 24}">call recall</text></svg>')
    return "\n".join(parts)


def _png(path: Path, points: Sequence[Point]) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandError("a PNG needs matplotlib (pip install matplotlib); .html needs nothing") from None
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter([p.tokens for p in points], [p.recall for p in points])
    most = max((p.tokens for p in points), default=1.0)
    for number, point in enumerate(sorted(points, key=lambda p: p.tokens)):
        left, low = point.tokens > most / 2, number % 2
        axes.annotate(
            point.label,
            (point.tokens, point.recall),
            xytext=(-6 if left else 6, -12 if low else 6),
            textcoords="offset points",
            ha="right" if left else "left",
        )
    axes.set_xlabel("effective tokens a turn")
    axes.set_ylabel("call recall")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=144)
