"""The tools array of a recorded request, or a file that is one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from toolbelay.catalog.raw_json import JsonTextError
from toolbelay.imports.candidates import MAX_TOOLS
from toolbelay.imports.split import member, split_array

MAX_FILE: Final = 64 * 1024 * 1024  # bytes


def read_listed_file(path: Path) -> list[bytes]:
    """Each tool's exact bytes. Raises JsonTextError where there is no array of tools within the bounds."""
    with path.open("rb") as file:
        text = file.read(MAX_FILE + 1)
    if len(text) > MAX_FILE:
        raise JsonTextError("", f"more than the limit of {MAX_FILE} bytes")
    body = text.strip()
    tools: bytes | None = body
    if body.startswith(b"{"):
        tools = member(body, "tools")
    if tools is None:
        raise JsonTextError("tools", "is missing: the file must be a request with tools, or an array of tools")
    parts = split_array(tools)
    if len(parts) > MAX_TOOLS:
        raise JsonTextError("tools", f"{len(parts)} tools are more than the limit of {MAX_TOOLS}")
    return [tools[part.start : part.end] for part in parts]
