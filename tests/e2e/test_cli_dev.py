"""`toolbelay serve --dev` in one terminal, every other command in another, no environment variable anywhere."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command import Serving, in_process, printed_json, serving, toolbelay
from tests.support.service import free_port
from tests.support.waiting import wait_until
from toolbelay.cli import dev_state

pytestmark = pytest.mark.e2e

POLICY = """
permit (principal in Role::"support", action, resource in Toolset::"crm");
@id("readers") permit (principal, action == Action::"advertise", resource) when { resource.readOnly };
"""
ROUTES = "routes: {default: {strategy: keyword}, ranked: {strategy: caller}}"


def line(tool_id: str, description: str, **more: Any) -> str:
    toolset, _, name = tool_id.partition("/")
    schema = {"type": "object", "properties": {}}
    return json.dumps({"toolset": toolset, "name": name, "description": description, "input_schema": schema, **more})


def write_config(folder: Path, *lines: str, policy: str = POLICY) -> Path:
    """A folder for `toolbelay apply`."""
    for name in ("tools", "policies"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "tools" / "crm.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "policies" / "support.cedar").write_text(policy)
    (folder / "routes.yaml").write_text(ROUTES)
    return folder


LINES = [
    line("crm/find_invoice", "Find open invoices of a customer"),
    line("crm/pay_invoice", "Pay an invoice"),
    line("crm/close_account", "Close an account"),
    line("crm/find_customer", "Find a customer by name", annotations={"readOnlyHint": True}),
    line("hr/fire", "Dismiss somebody"),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    environment = {"TOOLBELAY_METRICS_LISTEN": f"127.0.0.1:{free_port()}", "TOOLBELAY_LOG_LEVEL": "debug"}
    folder = tmp_path_factory.mktemp("dev")
    with serving("--dev", "--listen", "127.0.0.1:0", cwd=folder, environment=environment) as found:
        write_config(found.cwd / "config", *LINES)
        done = toolbelay("apply", "config", cwd=found.cwd)
        assert done.returncode == 0, done.stderr
        assert "5 tools added" in done.stdout
        assert "generation 1" in done.stdout
        yield found


def select(service: Serving, text: str, *arguments: str) -> Any:
    return printed_json("select", text, "--role", "support", *arguments, cwd=service.cwd)


def test_how_to_go_on_is_said(service: Serving) -> None:
    assert "toolbelay apply DIR" in service.said
    assert "toolbelay select" in service.said


def test_health(service: Serving) -> None:
    assert toolbelay("health", cwd=service.cwd).stdout == "ready\n"
    assert toolbelay("health", "--live", cwd=service.cwd).stdout == "live\n"


def test_select_keeps_a_session(service: Serving) -> None:
    first = select(service, "find open invoices", "--session", "keeps")
    assert first["receipt"]["outcome"] == "SEEDED"
    assert first["tools"][0]["tool_id"] == "crm/find_invoice"
    assert first["tools"][0]["definition"]["function"]["name"] == "find_invoice"
    second = select(service, "pay it", "--session", "keeps", "--called", "find_invoice")
    assert second["tools"][0]["pinned"]
    assert second["receipt"]["turn"] == 2
    names = [tool["tool_id"] for tool in second["tools"]]
    assert names[: len(first["tools"])] == [tool["tool_id"] for tool in first["tools"]]
    assert not any(name.startswith("hr/") for name in names)

    shown = printed_json("session", "show", "keeps", cwd=service.cwd)
    assert [tool["tool_id"] for tool in shown["tools"]] == names
    assert shown["tools"][0] == {
        "tool_id": "crm/find_invoice", "pinned": True, "first_seen_turn": 1, "last_called_turn": 2
    }  # fmt: skip
    assert in_process("session", "end", "keeps", cwd=service.cwd).returncode == 0
    assert "no session" in in_process("session", "show", "keeps", cwd=service.cwd).stdout


def test_select_for_a_person(service: Serving) -> None:
    done = in_process("select", "find a customer", "--format", "anthropic", cwd=service.cwd)
    assert done.returncode == 0, done.stderr
    assert "crm/find_customer" in done.stdout
    assert "crm/find_invoice" not in done.stdout  # without the role only what reads
    assert "STATELESS (NO_SESSION)" in done.stdout
    assert "tokens of" in done.stdout
    assert "\x1b" not in done.stdout  # no colours in a pipe


def test_select_with_candidates_on_another_route(service: Serving) -> None:
    answer = select(service, "", "--route", "ranked", "--candidate", "crm/pay_invoice=2", "--candidate", "crm/none=3")
    assert [tool["tool_id"] for tool in answer["tools"]] == ["crm/pay_invoice"]
    assert answer["receipt"]["candidates_ignored"] == 1


def test_no_content_identity_or_token_in_logs_and_metrics(service: Serving) -> None:
    minted = in_process(
        *("token", "mint", "--sub", "subject-zzyzx", "--role", "support", "--session", "session-zzyzx"),
        cwd=service.cwd,
    ).stdout.strip()
    (service.cwd / "good").write_text(minted)
    (service.cwd / "bad").write_text(minted[:-8] + "AAAAAAAA")
    words = ("select", "query zzyzx invoices", "--session", "session-zzyzx", "--called", "called-zzyzx")
    assert in_process(*words, "--token-file", "good", cwd=service.cwd).returncode == 0
    refused = in_process(*words, "--token-file", "bad", cwd=service.cwd)
    mismatched = in_process("session", "show", "other", "--token-file", "good", cwd=service.cwd)
    assert refused.returncode == mismatched.returncode == 3

    address = json.loads((service.cwd / ".toolbelay" / "environment.json").read_text())["TOOLBELAY_METRICS_LISTEN"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    assert 'toolbelay_turns_total{outcome="SEEDED",reason="none"}' in metrics
    assert 'toolbelay_tokens_refused_total{reason="TOKEN_INVALID"}' in metrics
    assert "token_refused" in service.said
    everywhere = service.said + metrics + refused.stderr + mismatched.stderr
    assert "zzyzx" not in everywhere
    assert not any(part in everywhere for part in minted.split("."))


def test_refusals_say_why(service: Serving) -> None:
    done = in_process("select", "x", "--route", "nowhere", cwd=service.cwd)
    assert done.returncode == 3
    assert done.stderr.startswith("toolbelay: ROUTE_NOT_FOUND")
    (service.cwd / "token").write_text("not.a.token")
    done = in_process("select", "x", "--token-file", "token", cwd=service.cwd)
    assert done.returncode == 3
    assert "token mint" in done.stderr


def test_explain_names_the_deciding_policy(service: Serving) -> None:
    allowed = printed_json("explain", "crm/find_customer", "--sub", "bob", cwd=service.cwd)
    assert allowed["advertise"]["allowed"]
    assert allowed["advertise"]["policies"] == ["support.cedar#readers"]
    assert not allowed["call"]["allowed"]
    done = in_process("explain", "hr/fire", "--sub", "bob", "--role", "support", cwd=service.cwd)
    assert done.stdout.count("denied") == 2
    assert "no policy permits it" in done.stdout
    done = in_process("explain", "hr/hire", "--sub", "bob", cwd=service.cwd)
    assert "not in the catalog" in done.stdout


def test_config_check_finds_all_well(service: Serving) -> None:
    found = printed_json("config", "check", cwd=service.cwd)
    assert found == {"settings": "ok", "database": "ok", "redis": "ok", "keys": "ok"}
    assert in_process("db", "check", cwd=service.cwd).returncode == 0


def test_a_second_service_in_the_folder_is_refused(service: Serving) -> None:
    done = toolbelay("serve", "--dev", cwd=service.cwd)
    assert done.returncode == 1
    assert "another `toolbelay serve --dev`" in done.stderr


def test_a_used_port_is_refused_with_the_remedy(service: Serving, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = toolbelay("serve", "--dev", "--listen", f"127.0.0.1:{other.getsockname()[1]}", cwd=tmp_path)
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_apply_refuses_with_all_faults_and_changes_nothing(service: Serving, tmp_path: Path) -> None:
    bad = write_config(tmp_path / "bad", LINES[0], '{"toolset": 1}', "nonsense")
    policy = write_config(tmp_path / "policy", LINES[0], policy="permit (nonsense);")
    before = printed_json("apply", "config", cwd=service.cwd)
    done = in_process("apply", str(bad), cwd=service.cwd)
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert any(line.startswith("toolbelay: tools/crm.jsonl:2") for line in lines)
    assert any(line.startswith("toolbelay: tools/crm.jsonl:3") for line in lines)
    done = in_process("apply", str(policy), cwd=service.cwd)
    assert done.returncode == 3
    assert "support.cedar" in done.stderr
    assert printed_json("apply", "config", cwd=service.cwd) == before
    assert not before["changed"]


def test_a_large_prune_asks(service: Serving, tmp_path: Path) -> None:
    tenant = ("--tenant", "pruned")
    write_config(tmp_path / "all", *LINES)
    few = write_config(tmp_path / "few", *LINES[:2])
    assert in_process("apply", str(tmp_path / "all"), *tenant, cwd=service.cwd).returncode == 0
    done = in_process("apply", str(few), "--prune", *tenant, cwd=service.cwd)
    assert done.returncode == 2
    assert "removes 3 of 5 tools; give --yes" in done.stderr
    dry = printed_json("apply", str(few), "--prune", "--dry-run", *tenant, cwd=service.cwd)
    assert dry["generation"] == 1
    assert {change["action"] for change in dry["changes"]} == {"removed"}
    pruned = printed_json("apply", str(few), "--prune", "--yes", *tenant, cwd=service.cwd)
    assert pruned["generation"] == 2
    stale = in_process("apply", str(few), "--expect", "1", *tenant, cwd=service.cwd)
    assert stale.returncode == 3
    assert "generation" in stale.stderr


def test_a_prune_of_every_policy_asks(service: Serving, tmp_path: Path) -> None:
    tenant = ("--tenant", "emptied")
    folder = write_config(tmp_path / "all", *LINES)
    assert in_process("apply", str(folder), *tenant, cwd=service.cwd).returncode == 0
    for policy in (folder / "policies").iterdir():
        policy.unlink()
    done = in_process("apply", str(folder), "--prune", *tenant, cwd=service.cwd)
    assert done.returncode == 2
    assert "removes every policy, after which nobody may use any tool; give --yes" in done.stderr
    pruned = printed_json("apply", str(folder), "--prune", "--yes", *tenant, cwd=service.cwd)
    assert [(change["kind"], change["action"]) for change in pruned["changes"]] == [("policy", "removed")]


def test_resync_raises_every_generation(service: Serving) -> None:
    before = printed_json("apply", "config", cwd=service.cwd)["generation"]
    found = printed_json("db", "resync", "--yes", cwd=service.cwd)
    assert found["generations"]["default"] == before + 1
    assert select(service, "invoices")["receipt"]["generation"] == before + 1


def test_a_change_that_redis_does_not_confirm_has_its_own_exit_code(tmp_path: Path) -> None:
    settings = {
        "TOOLBELAY_DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path}/x.db",
        "TOOLBELAY_REDIS_URL": "redis://ann:hunter2@127.0.0.1:1/0",
    }
    assert in_process("db", "upgrade", cwd=tmp_path, environment=settings).returncode == 0
    config = write_config(tmp_path / "config", *LINES)
    done = in_process("apply", str(config), cwd=tmp_path, environment=settings)
    assert done.returncode == 5
    what, state, remedy = done.stderr.splitlines()
    assert "Redis at 127.0.0.1:1 could not be reached (connection)" in what
    assert f"generation 1 is committed in {settings['TOOLBELAY_DATABASE_URL']}, effective within 1 s" in state
    assert "TOOLBELAY_REDIS_URL, then repeat the apply" in remedy
    assert "hunter2" not in done.stderr


def test_a_change_while_the_development_service_is_stopped(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config", *LINES)
    with serving("--dev", "--listen", "127.0.0.1:0", cwd=tmp_path) as found:
        assert found.terminate() == 0
    done = in_process("apply", str(config), cwd=tmp_path)
    assert done.returncode == 5
    assert "generation 1 is committed" in done.stderr
    assert "`toolbelay serve --dev` does not run here; start it" in done.stderr


def test_a_database_behind_redis_is_not_told_as_a_redis_that_is_down(service: Serving, tmp_path: Path) -> None:
    """What it takes is a resync; repeating the apply would not do."""
    printed_json("db", "resync", "--yes", cwd=service.cwd)  # beyond what one apply reaches
    redis = dev_state.DevState(service.cwd / dev_state.FOLDER).environment()["TOOLBELAY_REDIS_URL"]
    restored = f"sqlite+aiosqlite:///{tmp_path}/restored.db"
    settings = {"TOOLBELAY_REDIS_URL": redis, "TOOLBELAY_DATABASE_URL": restored}
    assert in_process("db", "upgrade", cwd=tmp_path, environment=settings).returncode == 0
    config = write_config(tmp_path / "config", *LINES)
    done = in_process("apply", str(config), cwd=tmp_path, environment=settings)
    assert done.returncode == 5
    assert "toolbelay db resync" in done.stderr


def test_apply_without_schema_says_what_to_do(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/x.db"
    config = write_config(tmp_path / "config", *LINES)
    done = in_process("apply", str(config), cwd=tmp_path, environment={"TOOLBELAY_DATABASE_URL": url})
    assert done.returncode == 4
    assert "toolbelay db upgrade" in done.stderr


def test_sigterm_ends_service_and_valkey_with_exit_code_0(tmp_path: Path) -> None:
    with serving("--dev", "--listen", "127.0.0.1:0", cwd=tmp_path) as found:
        children = psutil.Process(found.process.pid).children(recursive=True)
        assert children
        assert found.terminate() == 0
        assert "not serving" not in found.said
        _gone(children)
    # Started again it has the same secrets, so that sessions and tokens would still be good.
    assert "Traceback" not in found.said


def test_a_killed_service_takes_its_valkey_along(tmp_path: Path) -> None:
    with serving("--dev", "--listen", "127.0.0.1:0", cwd=tmp_path) as found:
        children = psutil.Process(found.process.pid).children(recursive=True)
        found.process.kill()
        found.process.wait()
        _gone(children)
        with serving("--dev", "--listen", "127.0.0.1:0", cwd=tmp_path) as again:
            assert toolbelay("health", cwd=again.cwd).returncode == 0


def _gone(processes: list[psutil.Process]) -> None:
    wait_until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes), 20)


@pytest.mark.slow
def test_the_demo_plays_to_its_end(tmp_path: Path) -> None:
    before = set(Path("/tmp").glob("toolbelay-demo-*"))
    done = toolbelay("demo", cwd=tmp_path, timeout=110)
    assert done.returncode == 0, done.stderr
    for text in ("Turn 1", "Turn 6", "retained", "pinned", "of the whole catalog", "Checked:", "serve --dev"):
        assert text in done.stdout
    assert set(Path("/tmp").glob("toolbelay-demo-*")) <= before
    assert not list(tmp_path.iterdir())


def test_a_refused_request_names_its_field(service: Serving) -> None:
    done = in_process("select", "hi", "--session", "s" * 200, cwd=service.cwd)
    assert done.returncode == 3
    assert done.stderr == "toolbelay: INVALID_REQUEST: session_id: 200 bytes are more than the limit of 128\n"


def test_no_tools_is_explained(service: Serving) -> None:
    write_config(service.cwd / "bare", LINES[0], policy="// nobody may use anything\n")
    assert in_process("apply", "bare", "--tenant", "bare", cwd=service.cwd).returncode == 0
    done = in_process("select", "find invoices", "--tenant", "bare", cwd=service.cwd)
    assert done.returncode == 0
    assert "toolbelay explain" in done.stderr
    done = in_process("select", "find a customer", cwd=service.cwd)
    assert "crm/find_customer" in done.stdout
    assert not done.stderr


def test_a_given_token_and_one_to_mint_are_not_mixed(service: Serving) -> None:
    token = in_process("token", "mint", "--sub", "alice", cwd=service.cwd).stdout.strip()
    given = {"TOOLBELAY_TOKEN": token}
    assert in_process("select", "hi", cwd=service.cwd, environment=given).returncode == 0
    done = in_process("select", "hi", "--role", "support", cwd=service.cwd, environment=given)
    assert done.returncode == 2
    assert "TOOLBELAY_TOKEN" in done.stderr
