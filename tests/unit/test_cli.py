"""The command line without a service: help, usage, one-line errors, exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.command import clean_environment
from tests.support.command import in_process as toolbelay
from toolbelay.application.apply_bundle import ConfigRefusedError
from toolbelay.catalog.definitions import Fault
from toolbelay.cli import dev_state
from toolbelay.cli.exits import FAILED, REFUSED, UNAVAILABLE, UNCONFIRMED, CommandError
from toolbelay.cli.main import COMMANDS, as_command_error, cli
from toolbelay.cli.servers import redis_failure
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.sessions.port import StateUnavailableError
from toolbelay.settings import InvalidSettingsError, load
from toolbelay.storage.port import StorageUnavailableError


def test_help_names_every_command_and_imports_none() -> None:
    program = (
        "import sys; from toolbelay.cli.main import cli\n"
        "try: cli.main(['--help'], prog_name='toolbelay')\n"
        "except SystemExit: pass\n"
        "slow = {'grpc', 'sqlalchemy', 'redis', 'numpy', 'rich', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert "Exit codes" in done.stdout


def test_every_command_and_subcommand_has_help() -> None:
    runner = CliRunner()
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        paths = [[name]]
        if isinstance(command, click.Group):
            paths += [[name, inner] for inner in command.list_commands(context)]
        for path in paths:
            result = runner.invoke(cli, [*path, "--help"])
            assert result.exit_code == 0, path
            assert "Usage:" in result.output


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["serve", "--nonsense"], ["token", "mint"], ["apply"], ["serve", "--workers", "0"], ["apply", "no"]],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    assert toolbelay(*arguments, cwd=tmp_path).returncode == 2


def test_missing_settings_are_one_line_each(tmp_path: Path) -> None:
    done = toolbelay("serve", cwd=tmp_path)
    assert done.returncode == REFUSED
    lines = done.stderr.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("toolbelay: TOOLBELAY_") for line in lines)


def test_an_unknown_setting_is_refused_by_every_command(tmp_path: Path) -> None:
    for command in (["db", "current"], ["token", "mint", "--sub", "a"], ["config", "check"], ["serve", "--dev"]):
        done = toolbelay(*command, cwd=tmp_path, environment={"TOOLBELAY_REDS_URL": "redis://x"})
        assert done.returncode == REFUSED, command
        assert "TOOLBELAY_REDS_URL: no such setting; did you mean TOOLBELAY_REDIS_URL?" in done.stderr
    assert not (tmp_path / ".toolbelay").exists()


def test_dev_is_loopback_only(tmp_path: Path) -> None:
    done = toolbelay("serve", "--dev", "--listen", "0.0.0.0:0", cwd=tmp_path)
    assert done.returncode == REFUSED
    done = toolbelay(
        "serve", "--dev", "--listen", "0.0.0.0:0", cwd=tmp_path, environment={"TOOLBELAY_ALLOW_PLAINTEXT": "true"}
    )
    assert done.returncode != 0
    assert "loopback" in done.stderr


def test_no_service_is_exit_code_4_with_the_remedy(tmp_path: Path) -> None:
    done = toolbelay("select", "x", "--address", "127.0.0.1:1", cwd=tmp_path, environment={"TOOLBELAY_TOKEN": "a.b.c"})
    assert done.returncode == UNAVAILABLE
    assert "toolbelay serve --dev" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert toolbelay("health", "--address", "127.0.0.1:1", cwd=tmp_path).returncode == UNAVAILABLE


def test_without_token_and_dev_state_the_remedy_is_told(tmp_path: Path) -> None:
    done = toolbelay("session", "show", "s", cwd=tmp_path)
    assert done.returncode == REFUSED
    assert "TOOLBELAY_TOKEN" in done.stderr


def test_tokens_are_minted_with_the_shared_secret(tmp_path: Path) -> None:
    import jwt

    secret = "0123456789abcdef0123456789abcdef"
    done = toolbelay(
        *("token", "mint", "--sub", "alice", "--tenant", "acme", "--role", "a", "--role", "b", "--scope", "x y"),
        *("--session", "s1", "--ttl", "60"),
        cwd=tmp_path,
        environment={
            "TOOLBELAY_JWT_ISSUER": "i",
            "TOOLBELAY_JWT_AUDIENCE": '["first","second"]',
            "TOOLBELAY_JWT_HS256_SECRET": secret,
            "TOOLBELAY_CLAIM_TENANT": "org",
        },
    )
    assert done.returncode == 0, done.stderr
    claims = jwt.decode(done.stdout.strip(), secret, ["HS256"], audience="first", issuer="i")
    assert (claims["sub"], claims["org"], claims["roles"], claims["scope"]) == ("alice", "acme", ["a", "b"], "x y")
    assert claims["toolbelay_session"] == "s1"
    assert claims["exp"] - claims["iat"] == 60


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (InvalidSettingsError(["A: b"]), REFUSED, "A: b"),
        (ConfigRefusedError([Fault("tools/a.jsonl:3", "a/b", "bad")]), REFUSED, "tools/a.jsonl:3: a/b: bad"),
        (ToolbelayError(ErrorReason.GENERATION_CONFLICT, "not at 3"), REFUSED, "not at 3"),
        (ToolbelayError(ErrorReason.PROPAGATION_UNCONFIRMED, "committed"), UNCONFIRMED, "committed"),
        (ToolbelayError(ErrorReason.AUTHORITY_UNVERIFIABLE, "sql"), UNAVAILABLE, "sql"),
        (StorageUnavailableError("refused"), UNAVAILABLE, "TOOLBELAY_DATABASE_URL"),
        (StateUnavailableError("timeout"), UNAVAILABLE, "TOOLBELAY_REDIS_URL"),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied"),
        (KeyError("hunter2"), 1, "unexpected KeyError"),
    ],
)
def test_failures_are_lines_and_exit_codes(error: Exception, code: int, says: str) -> None:
    told = as_command_error(error)
    assert told.exit_code == code
    assert any(says in line for line in told.lines)
    assert "hunter2" not in "".join(told.lines)


def test_lines_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    CommandError("one\ntwo", "three").show()
    assert capsys.readouterr().err == "toolbelay: one two\ntoolbelay: three\n"


def test_dev_state_is_used_only_when_nothing_names_a_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = dev_state.here()
    environment = dev_state.prepare(state, {})
    assert not dev_state.using_dev_state({})
    dev_state.publish(state, environment)
    assert dev_state.using_dev_state({})
    assert dev_state.using_dev_state({"TOOLBELAY_LOG_LEVEL": "debug"})
    assert not dev_state.using_dev_state({"TOOLBELAY_DATABASE_URL": "sqlite+aiosqlite:///x"})
    merged = dev_state.settings_of({"TOOLBELAY_LOG_LEVEL": "debug"})
    assert merged.jwt_issuer == dev_state.ISSUER
    assert merged.log_level == "debug"


def test_dev_state_is_private_and_lasts(tmp_path: Path) -> None:
    state = dev_state.DevState(tmp_path / ".toolbelay")
    first = dev_state.prepare(state, {})
    dev_state.publish(state, first)
    key = state.signing_key.read_bytes()
    second = dev_state.prepare(state, {"TOOLBELAY_LISTEN": "127.0.0.1:7"})
    assert second["TOOLBELAY_STATE_SECRET"] == first["TOOLBELAY_STATE_SECRET"]
    assert second["TOOLBELAY_LISTEN"] == "127.0.0.1:7"
    assert state.signing_key.read_bytes() == key
    assert state.folder.stat().st_mode & 0o777 == 0o700
    for path in (state.environment_file, state.signing_key, state.jwks):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_dev_state_is_told_of(tmp_path: Path) -> None:
    (tmp_path / ".toolbelay").mkdir()
    (tmp_path / ".toolbelay" / "environment.json").write_text("[")
    done = toolbelay("db", "current", cwd=tmp_path)
    assert done.returncode == 1
    assert "serve --dev" in done.stderr


def test_a_path_too_long_for_a_socket_is_gone_round(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90) / ".toolbelay"
    path = dev_state.socket_path(dev_state.DevState(deep))
    assert len(str(path)) < 100
    path.parent.rmdir()


def test_config_check_offline(tmp_path: Path) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    good = {
        "TOOLBELAY_STATE_SECRET": secret,
        "TOOLBELAY_JWT_ISSUER": "i",
        "TOOLBELAY_JWT_AUDIENCE": "a",
        "TOOLBELAY_JWT_HS256_SECRET": secret,
        "TOOLBELAY_DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path}/none.db",
        "TOOLBELAY_REDIS_URL": "redis://127.0.0.1:1",
    }
    assert toolbelay("config", "check", "--offline", cwd=tmp_path, environment=good).returncode == 0
    done = toolbelay("config", "check", "--json", cwd=tmp_path, environment=good)
    assert done.returncode == UNAVAILABLE
    assert '"settings": "ok"' in done.stdout
    assert '"keys": "ok"' in done.stdout
    assert "none.db: there is no such file; make it with `toolbelay db upgrade`" in done.stdout
    assert not (tmp_path / "none.db").exists()
    assert "Redis at 127.0.0.1:1 could not be reached (connection)" in done.stdout
    done = toolbelay("config", "check", cwd=tmp_path, environment=good | {"TOOLBELAY_STATE_SECRET": "x"})
    assert done.returncode == REFUSED


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("apply config", UNAVAILABLE),
        ("db resync --yes", UNAVAILABLE),
        ("db downgrade -1", UNAVAILABLE),
        ("db check", FAILED),
    ],
)
def test_a_missing_database_file_is_told_of_and_not_made(tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "config" / "policies").mkdir(parents=True)
    done = toolbelay(*command.split(), cwd=tmp_path)
    assert done.returncode == code
    told = "sqlite+aiosqlite:///toolbelay.db: there is no such file; make it with `toolbelay db upgrade`"
    assert told in done.stderr
    assert "TOOLBELAY_DATABASE_URL" in done.stderr
    assert "no schema yet; run `toolbelay db upgrade`" in toolbelay("db", "current", cwd=tmp_path).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


def test_apply_says_which_database_it_used(tmp_path: Path) -> None:
    (tmp_path / "config" / "policies").mkdir(parents=True)
    (tmp_path / "empty.db").touch()
    given = {"TOOLBELAY_DATABASE_URL": "sqlite+aiosqlite:///empty.db"}
    done = toolbelay("apply", "config", cwd=tmp_path, environment=given)
    assert done.returncode == UNAVAILABLE
    assert "sqlite+aiosqlite:///empty.db: the database has no schema yet; run `toolbelay db upgrade`" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config", "empty.db"]
    given = {"TOOLBELAY_DATABASE_URL": "postgresql+psycopg://ann:hunter2@127.0.0.1:1/tools?application_name=hunter3"}
    done = toolbelay("apply", "config", cwd=tmp_path, environment=given)
    assert done.returncode == UNAVAILABLE
    assert "postgresql+psycopg://ann:***@127.0.0.1:1/tools: " in done.stderr
    assert "hunter" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "cause", "told"),
    [
        ("redis://ann:hunter2@r.internal", "timeout", "Redis at r.internal:6379 could not be reached (timeout)"),
        ("rediss://:hunter2@[::1]:7/1", "noperm", "Redis at [::1]:7 answers, but cannot be used (noperm)"),
        ("unix:///run/valkey.sock?password=hunter2", "connection", "Redis at /run/valkey.sock could not"),
        ("redis+cluster://ann:hunter2@a,b:7", "connection", "Redis at a:6379, b:7 (cluster) could not"),
        ("redis+sentinel://ann:hunter2@a/main", "connection", "Redis at a:26379 (sentinel) could not"),
    ],
)
def test_which_redis_failed_is_told_without_its_password(url: str, cause: str, told: str) -> None:
    failure = redis_failure(load({"TOOLBELAY_REDIS_URL": url}), StateUnavailableError(cause))
    assert failure.startswith(told)
    assert "hunter2" not in failure


def test_the_environment_of_tests_has_no_settings() -> None:
    assert not [name for name in clean_environment() if name.startswith("TOOLBELAY_")]
