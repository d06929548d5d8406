"""Runs the examples of a Markdown page, so that what it shows is what happens.

How a page marks them:

- a `console` block is run: lines that begin with `$ ` are commands (a line that ends in a backslash goes on), the others
  what they print, both streams. A line `…` stands for any lines, `…` inside a line for any text, and figures that
  differ from run to run (times, scores) compare equal. Exported variables stay for the rest of the page.
- a `python` block is run; a `text` block behind it is what it prints. Names stay for the rest of the page.
- a block behind a line `<!-- file: PATH -->` is written to that path.
- other blocks (`sh`, `yaml`, `cedar`, …) are read by people only.

All of it happens in one fresh folder with `examples/` and `.venv/` beside it, as in a checkout, against one
`toolbelay serve --dev` on a free port, which stands for the page's 127.0.0.1:50051.
`python -m tests.support.doc_examples PAGE…` writes into the pages what their commands print today.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.command import Serving, clean_environment, in_process, serving
from tests.support.service import free_port

ROOT = Path(__file__).parents[2]
SHOWN_ADDRESS = "127.0.0.1:50051"
_FENCE = re.compile(r"^(?:<!-- file: (\S+) -->\n)?```([\w-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLAIN = re.compile(r"toolbelay [^;|&$<>`\\]+")
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\b\d\.\d{3,}\b"), "<score>"),
    (re.compile(r"pid=\d+"), "pid=<pid>"),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, where the text stands in the page, and the file to write it to."""

    language: str
    text: str
    start: int
    end: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """What a page claims, and what happened. `start`, `end`: where the claim stands in the page."""

    shown: str
    claimed: str
    happened: str
    start: int
    end: int

    @property
    def holds(self) -> bool:
        """Whether the claim matches."""
        pattern = "".join(_line_pattern(line) for line in _plain(self.claimed).splitlines())
        return re.fullmatch(pattern, _plain(self.happened)) is not None


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(found[2], found[3], found.start(3), found.end(3), found[1] or "") for found in _FENCE.finditer(page)]


def run_page(page: str, folder: Path) -> Iterator[Example]:
    """Run a page's examples in `folder`, one after the other."""
    for name, target in (("examples", ROOT / "examples"), (".venv", Path(sys.prefix))):
        (folder / name).symlink_to(target)
    with _Surroundings.made(folder) as surroundings:
        blocks = blocks_of(page)
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            if block.file:
                path = folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.language == "console":
                yield from _run_console(block, surroundings)
            elif block.language == "python":
                printed = surroundings.python(block.text)
                if following is not None and following.language == "text":
                    yield Example(block.text, following.text, printed, following.start, following.end)


class _Surroundings:
    """The folder, the environment and the service that a page's examples share."""

    def __init__(self, folder: Path, address: str, service: Serving) -> None:
        self._folder = folder
        self._address = address
        self._service = service
        path = os.pathsep.join((str(Path(sys.prefix) / "bin"), os.environ.get("PATH", "")))
        self._environment = clean_environment({"PATH": path})
        self._names: dict[str, Any] = {"__name__": "__main__"}

    @classmethod
    @contextmanager
    def made(cls, folder: Path) -> Iterator[_Surroundings]:
        """With a service in the folder, ended afterwards."""
        address = f"127.0.0.1:{free_port()}"
        with serving("--dev", "--listen", address, cwd=folder) as service:
            yield cls(folder, address, service)

    def shell(self, command: str) -> str:
        """What a command prints, both streams in order."""
        if command.split()[:2] == ["toolbelay", "serve"]:
            return self._as_shown(self._service.said)
        if _PLAIN.fullmatch(command):
            return self._as_shown(self._toolbelay(shlex.split(self._as_run(command))[1:]))
        kept = self._folder / ".environment"
        script = f"{self._as_run(command)}\nstatus=$?\nenv -0 > {kept}\nexit $status"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        if kept.exists():
            pairs = (item.partition("=") for item in kept.read_text().split("\0") if item)
            self._environment = {name: value for name, _, value in pairs}
            kept.unlink()
        return self._as_shown(done.stdout)

    def _toolbelay(self, arguments: list[str]) -> str:
        """A command without shell around it, in this process: a page has dozens, and each process costs half a second."""
        done = in_process(*arguments, cwd=self._folder, environment=self._environment)
        return done.stdout + done.stderr

    def python(self, text: str) -> str:
        """What a block of Python prints."""
        out = io.StringIO()
        code = compile(self._as_run(text), "<example>", "exec")
        with patch.dict(os.environ, self._environment, clear=True), redirect_stdout(out):
            exec(code, self._names)
        return self._as_shown(out.getvalue())

    def _as_run(self, text: str) -> str:
        return text.replace(SHOWN_ADDRESS, self._address)

    def _as_shown(self, text: str) -> str:
        return text.replace(self._address, SHOWN_ADDRESS).replace(str(self._folder), "…")


def _run_console(block: Block, surroundings: _Surroundings) -> Iterator[Example]:
    position = block.start
    command, start = "", position
    claimed: list[str] = []
    for line in block.text.splitlines(keepends=True):
        if command.endswith("\\\n"):
            command += line
            start = position + len(line)
        elif line.startswith("$ "):
            if command:
                yield _console_example(command, claimed, start, surroundings)
            command, claimed, start = line[2:], [], position + len(line)
        else:
            claimed.append(line)
        position += len(line)
    if command:
        yield _console_example(command, claimed, start, surroundings)


def _console_example(command: str, claimed: list[str], start: int, surroundings: _Surroundings) -> Example:
    text = "".join(claimed)
    return Example(command, text, surroundings.shell(command.strip()), start, start + len(text))


def _plain(text: str) -> str:
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())


def _line_pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    return r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in line.split()) + r"\n"


def _rewritten(page: str) -> str:
    with tempfile.TemporaryDirectory(prefix="toolbelay-page-") as folder:
        examples = list(run_page(page, Path(folder)))
    for example in reversed(examples):
        if not example.holds:
            sys.stdout.write(f"changed: {example.shown.strip()}\n")
            happened = "".join(f"{line.rstrip()}\n" for line in example.happened.splitlines())
            page = page[: example.start] + happened + page[example.end :]
    return page


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(_rewritten(Path(name).read_text()))
