"""Reads what a replay plays: a catalog folder or file, its routes, sessions and questions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolbelay.application.apply_bundle import ConfigRefusedError, SourceFile
from toolbelay.application.apply_routes import read_routes
from toolbelay.application.apply_tools import read_tools
from toolbelay.application.config_source import read_config
from toolbelay.application.replay import Question, RecordedSession, RecordedTurn
from toolbelay.catalog.definitions import Fault
from toolbelay.catalog.model import Tool
from toolbelay.catalog.names import assign_exposed_names
from toolbelay.catalog.routes import Route, parse_route

MAX_RECORDING = 64 * 1024 * 1024  # bytes of a file of sessions or questions


def read_catalog(path: Path) -> tuple[list[Tool], dict[str, Route]]:
    """The tools, and the routes where there are any, of a configuration folder or of one `.jsonl` of tools.

    Raises ConfigRefusedError that names each fault.
    """
    if path.is_dir():
        bundle = read_config(path)
        files, routes_file = bundle.tools or (), bundle.routes
    else:
        files, routes_file = (SourceFile(path.name, path.read_bytes()),), None
    read = read_tools(files)
    faults = list(read.faults)
    routes: dict[str, Route] = {}
    if routes_file is not None:
        wanted = read_routes(routes_file)
        faults += wanted.faults
        for name, item in wanted.routes.items():
            route = parse_route(name, json.loads(item.json))[0]
            if route is not None:
                routes[name] = route
    if not read.tools and not faults:
        faults.append(Fault(str(path), "", "holds no tools"))
    if faults:
        raise ConfigRefusedError(faults)
    names = assign_exposed_names(((t.tool_id, t.toolset, t.name) for t in read.tools.values()), {})
    return [tool.named(names[tool_id]) for tool_id, tool in read.tools.items()], routes


def read_sessions(path: Path) -> list[RecordedSession]:
    """The sessions of a file, one a line: `{"session", "turns": [{"user", "calls": [names]}]}`."""
    found = []
    for where, item in _lines(path):
        turns = item.get("turns")
        if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
            raise ConfigRefusedError([Fault(where, "", "turns must be a list of objects")])
        read = tuple(RecordedTurn(_text(turn, "user", where), _names(turn, "calls", where)) for turn in turns)
        found.append(RecordedSession(str(item.get("session", where)), read))
    return found


def read_questions(path: Path) -> list[Question]:
    """The questions of a file, one a line: `{"question", "calls": [names, any of them right]}`."""
    return [Question(_text(item, "question", where), _names(item, "calls", where)) for where, item in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.stat().st_size > MAX_RECORDING:
        raise ConfigRefusedError([Fault(path.name, "", f"is more than the limit of {MAX_RECORDING} bytes")])
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path.name}:{number}"
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            raise ConfigRefusedError([Fault(where, "", "is not JSON")]) from None
        if not isinstance(item, dict):
            raise ConfigRefusedError([Fault(where, "", "must be an object")])
        yield where, item


def _text(item: dict[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise ConfigRefusedError([Fault(where, "", f"{key} must be text")])
    return value


def _names(item: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = item.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigRefusedError([Fault(where, "", f"{key} must be a list of names")])
    return tuple(value)
