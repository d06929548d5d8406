"""The pages agree with the code: links, settings, commands, make targets, and the keys of routes.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from toolbelay.application.apply_bundle import SourceFile
from toolbelay.application.apply_routes import read_routes
from toolbelay.authority.policy import validate_policies
from toolbelay.catalog.definitions import Definition, Fault, read_definitions
from toolbelay.catalog.routes import PROFILES, Route, StickyConfig
from toolbelay.cli.main import cli
from toolbelay.ranking.options import RankingOptions
from toolbelay.settings import CLIENT_VARIABLES, VARIABLES
from toolbelay.storage.port import PolicyFile

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"\bTOOLBELAY_[A-Z0-9_]+\b(?!…|\*)")
_COMMAND = re.compile(r"(?:^[$ ]*|`|&& )toolbelay((?: +(?![.=])[^\s`|;&>)]+)+)", re.MULTILINE)
_TARGET = re.compile(r"(?:^[$ ]*|`)make ([a-z][a-z0-9-]*)", re.MULTILINE)
_MODULE = re.compile(r"python -m ((?:bench|tests)[.\w]+)")
_GITHUB_DROPS = re.compile(r"[^\w\- ]")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors_of(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {_GITHUB_DROPS.sub("", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_internal_links_resolve(page: Path) -> None:
    broken = []
    for link in _LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert not broken


@each_page
def test_settings_exist(page: Path) -> None:
    named = {name for name in _VARIABLE.findall(page.read_text()) if not name.endswith("_")}
    assert not named - {*VARIABLES, *CLIENT_VARIABLES}


@each_page
def test_commands_and_their_options_exist(page: Path) -> None:
    faults = [fault for line in _COMMAND.findall(page.read_text()) for fault in faults_of_command(line.split())]
    assert not faults


def faults_of_command(words: list[str]) -> Iterator[str]:
    """What is wrong with the words behind `toolbelay`."""
    command: click.Command = cli
    context = click.Context(cli)
    for word in words:
        if isinstance(command, click.Group):
            if word.startswith(("-", "…")):
                return
            found = [command.get_command(context, name) for name in word.split("/")]
            if None in found:
                yield f"no command {' '.join(words)!r}"
                return
            assert found[0] is not None
            command = found[0]
        elif word == "--":
            return
        elif word.startswith("--"):
            name = word.partition("=")[0].rstrip(".,:")
            known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
            if name not in known:
                yield f"{command.name} has no option {name}"


@each_page
def test_make_targets_and_modules_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    assert not set(_TARGET.findall(text)) - targets
    modules = {ROOT / name.rstrip(".").replace(".", "/") for name in _MODULE.findall(text)}
    assert not [path for path in modules if not (path.with_suffix(".py").exists() or path.is_dir())]


def test_the_readme_is_short_and_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 250
    assert {"make demo", "make test"} <= set(re.findall(r"^make \w+", text, re.MULTILINE))


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    assert not [str(page) for page in pages if f"]({page})" not in index]


# routes.yaml

_DERIVED = {
    "max_new_tools_per_turn": "min(2, `max_tools`)",
    "seed_tools": "min(`top_k`, `max_tools`); filter: `max_tools`",
    "on_no_match": "`core` with `core_tools`, else `all`",
    "deadline_ms": "`1000`; rewrite: `12000`",
    "similarity_threshold": "not set",
    "relevance_threshold": "not set",
}


def test_every_key_of_routes_yaml_has_its_row() -> None:
    """Key, type with bounds, and default of the tables in docs/routes.md are the code's."""
    page = (ROOT / "docs" / "routes.md").read_text()
    tables = [table for table in page.split("\n\n") if table.startswith("| key |")]
    rows = {tuple(cells_of(line)[:3]) for table in tables for line in table.strip().splitlines()[2:]}
    wanted = {
        (f"`{prefix}{name}`", type_text(field), default_text(name, field))
        for prefix, model in (("", Route), ("sticky.", StickyConfig), ("ranking.", RankingOptions))
        for name, field in model.model_fields.items()
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel))
    }
    assert rows == wanted


def test_the_profile_is_described_as_it_is() -> None:
    page = (ROOT / "docs" / "routes.md").read_text()
    described = re.search(r"<!-- profile: agentic -->\n```yaml\n(.*?)```", page, re.DOTALL)
    assert described is not None
    assert yaml.safe_load(described[1]) == PROFILES["agentic"]
    assert set(PROFILES) == {"agentic"}


def cells_of(line: str) -> list[str]:
    """The cells of a table's row."""
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def type_text(field: FieldInfo) -> str:
    """A field's type and bounds as the page writes them."""
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
    if "Ge" in bounds:
        return f"number, {bounds['Ge'].ge:g} to {bounds['Le'].le:g}"
    return "number"


def default_text(name: str, field: FieldInfo) -> str:
    """A field's default as the page writes it."""
    default: Any = field.default
    if name in _DERIVED:
        return _DERIVED[name]
    if default is None:
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "`[]`" if default == () else f"`{default}`"


# Examples in languages of their own


def test_policies_on_the_page_fit_the_schema() -> None:
    page = (ROOT / "docs" / "policies.md").read_text()
    examples = re.findall(r"^```cedar\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    files = [PolicyFile(f"{number}.cedar", text) for number, text in enumerate(examples)]
    assert len(files) > 5
    assert validate_policies(files) == []


@pytest.mark.parametrize("page", ["docs/routes.md"])
def test_routes_on_the_page_are_accepted(page: str) -> None:
    examples = re.findall(r"^```yaml\n(routes:\n.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    for text in examples:
        assert not read_routes(SourceFile("routes.yaml", text.encode())).faults


def test_tools_on_the_page_are_accepted() -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    lines = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    found = [item for text in lines for item in read_definitions("tools.md", text.encode().splitlines())]
    assert [item.tool_id for item in found if isinstance(item, Definition)] == ["crm/find_customer"]
    assert len(found) == 1


def test_the_page_of_tools_names_every_key() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "tools.md").read_text(), re.MULTILINE)
    line = b'{"toolset": "a", "name": "b", "input_schema": {"type": "object"}, %s}'
    for key in ("tags", "requires", "annotations", "description"):
        assert not isinstance(next(iter(read_definitions("x", [line % f'"{key}": null'.encode()]))), Fault)
    assert set(rows) == {"toolset", "name", "description", "input_schema", "tags", "annotations", "requires"}
