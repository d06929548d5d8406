"""What docs/compatibility.md promises: additions only, and builds that run side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.api_surface import lines
from tests.support.servers import RedisServer
from tests.support.service import PERMIT_ALL, Service, ids, migrated, tool
from toolbelay.sessions.envelope import decode

ROOT = Path(__file__).parents[2]
RELEASED = ROOT / "tests" / "data" / "api-released.txt"
A, B, C, D = (f"crm/{letter}" for letter in "abcd")


def test_the_released_api_only_grows() -> None:
    gone = set(RELEASED.read_text().splitlines()) - set(lines())
    assert not gone, "removed or changed, which breaks clients: " + "; ".join(sorted(gone))


def test_the_pages_name_tests_that_exist() -> None:
    for page in ("compatibility.md", "failure-modes.md"):
        text = (ROOT / "docs" / page).read_text()
        named = {word.strip("`,.;:()") for word in text.split() if word.strip("`,.;:()").startswith("tests/")}
        assert named
        assert all((ROOT / name).is_file() for name in named), sorted(named)


@pytest.mark.parametrize("first", ["old", "new"])
def test_builds_side_by_side_read_each_others_state(
    first: str, tmp_path: Path, fresh_redis_server: Callable[..., RedisServer]
) -> None:
    """Row 47: a session goes to and fro between two builds; neither drops what the other stored."""
    database, redis = migrated(f"sqlite+aiosqlite:///{tmp_path / 'both.sqlite'}"), fresh_redis_server()
    old = Service(database, redis.url, tmp_path)
    new = Service(database, redis.url, tmp_path, entry="tests.support.newer_build")
    try:
        old.apply([tool(t) for t in (A, B, C, D)], {"all.cedar": PERMIT_ALL}, {"default": {"strategy": "caller"}})
        for service in (old, new):
            service.start(wait=False)
        clients = {"old": old.wait().client(), "new": new.wait().client()}
        turns = [first, *(("new", "old") if first == "old" else ("old", "new")), "new", "old"]
        for number, build in enumerate(turns):
            answer = clients[build].select("s", candidates=[A], called_tools=["abcda"[number]])
            assert ids(answer)[0] == A
            assert answer.receipt.turn == number + 1
        with redis.client() as connection:
            (key,) = connection.scan_iter("tb:*:s:*")
            value = connection.get(key)
        assert isinstance(value, bytes)
        state = decode(value).state
        assert [t.tool_id for t in state.tools if t.pinned] == [A, B, C, D]
        assert state.extra["n"] == turns.count("new")  # each of its saves, kept by the old build's
        assert sum(t.extra == ("later",) for t in state.tools) >= 3
    finally:
        old.close()
        new.close()
