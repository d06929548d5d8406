"""The pages agree with the code: links, settings, commands, make targets, and the keys of routes.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.support import routes_page
from toolbelay.application.apply_bundle import SourceFile
from toolbelay.application.apply_routes import read_routes
from toolbelay.authority.policy import validate_policies
from toolbelay.catalog.definitions import Definition, Fault, read_definitions
from toolbelay.catalog.routes import parse_route
from toolbelay.cli import exits
from toolbelay.cli.main import cli
from toolbelay.settings import CLIENT_VARIABLES, VARIABLES, InvalidSettingsError, load
from toolbelay.settings_check import require_serving
from toolbelay.storage.port import PolicyFile
from toolbelay.telemetry.metrics import Metrics

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
    assert len(text.splitlines()) <= 275
    assert {"make demo", "make test"} <= set(re.findall(r"^make \w+", text, re.MULTILINE))


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"]
    assert not [str(page) for page in pages if f"]({page})" not in index]


def test_the_page_of_routes_says_what_the_code_says() -> None:
    page = routes_page.PAGE.read_text()
    assert routes_page.rewritten(page) == page, "run `python -m tests.support.routes_page`"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("max_new_tools_per_turn", {"sticky": {"max_tools": 1}}),
        ("seed_tools", {"top_k": 3}),
        ("on_no_match", {"core_tools": ["a/b"]}),
        ("deadline_ms", {"strategy": "rewrite"}),
    ],
)
def test_defaults_that_depend_on_other_keys(key: str, text: dict[str, Any]) -> None:
    """The page words these by hand; here is what it says."""
    route, faults, _ = parse_route("r", text)
    assert route is not None, faults
    found = {**route.model_dump(), **route.sticky.model_dump()}[key]
    assert found == {"max_new_tools_per_turn": 1, "seed_tools": 3, "on_no_match": "core", "deadline_ms": 12_000}[key]


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


# The operator's handbook


def test_the_handbook_names_every_metric_alert_and_exit_code() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    families = Metrics().registry.collect()
    named = {f"{family.name.removeprefix('toolbelay_')}{'_total' * (family.type == 'counter')}" for family in families}
    assert not [name for name in sorted(named) if f"`{name}`" not in page]
    alerts = re.findall(r"alert: (\w+)", (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    assert not [alert for alert in alerts if f"| `{alert}` |" not in page]
    codes = [value for value in vars(exits).values() if isinstance(value, int)]
    assert not [code for code in codes if f"\n| {code} |" not in page]


def test_the_settings_of_a_replica_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    (block,) = re.findall(r"^```sh\n(export .*?)^```", page, re.MULTILINE | re.DOTALL)
    given = dict(re.findall(r"(TOOLBELAY_\w+)=(\S+)", block))
    monkeypatch.setattr("toolbelay.settings_check._readable", lambda *_: iter(()))  # the page's files are not here
    require_serving(load(given))
    for name in set(given) - {"TOOLBELAY_TLS_KEY", "TOOLBELAY_DATABASE_URL", "TOOLBELAY_REDIS_URL", "TOOLBELAY_LISTEN"}:
        with pytest.raises(InvalidSettingsError):
            require_serving(load({key: value for key, value in given.items() if key != name}))
