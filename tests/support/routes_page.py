"""What the code says in docs/routes.md: type, bounds and default of each key, and the profile.

`python -m tests.support.routes_page` writes it into the page; the meanings there are people's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from toolbelay.catalog.routes import PROFILES, Route, StickyConfig
from toolbelay.ranking.options import RankingOptions

PAGE: Final = Path(__file__).parents[2] / "docs" / "routes.md"
_MODELS: Final = (("", Route), ("sticky.", StickyConfig), ("ranking.", RankingOptions))
_DERIVED: Final = {
    "max_new_tools_per_turn": "min(2, `max_tools`)",
    "seed_tools": "min(`top_k`, `max_tools`); filter: `max_tools`",
    "on_no_match": "`core` with `core_tools`, else `all`",
    "deadline_ms": "`1000`; rewrite: `12000`",
    "similarity_threshold": "not set",
    "relevance_threshold": "not set",
}
_ROW: Final = re.compile(r"^\| `([\w.]+)` \| .*? \| .*? \| (.*) \|$", re.MULTILINE)
_TABLE: Final = re.compile(r"^\| key \|.*?(?=^\n)", re.MULTILINE | re.DOTALL)
_PROFILE: Final = re.compile(r"(?<=<!-- profile: (agentic) -->\n```yaml\n).*?(?=```)", re.DOTALL)


def rewritten(page: str) -> str:
    """The page as the code wants it. Raises ValueError for keys without a row, and rows without a key."""
    wanted = dict(_keys())
    given = [key for table in _TABLE.findall(page) for key, _ in _ROW.findall(table)]
    if sorted(given) != sorted(wanted):
        raise ValueError(f"rows and keys differ: {sorted(set(given) ^ set(wanted))}")
    page = _TABLE.sub(
        lambda table: _ROW.sub(lambda row: f"| `{row[1]}` | {wanted[row[1]]} | {row[2]} |", table[0]), page
    )
    return _PROFILE.sub(lambda found: yaml.safe_dump(PROFILES[found[1]], sort_keys=False), page)


def _keys() -> Iterator[tuple[str, str]]:
    """(key, "type and bounds | default") of every key of a route."""
    for prefix, model in _MODELS:
        for name, field in model.model_fields.items():
            if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
                yield prefix + name, f"{_type(field)} | {_default(name, field.default)}"


def _type(field: FieldInfo) -> str:
    annotation = field.annotation
    bounds = {type(item).__name__: item for item in field.metadata}
    literal = next((a for a in (annotation, *get_args(annotation)) if get_origin(a) is Literal), None)
    if literal is not None:
        return ", ".join(f"`{option}`" for option in get_args(literal))
    if annotation is bool:
        return "true, false"
    if annotation is int:
        return f"integer, {bounds['Ge'].ge} to {bounds['Le'].le}"
    if get_origin(annotation) is tuple:
        return f"list, at most {bounds['MaxLen'].max_length}"
    return f"number, {bounds['Ge'].ge:g} to {bounds['Le'].le:g}" if "Ge" in bounds else "number"


def _default(name: str, default: Any) -> str:
    if name in _DERIVED:
        return _DERIVED[name]
    if default is None:
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "`[]`" if default == () else f"`{default}`"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
