"""`routes.yaml` into validated routes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml

from toolbelay.application.apply_bundle import MAX_ROUTES_TEXT, SourceFile
from toolbelay.application.apply_route_keys import key_line, with_suggestion
from toolbelay.application.apply_yaml import YamlError, load_yaml
from toolbelay.catalog.definitions import Fault, is_clean_name
from toolbelay.catalog.routes import MAX_ROUTE_NAME, parse_route

MAX_ROUTES = 1_000
_LOCATED = 50  # faults that are looked up in the text; a hostile one has a hundred thousand


@dataclass(frozen=True, slots=True)
class WantedRoute:
    """A route to store: `json` in one form for equal options, and the tool ids that it names."""

    json: str
    tool_ids: frozenset[str]


@dataclass(slots=True)
class ReadRoutes:
    """What a text holds: the good routes, and every fault."""

    routes: dict[str, WantedRoute]
    faults: list[Fault]
    warnings: list[str]


def read_routes(file: SourceFile) -> ReadRoutes:
    """The routes of a `routes.yaml`, with all faults and warnings."""
    found = ReadRoutes({}, [], [])
    if len(file.content) > MAX_ROUTES_TEXT:
        found.faults.append(Fault(file.name, "", f"is more than the limit of {MAX_ROUTES_TEXT} bytes"))
        return found
    try:
        given, nodes = _routes_of(file.content)
    except YamlError as fault:
        where = file.name if fault.line is None else f"{file.name}:{fault.line}"
        found.faults.append(Fault(where, "", fault.message))
        return found
    for name, options in given.items():
        key, node = nodes.get(str(name), (None, None))
        _read_route(found, name, options, _Place(file.name, key.start_mark.line + 1 if key else 1, node))
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a route stands. `node`: its options."""

    file: str
    line: int
    node: yaml.Node | None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def of(self, name: str, told: str) -> str:
        """The place of the key that a fault or warning of the route names, else the route's own."""
        line = key_line(self.node, told.removeprefix(f"route {name}: "))
        return str(self) if line is None else f"{self.file}:{line}"


def route_tool_ids(stored: str) -> frozenset[str]:
    """The tool ids that a stored route names."""
    options = json.loads(stored)
    return frozenset(options.get("core_tools") or ()) | frozenset(options.get("required_tools") or ())


def same_route(name: str, one: str, other: str) -> bool:
    """Whether two stored routes mean the same: a default that is written out is no change."""
    return one == other or parse_route(name, json.loads(one))[0] == parse_route(name, json.loads(other))[0]


def _routes_of(content: bytes) -> tuple[dict[object, object], dict[object, tuple[yaml.Node, yaml.Node]]]:
    """(options by route name, nodes of name and options by route name)."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlError(f"not UTF-8 at byte {error.start}") from None
    value, node = load_yaml(text)
    if not isinstance(value, dict) or "routes" not in value:
        raise YamlError("must be a mapping with the key `routes`", 1)
    for key in value:
        if key != "routes":
            raise YamlError(f"unknown key {str(key)[:64]!r}: routes stand below `routes`", _key_lines(node).get(key, 1))
    routes = value["routes"]
    if routes is None:
        return {}, {}
    if not isinstance(routes, dict):
        raise YamlError("`routes` must be a mapping of route names", _key_lines(node).get("routes"))
    if len(routes) > MAX_ROUTES:
        raise YamlError(f"{len(routes)} routes are more than the limit of {MAX_ROUTES}")
    return routes, _keys(_child(node, "routes"))


def _read_route(found: ReadRoutes, name: object, options: object, place: _Place) -> None:
    where = str(place)
    if fault := _name_fault(name):
        found.faults.append(Fault(where, "", f"route {str(name)[:MAX_ROUTE_NAME]!r}: {fault}"))
        return
    route, faults, warnings = parse_route(str(name), options)
    found.warnings += [f"{place.of(str(name), warning)}: {warning}" for warning in warnings]
    for fault in faults:
        if len(found.faults) < _LOCATED:
            found.faults.append(Fault(place.of(str(name), fault), "", with_suggestion(fault, f"route {name}: ")))
        else:
            found.faults.append(Fault(where, "", fault))
    if route is None:
        return
    try:
        stored = _stored(options)
    except (TypeError, ValueError) as error:
        found.faults.append(Fault(where, "", f"route {name}: {error}"))
        return
    found.routes[str(name)] = WantedRoute(stored, frozenset(route.core_tools) | frozenset(route.required_tools))


def _name_fault(name: object) -> str:
    if not isinstance(name, str):
        return "a route's name must be text; put it in quotes"
    if not 1 <= len(name.encode("utf-8", "surrogatepass")) <= MAX_ROUTE_NAME:
        return f"a route's name is 1 to {MAX_ROUTE_NAME} bytes"
    return "" if is_clean_name(name) else "a route's name must be printable text"


def _stored(options: object) -> str:
    """One text for equal options, so that another key order is no change."""
    given = dict(options) if isinstance(options, dict) else {}
    given.pop("tools_db_path", None)
    for text in _strings(given):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError("NUL and lone surrogates are refused")
    return json.dumps(given, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _strings(part)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return []


def _child(node: Any, key: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                return value
    return None


def _keys(node: Any) -> dict[object, tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: (key, value) for key, value in node.value}


def _key_lines(node: Any) -> dict[object, int]:
    return {name: key.start_mark.line + 1 for name, (key, _) in _keys(node).items()}
