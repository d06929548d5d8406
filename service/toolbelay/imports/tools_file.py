"""`tools/<toolset>.jsonl` of a configuration folder: read as it stands, and replaced in one step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from toolbelay.application.apply_bundle import MAX_BUNDLE, ConfigRefusedError
from toolbelay.catalog.definitions import Definition, Fault, parse_line


@dataclass(frozen=True, slots=True)
class StoredLine:
    """One line of a file; `definition` is `None` for a blank line and for another toolset's tool."""

    text: bytes = field(repr=False)
    definition: Definition | None


@dataclass(frozen=True, slots=True)
class ToolsFile:
    """A file as it was read; `content` is `None` where there is none."""

    path: Path
    content: bytes | None = field(repr=False)
    lines: tuple[StoredLine, ...]

    @property
    def tools(self) -> dict[str, StoredLine]:
        """The toolset's lines by name."""
        return {line.definition.name: line for line in self.lines if line.definition}


class FileChangedError(Exception):
    """Somebody else wrote the file after it was read."""


def read_tools_file(folder: Path, toolset: str) -> ToolsFile:
    """The toolset's file. Raises ConfigRefusedError where it cannot be read, or another file holds its tools."""
    path = folder / "tools" / f"{toolset}.jsonl"
    faults = [*_strangers(path, toolset)]
    content = _read(path)
    lines: list[StoredLine] = []
    for number, text in enumerate((content or b"").split(b"\n"), start=1):
        read = parse_line(text, f"tools/{path.name}:{number}") if text.strip() else []
        faults += [fault for fault in read if isinstance(fault, Fault)]
        own = next((one for one in read if isinstance(one, Definition) and one.toolset == toolset), None)
        lines.append(StoredLine(text, own))
    if lines and not lines[-1].text:
        lines.pop()  # what follows the last line end
    if faults:
        raise ConfigRefusedError(faults)
    return ToolsFile(path, content, tuple(lines))


def replace_tools_file(file: ToolsFile, lines: tuple[bytes, ...]) -> None:
    """Write the lines in one step, so that no reader sees half a file. Raises FileChangedError, OSError."""
    file.path.parent.mkdir(parents=True, exist_ok=True)
    target = file.path.resolve()
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(b"".join(line + b"\n" for line in lines))
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o644)
        if _read(file.path) != file.content:
            raise FileChangedError(str(file.path))
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BUNDLE + 1)
    except FileNotFoundError:
        return None
    if len(content) > MAX_BUNDLE:
        raise ConfigRefusedError([Fault(f"tools/{path.name}", "", f"is more than the limit of {MAX_BUNDLE} bytes")])
    return content


def _strangers(path: Path, toolset: str) -> Iterator[Fault]:
    """Tools of the toolset in other files: imported here too, they would be given twice at apply."""
    if not path.parent.is_dir():
        return
    mark = f'"{toolset}"'.encode()
    for other in sorted(path.parent.glob("*.jsonl")):
        if other.name == path.name:
            continue
        for number, text in enumerate((_read(other) or b"").split(b"\n"), start=1):
            if mark not in text:
                continue
            read = parse_line(text, "")
            if any(isinstance(one, Definition) and one.toolset == toolset for one in read):
                yield Fault(f"tools/{other.name}:{number}", toolset, f"is a tool of {path.name}; move the line there")
                break
