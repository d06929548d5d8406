"""Loads by difference end where a whole load ends, whatever was applied in between."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.storage import Store, opened, tool
from toolbelay.catalog.model import Tool
from toolbelay.storage import migrate, reader, write_rows
from toolbelay.storage.port import TenantRows

NAMES = "abcdefg"
APPLIES = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2)),  # description by name
        st.booleans(),  # prune
        st.sampled_from(["apply"] * 6 + ["end_sessions", "resync"]),
    ),
    min_size=1,
    max_size=8,
)


class Replica:
    """Follows a tenant by difference, as a worker does; `skips`: it loads only after every nth change."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.generation = 0
        self.tools: dict[str, Tool] = {}
        self.retired: dict[str, str] = {}  # exposed name by tool id

    async def follow(self, store: Store, step: int) -> None:
        if step % self.every == 0:
            rows = await store.reader.load("acme", since=self.generation, timeout=10)
            if rows is not None:
                self.take(rows)

    def take(self, rows: TenantRows) -> None:
        assert rows.since in {0, self.generation}
        assert rows.generation >= self.generation
        if rows.since == 0:
            self.tools, self.retired = {}, {}
        assert not {found.tool_id for found in rows.tools} & set(rows.removed)
        for tool_id in rows.removed:
            self.tools.pop(tool_id, None)
        assert rows.since == 0 or set(rows.retired) == set(rows.removed)
        self.retired |= rows.retired
        for found in rows.tools:
            self.tools[found.tool_id] = found
            self.retired.pop(found.tool_id, None)
        self.generation = rows.generation


async def play(url: str, applies: list[tuple[dict[str, int], bool, str]]) -> None:
    async with opened(url) as store:
        replicas = [Replica(1), Replica(2), Replica(3)]
        names: dict[str, str] = {}
        expected: dict[str, int] = {}
        for step, (wanted, prune, kind) in enumerate(applies, start=1):
            if kind == "end_sessions":
                await store.writer.end_sessions("acme", who="tests", timeout=10)
            elif kind == "resync":
                await store.writer.resync({"acme": step}, who="tests", timeout=10)
            else:
                lines = [tool(name, description=f"number {number}") for name, number in wanted.items()]
                await store.apply(tools=lines, prune=prune)
                expected = dict(wanted) if prune else expected | wanted
            for replica in replicas:
                await replica.follow(store, step)
        for replica in replicas:
            await replica.follow(store, 0)
            assert {found.name: found.description.decode() for found in replica.tools.values()} == {
                name: f'"number {number}"' for name, number in expected.items()
            }
            for tool_id, found in replica.tools.items():
                assert names.setdefault(tool_id, found.exposed_name) == found.exposed_name
            assert not replica.retired.keys() & replica.tools.keys()
            assert replica.retired == replicas[0].retired
            assert replica.tools == replicas[0].tools


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file to copy."""
    path = tmp_path_factory.mktemp("template") / "toolbelay.sqlite"
    migrate.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PAGE", 3)


# The fixtures hold for every example: a page size and a file to copy.
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(applies=APPLIES, tombstones=st.sampled_from([1, 3]))
def test_differences_add_up_to_a_whole_load(
    migrated: Path, applies: list[tuple[dict[str, int], bool, str]], tombstones: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_rows, "MAX_TOMBSTONES", tombstones)
        shutil.copy(migrated, Path(folder) / "toolbelay.sqlite")
        asyncio.run(play(f"sqlite+aiosqlite:///{Path(folder) / 'toolbelay.sqlite'}", applies))


@pytest.mark.parametrize("tombstones", [1, 3])
async def test_differences_add_up_on_both_databases(
    database_url: str, tombstones: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_rows, "MAX_TOMBSTONES", tombstones)
    migrate.upgrade(database_url)
    await play(
        database_url,
        [
            ({"a": 1, "b": 1, "c": 1, "d": 0, "e": 0}, False, "apply"),
            ({"a": 2}, True, "apply"),
            ({"b": 1, "g": 0}, False, "apply"),
            ({"a": 2, "b": 1}, True, "apply"),
            ({"g": 1}, False, "apply"),
            ({}, False, "end_sessions"),
            ({"f": 1}, False, "apply"),
            ({"g": 1}, True, "apply"),
            ({}, False, "resync"),
            ({"b": 2, "c": 2, "d": 2, "e": 2}, False, "apply"),
            ({}, True, "apply"),
            ({"b": 2}, True, "apply"),
        ],
    )
