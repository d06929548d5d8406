"""Migrations, on SQLite and PostgreSQL."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from tests.support.storage import PERMIT_ALL, opened, store_on, tool
from toolbelay.storage import migrate
from toolbelay.storage.address import DatabaseAddress
from toolbelay.storage.failure import SchemaNotReadyError
from toolbelay.storage.guard import MigrationError
from toolbelay.storage.models import Base
from toolbelay.storage.port import StorageUnavailableError

TABLES = sorted(Base.metadata.tables)


@contextmanager
def engine_on(url: str) -> Iterator[Engine]:
    engine = create_engine(DatabaseAddress(url).for_migrations)
    try:
        yield engine
    finally:
        engine.dispose()


def shape(url: str) -> dict[str, object]:
    """Everything of the schema that a difference could hide in."""
    with engine_on(url) as engine:
        seen = inspect(engine)
        return {
            table: {
                "columns": [
                    (c["name"], str(c["type"]), getattr(c["type"], "collation", None), c["nullable"], c["default"])
                    for c in seen.get_columns(table)
                ],
                "key": seen.get_pk_constraint(table),
                "foreign": seen.get_foreign_keys(table),
                "unique": sorted(map(str, seen.get_unique_constraints(table))),
                "indexes": sorted(map(str, seen.get_indexes(table))),
            }
            for table in sorted(seen.get_table_names())
            if table != "alembic_version"
        }


def checksums(url: str) -> dict[str, str]:
    with engine_on(url) as engine, engine.connect() as connection:
        return {
            table: hashlib.sha256(
                "\n".join(sorted(str(row) for row in connection.execute(text(f"SELECT * FROM {table}")))).encode()
            ).hexdigest()
            for table in TABLES
        }


def empty_twin(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Another empty database on the same engine."""
    if url.startswith("sqlite"):
        return f"sqlite+aiosqlite:///{tmp_path / 'twin.sqlite'}"
    server = request.getfixturevalue("postgres_server")
    name = server.create_database()
    request.addfinalizer(lambda: server.drop_database(name))  # only on one of two engines
    return str(server.database_url(name)).replace("postgresql://", "postgresql+psycopg://", 1)


def test_there_is_exactly_one_head() -> None:
    assert migrate.head() == max(path.name[:4] for path in (migrate.migrations_folder() / "versions").glob("0*.py"))


def test_every_downgrade_guards_its_rows() -> None:
    for path in (migrate.migrations_folder() / "versions").glob("*.py"):
        downgrade = path.read_text().split("def downgrade()")[1]
        assert "refuse_to_destroy(" in downgrade, path.name


def test_the_migrated_schema_equals_the_models(
    database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    migrate.upgrade(database_url)
    state = migrate.check(database_url)
    assert (state.current, state.problems) == (state.head, ())
    twin = empty_twin(database_url, tmp_path, request)
    with engine_on(twin) as engine:
        Base.metadata.create_all(engine)
    assert shape(database_url) == shape(twin)
    assert sorted(shape(database_url)) == TABLES


def test_a_difference_to_the_models_is_found(database_url: str) -> None:
    migrate.upgrade(database_url)
    with engine_on(database_url) as engine, engine.begin() as connection:
        connection.execute(text("ALTER TABLE tools ADD COLUMN colour TEXT"))
        connection.execute(text("DROP TABLE audit_log"))
    problems = " ".join(migrate.check(database_url).problems)
    assert "colour" in problems
    assert "audit_log" in problems


def test_upgrade_of_an_upgraded_database_changes_nothing(database_url: str) -> None:
    assert migrate.current(database_url) is None
    assert migrate.upgrade(database_url) == migrate.head()
    before = shape(database_url)
    assert migrate.upgrade(database_url) == migrate.head()
    assert shape(database_url) == before
    assert migrate.current(database_url) == migrate.head()


async def test_a_downgrade_of_a_filled_database_is_refused_unless_forced(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 52: loudly, with every row left as it was, whatever other settings say."""
    async with store_on(database_url) as store:
        await store.apply(tools=[tool("a"), tool("b")], policies={"a.cedar": PERMIT_ALL}, routes="routes: {a: {}}")
        await store.apply(tools=[tool("a")], prune=True)
    before = checksums(database_url), shape(database_url)
    monkeypatch.setenv("DATABASE_URL", "sqlite:////nowhere/else")
    monkeypatch.setenv("TOOLBELAY_DATABASE_URL", "sqlite:////nowhere/else")
    for revision in ("-1", "base"):
        with pytest.raises(MigrationError, match=r"would destroy tenants \(1 rows\).*--force"):
            migrate.downgrade(database_url, revision)
        assert (checksums(database_url), shape(database_url)) == before
    migrate.upgrade(database_url)
    assert (checksums(database_url), shape(database_url)) == before
    assert migrate.downgrade(database_url, "base", force=True) is None
    assert shape(database_url) == {}
    migrate.upgrade(database_url)
    assert shape(database_url) == before[1]


def test_an_empty_database_goes_down_and_up_again(database_url: str) -> None:
    migrate.upgrade(database_url)
    before = shape(database_url)
    while migrate.current(database_url) is not None:
        migrate.downgrade(database_url, "-1")
    assert shape(database_url) == {}
    with pytest.raises(MigrationError, match="no schema"):
        migrate.downgrade(database_url, "-1")
    migrate.upgrade(database_url)
    assert shape(database_url) == before


async def test_readiness_is_the_schema_at_head(database_url: str) -> None:
    async with opened(database_url) as store:
        with pytest.raises(SchemaNotReadyError, match="toolbelay db upgrade"):
            await store.reader.ready(timeout=5)
        with pytest.raises(SchemaNotReadyError, match="toolbelay db upgrade"):
            await store.reader.generations(timeout=5)
        migrate.upgrade(database_url)
        await store.reader.ready(timeout=5)
        await store.sql("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(SchemaNotReadyError, match="9999"):
            await store.reader.ready(timeout=5)


@pytest.mark.parametrize("work", [migrate.upgrade, lambda url: migrate.downgrade(url, "base", force=True)])
def test_a_revision_of_a_newer_build_fails_fast(database_url: str, work: object) -> None:
    migrate.upgrade(database_url)
    with engine_on(database_url) as engine, engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = shape(database_url)
    with pytest.raises(MigrationError, match="9999, which this build does not know"):
        work(database_url)  # type: ignore[operator]
    assert shape(database_url) == before
    (problem,) = migrate.check(database_url).problems
    assert "9999" in problem


def test_several_heads_fail_fast(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.migrations_folder(), folder)
    for name in ("x_one", "x_two"):
        revision = (
            f'revision = "{name}"\ndown_revision = "{migrate.head()}"\ndef upgrade(): pass\ndef downgrade(): pass\n'
        )
        (folder / "versions" / f"{name}.py").write_text(revision)
    monkeypatch.setattr(migrate, "migrations_folder", lambda: folder)
    for work in (migrate.upgrade, migrate.check, lambda url: migrate.downgrade(url, "base")):
        with pytest.raises(MigrationError, match=r"several heads \(x_one, x_two\)"):
            work(database_url)
    assert shape(database_url) == {}


def test_a_migration_that_fails_leaves_nothing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.migrations_folder(), folder)
    (folder / "versions" / "x_broken.py").write_text(
        textwrap.dedent(f"""
        from alembic import op
        revision, down_revision = "x_broken", "{migrate.head()}"
        def upgrade():
            op.execute("CREATE TABLE half_done (a INTEGER)")
            op.execute("INSERT INTO nowhere VALUES (1)")
        """)
    )
    monkeypatch.setattr(migrate, "migrations_folder", lambda: folder)
    with pytest.raises(MigrationError, match=r"nowhere.*nothing was changed"):
        migrate.upgrade(database_url)
    assert shape(database_url) == {}
    assert migrate.current(database_url) is None


async def test_a_table_rebuilt_in_batch_mode_keeps_every_row(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 52: SQLite drops and renames the table; nothing that refers to it goes along."""
    async with store_on(database_url) as store:
        await store.apply(tools=[tool("a"), tool("b")], policies={"a.cedar": PERMIT_ALL})
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.migrations_folder(), folder)
    (folder / "versions" / "x_wider.py").write_text(
        textwrap.dedent(f"""
        import sqlalchemy as sa
        from alembic import op
        revision, down_revision = "x_wider", "{migrate.head()}"
        def upgrade():
            with op.batch_alter_table("tenants") as batch:
                batch.add_column(sa.Column("note", sa.Text(), nullable=False, server_default=""))
        def downgrade():
            with op.batch_alter_table("tenants") as batch:
                batch.drop_column("note")
        """)
    )
    before = checksums(database_url), shape(database_url)
    monkeypatch.setattr(migrate, "migrations_folder", lambda: folder)
    migrate.upgrade(database_url)
    assert {k: v for k, v in checksums(database_url).items() if k != "tenants"} == {
        k: v for k, v in before[0].items() if k != "tenants"
    }
    migrate.downgrade(database_url, "-1")
    assert (checksums(database_url), shape(database_url)) == before


# Imports once, then forks: eight imports at once would take most of the test's time.
EIGHT_PROCESSES = """
import os, sys
from toolbelay.storage import migrate
def child(gate):
    os.read(gate, 1)  # until the parent closes it: all go together
    return 0 if migrate.upgrade(sys.argv[1]) == migrate.head() else 1
gate, parent = os.pipe()
children = []
for _ in range(8):
    if (pid := os.fork()) == 0:
        os.close(parent)
        try:
            os._exit(child(gate))
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    children.append(pid)
os.close(parent)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children])
"""


def test_eight_processes_migrate_an_empty_database_at_once(database_url: str) -> None:
    command = [sys.executable, "-W", "error", "-c", EIGHT_PROCESSES, database_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout.strip(), done.stderr) == (str([0] * 8), "")
    if database_url.startswith("sqlite"):
        with engine_on(database_url) as engine, engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    assert migrate.check(database_url).problems == ()


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://root:s3cret@localhost/x",
        "sqlite://",
        "sqlite+aiosqlite:///:memory:",
        "sqlite+aiosqlite:///file::memory:?uri=true",
        "sqlite+aiosqlite:///file:x?mode=memory&uri=true",
        "postgresql+asyncpg://u:s3cret@h/d",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(MigrationError, match="DATABASE_URL") as refused:
        migrate.current(url)
    assert "s3cret" not in str(refused.value)


def test_an_unreachable_database_is_told_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailableError) as failed:
        migrate.current("postgresql+psycopg://user:s3cret@127.0.0.1:1/x?application_name=s3cret")
    assert "s3cret" not in f"{failed.value!r} {failed.value.__cause__} {failed.value.__context__!r:.0}"
    assert "127.0.0.1" in str(failed.value)
    with pytest.raises(StorageUnavailableError, match="sqlite"):
        migrate.current(f"sqlite:///{tmp_path}/missing/folder/file.sqlite")
