"""How commands end: exit codes that mean something, and errors in one line with the remedy."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
UNAVAILABLE: Final = 4
UNCONFIRMED: Final = 5
PARTIAL: Final = 6
INTERRUPTED: Final = 130

EXIT_CODES: Final = """\
Exit codes: 0 done; 1 failed; 2 wrong usage; 3 refused: settings, configuration or request; \
4 a server is unavailable or not ready; 5 committed, but its propagation is not confirmed; \
6 imported in part."""


class CommandError(click.ClickException):
    """Ends a command with one line per fault on standard error."""

    def __init__(self, *lines: str, code: int = FAILED) -> None:
        super().__init__(lines[0] if lines else "failed")
        self.lines = lines
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        """Print the lines."""
        red = sys.stderr.isatty() and file is None
        for line in self.lines:
            text = " ".join(line.split()) if "\n" in line else line
            prefix = click.style("toolbelay:", fg="red", bold=True) if red else "toolbelay:"
            click.echo(f"{prefix} {text}", err=file is None, file=file)
