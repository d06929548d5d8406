"""From two MCP servers to the names that a model sees: bug reports 5, 6, 68 and 71."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import served
from tests.support.service import PERMIT_ALL, Service, apply_config, in_thread
from toolbelay.application.config_source import read_config
from toolbelay.cli.exits import OK
from toolbelay.cli.main import run

pytestmark = pytest.mark.e2e

STUB = Path(__file__).parents[1] / "support" / "mcp_stub.py"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path) as made:
        yield made


def listed(folder: Path, toolset: str, *names: str) -> int:
    schema = {"type": "object", "properties": {"q": {"type": "string", "description": toolset}}}
    tools = json.dumps([{"name": name, "description": f"{name} of {toolset}", "inputSchema": schema} for name in names])
    script = folder / f"{toolset}.json"
    script.write_text(json.dumps({"first": {"tools": tools}}))
    options = ("--dir", str(folder / "config"), "--toolset", toolset)
    return run(["import", "mcp", *options, "--accept-changes", "--", sys.executable, str(STUB), str(script)])


def applied(service: Service, folder: Path) -> None:
    in_thread(apply_config(service.environment, "acme", read_config(folder / "config"), prune=True))


def test_two_servers_with_one_name(service: Service, tmp_path: Path) -> None:
    config = tmp_path / "config"
    (config / "policies").mkdir(parents=True)
    (config / "policies" / "all.cedar").write_text(PERMIT_ALL)
    (config / "routes.yaml").write_text(
        "routes: {default: {strategy: static, seed_tools: 16, sticky: {max_tools: 32}}}"
    )
    long = "n" * 130
    assert listed(tmp_path, "a", "search", "calendar.read", "user-profile/update", "Create CIFS Share", long) == OK
    applied(service, tmp_path)
    client = service.start().client()
    first = {tool.tool_id: tool.name for tool in client.select("s").tools}
    assert len(first) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in first.values())
    assert first["a/search"] == "search"

    assert listed(tmp_path, "b", "search") == OK
    applied(service, tmp_path)
    both = {tool.tool_id: tool.name for tool in client.select("t").tools}
    assert {tool_id: both[tool_id] for tool_id in first} == first  # the newcomer changes nobody's name
    assert both["b/search"] == "b_search"
    assert [one.tool_id for one in client.authorize("t", [first["a/calendar.read"]]).decisions] == ["a/calendar.read"]

    # The server lost a tool, changed none, has a new one; then all of it goes.
    assert listed(tmp_path, "a", "search", "fresh") == OK
    applied(service, tmp_path)
    left = [tool.tool_id for tool in client.select("s").tools]
    assert left[0] == "a/search"
    assert "a/calendar.read" not in left
    (config / "tools" / "a.jsonl").unlink()
    applied(service, tmp_path)
    assert {tool.tool_id: tool.name for tool in client.select("t").tools} == {"b/search": "b_search"}
    assert client.authorize("t", ["search"]).decisions[0].tool_id == ""
