"""`toolbelay import mcp` against real servers from npm, then a real apply. Skips, with the reason, without npm."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import toolbelay
from toolbelay.application.apply_tools import read_tools
from toolbelay.application.config_source import read_config

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PACKAGES = ("@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/server-filesystem@2026.8.31")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the servers' programs."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node.js and npm are not installed")
    prefix = tmp_path_factory.mktemp("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(prefix), *PACKAGES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    except subprocess.TimeoutExpired:
        pytest.skip("npm install took more than 90 s")
    if done.returncode:
        pytest.skip(f"npm cannot install the servers: {done.stderr.strip().splitlines()[-1:]}")
    return prefix / "node_modules" / ".bin"


def test_the_reference_servers(programs: Path, tmp_path: Path) -> None:
    everything = ("--", str(programs / "mcp-server-everything"), "stdio")
    filesystem = ("--", str(programs / "mcp-server-filesystem"), str(tmp_path))
    for toolset, command in (("everything", everything), ("files", filesystem)):
        done = toolbelay("import", "mcp", "--toolset", toolset, *command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        again = toolbelay("import", "mcp", "--toolset", toolset, "--json", *command, cwd=tmp_path)
        told = json.loads(again.stdout)
        assert (again.returncode, told["added"], told["held"], told["removed"]) == (0, [], [], [])
        assert told["unchanged"] >= 10
    bundle = read_config(tmp_path)
    assert bundle.tools is not None
    found = read_tools(bundle.tools)
    assert found.faults == []
    assert found.tools["files/read_text_file"].hints.read_only
    assert found.tools["files/write_file"].hints.destructive
    assert "everything/echo" in found.tools
