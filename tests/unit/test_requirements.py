"""The pinned requirements install the same anywhere: hashes for each file, no index named, one version of a package."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("requirements.txt", "requirements-build.txt", "requirements-dev.txt")
PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[^ ;]+)(?P<marker> ; [^\\]+)? \\$", re.MULTILINE)
# What belongs into a file: a pin, its hashes, nothing else; so no option, no URL and no comment with one.
LINE = re.compile(r"^(?:[a-z0-9][a-z0-9.-]*==[^ ;]+(?: ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}(?: \\)?)$")


@pytest.mark.parametrize("name", FILES)
def test_only_pins_and_hashes(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert lines
    assert [line for line in lines if not LINE.match(line)] == []


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-build.txt"])
def test_developers_test_what_users_run(name: str) -> None:
    developed = _pins("requirements-dev.txt")
    assert {pin for pin in _pins(name) if pin not in developed} == set()


def test_what_the_service_imports_is_pinned_for_users() -> None:
    pinned = {name.replace("_", "-") for name, _ in _pins("requirements.txt")}
    providers = importlib.metadata.packages_distributions()
    # The hook of the LiteLLM proxy runs inside the proxy's own installation, which has fastapi too.
    # A PNG of a replay asks for matplotlib where it is missing.
    known = sys.stdlib_module_names | {"toolbelay", "litellm", "fastapi", "matplotlib"}
    missing = [
        module
        for module in sorted(_imported(ROOT / "service") - known)
        if not {re.sub(r"[-_.]+", "-", name).lower() for name in providers.get(module, ())} & pinned
    ]
    assert missing == []


def _imported(directory: Path) -> set[str]:
    """The top-level modules that the code below `directory` imports."""
    modules: set[str] = set()
    for path in directory.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    return modules


def _pins(name: str) -> set[tuple[str, str]]:
    return {(match["name"], match["version"]) for match in PIN.finditer((ROOT / name).read_text())}
