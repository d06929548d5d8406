"""Exposed names: the name the model sees of a tool, given once and reserved for its tool id for ever."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

MAX_EXPOSED_NAME = 64
_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_ILLEGAL_RUN = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_HASH_DIGITS = 8


def is_legal(name: str) -> bool:
    """Whether every provider takes the name as it is."""
    return _LEGAL.fullmatch(name) is not None


def assign_exposed_names(new_tools: Iterable[tuple[str, str, str]], reserved: Mapping[str, str]) -> dict[str, str]:
    """Exposed names for the (tool id, toolset, name) of one apply, by tool id.

    `reserved` maps every exposed name ever given in the tenant to its tool id. A tool id that has one
    keeps it; the others are served in the byte order of their ids, whatever the order of the input.
    """
    known = {tool_id: exposed for exposed, tool_id in reserved.items()}
    taken = set(reserved)
    assigned: dict[str, str] = {}
    for tool_id, toolset, name in sorted(new_tools, key=lambda tool: tool[0].encode("utf-8", "surrogatepass")):
        if tool_id in assigned:
            continue
        exposed = known.get(tool_id) or _first_free(tool_id, toolset, name, taken)
        taken.add(exposed)
        assigned[tool_id] = exposed
    return assigned


def _first_free(tool_id: str, toolset: str, name: str, taken: set[str]) -> str:
    if is_legal(name) and name not in taken:
        return name
    qualified = _ILLEGAL_RUN.sub("_", f"{toolset}_{name}")
    if len(qualified) <= MAX_EXPOSED_NAME and qualified not in taken:
        return qualified
    attempt = 0
    while (candidate := _hashed(qualified, tool_id, attempt)) in taken:
        attempt += 1
    return candidate


def _hashed(qualified: str, tool_id: str, attempt: int) -> str:
    """The qualified name cut to make room for a hash of the tool id; later attempts hash on."""
    seed = f"{attempt}:{tool_id}" if attempt else tool_id
    suffix = sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    return f"{qualified[: MAX_EXPOSED_NAME - _HASH_DIGITS - 1]}_{suffix}"
