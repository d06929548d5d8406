"""Where commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table


def output() -> Console:
    """Results. Colours only on a terminal; wide enough elsewhere that no cell is cut."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)


def notes() -> Console:
    """Progress and hints."""
    return Console(file=sys.stderr, highlight=False, stderr=True)


def print_json(value: Any) -> None:
    """For programs: one JSON document, stable key order as given, UTF-8."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def plain_table(*columns: str, title: str = "") -> Table:
    """A table without frills; text columns fold rather than lose characters."""
    table = Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold")
    return table
