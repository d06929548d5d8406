"""Which key of a route a fault speaks of: its line, and the key that was probably meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, Final

import yaml
from pydantic import BaseModel

from toolbelay.catalog.routes import Route

UNKNOWN: Final = "unknown key"
_ALIKE: Final = 0.6  # of difflib; what is less alike was meant otherwise


def key_line(node: yaml.Node | None, told: str) -> int | None:
    """The line (from 1) of the key or list item that `told` begins with (`sticky.max_tools: …`); `None` = of none.

    Where only the first keys of the path were written, the last of these.
    """
    line, rest = None, told
    while True:
        found = _step(node, rest)
        if found is None:
            return line
        mark, node, length = found
        line, rest = mark.start_mark.line + 1, rest[length:]
        if not rest.startswith("."):
            return line
        rest = rest[1:]


def with_suggestion(told: str, prefix: str) -> str:
    """`told` (a path behind `prefix`, and what is wrong) with the key that was meant, if it is of an unknown one."""
    path, separator, message = told.removeprefix(prefix).rpartition(": ")
    if not separator or message != UNKNOWN:
        return told
    near = _meant(path)
    return f"{told}; did you mean {near}?" if near else f"{told}; docs/routes.md lists the keys"


def _step(node: yaml.Node | None, rest: str) -> tuple[yaml.Node, yaml.Node, int] | None:
    """(what has the line, what is below it, characters of `rest` that name it)."""
    if isinstance(node, yaml.SequenceNode):
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        if digits and len(digits) < 6 and int(digits) < len(node.value):
            item = node.value[int(digits)]
            return item, item, len(digits)
    if not isinstance(node, yaml.MappingNode):
        return None
    named = [(key, below) for key, below in node.value if _begins_with(rest, key.value)]
    if not named:
        return None
    key, below = max(named, key=lambda pair: len(pair[0].value))  # a key may hold a dot
    return key, below, len(key.value)


def _begins_with(rest: str, key: Any) -> bool:
    return isinstance(key, str) and key != "" and rest.startswith(key) and rest[len(key) : len(key) + 1] in ("", *".: ")


def _meant(path: str) -> str:
    """The path of a known key that an unknown one stands for; "" = none is near.

    A key of that very name in another block comes first (`max_tools` beside `sticky` instead of in it).
    """
    block, _, key = path.rpartition(".")
    everywhere = [(known, *known.rpartition(".")[::2]) for known in _paths(Route) if known != block]
    beside = [place for place in everywhere if place[1] == block]
    for places, alike in ((everywhere, 1.0), (beside, _ALIKE), (everywhere, _ALIKE)):
        near = difflib.get_close_matches(key, [name for _, _, name in places], n=1, cutoff=alike)
        if near:
            return next(known for known, _, name in places if name == near[0])
    return ""


def _paths(model: type[BaseModel], block: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield block + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _paths(field.annotation, f"{block}{name}.")
