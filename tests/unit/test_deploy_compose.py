"""docker-compose.yml and the Dockerfile: no engine runs in the tests, so what can be known from the text is checked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbelay.settings import CLIENT_VARIABLES, VARIABLES, load

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = ROOT / "deploy" / "compose.env.example"

SECRET_NAME = re.compile(r"SECRET|PASSWORD|TOKEN|AUTH$|_KEY$")
REQUIRED = re.compile(r"\$\{(\w+):\?[^}]+\}")
OPTIONAL = re.compile(r"\$\{(\w+):-[^}]*\}")
PINNED = re.compile(r"^[\w./-]+:v?\d+\.\d+\.?\d*[\w.-]*$|@sha256:[0-9a-f]{64}$")
PASSWORD_IN_URL = re.compile(r"://[^:/@\s]*:(?P<password>[^@\s]+)@")


def _environments() -> list[tuple[str, str, str]]:
    return [
        (service, name, str(value))
        for service, definition in SERVICES.items()
        for name, value in definition.get("environment", {}).items()
    ]


def _validate(path: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("check-jsonschema")
    command = [str(tool), "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_file_matches_the_schema_of_compose_files() -> None:
    done = _validate(ROOT / "docker-compose.yml")
    assert done.returncode == 0, done.stdout


def test_the_schema_refuses_a_wrong_file(tmp_path: Path) -> None:
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text("services: {a: {image: x:1.0, healthchek: {}}}")
    assert _validate(wrong).returncode == 1


@pytest.mark.parametrize("service", SERVICES)
def test_images_are_pinned(service: str) -> None:
    assert PINNED.search(SERVICES[service]["image"])


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_watched_or_ends_by_itself(service: str) -> None:
    definition = SERVICES[service]
    if definition.get("restart") == "no":
        assert definition["healthcheck"] == {"disable": True}
        assert all(_waits_for(name)[service] == "service_completed_successfully" for name in _dependants(service))
        assert _dependants(service)
    else:
        assert definition["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
        assert definition["healthcheck"]["retries"] > 0


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_waits_for_what_it_needs(service: str) -> None:
    for name, condition in _waits_for(service).items():
        one_shot = SERVICES[name].get("restart") == "no"
        assert condition == ("service_completed_successfully" if one_shot else "service_healthy")


def test_two_replicas_wait_for_one_migration() -> None:
    replicas = [name for name, definition in SERVICES.items() if "aliases" in str(definition.get("networks"))]
    assert replicas == ["toolbelay-1", "toolbelay-2"]
    assert all(set(_waits_for(name)) == {"migrate", "valkey"} for name in replicas)
    assert set(_waits_for("migrate")) == {"postgres"}
    assert set(_waits_for("router")) >= set(replicas)


def test_secrets_come_from_outside_and_are_asked_for() -> None:
    for service, name, value in _environments():
        if SECRET_NAME.search(name) and not name.startswith("GF_"):
            assert REQUIRED.fullmatch(value), f"{service}: {name}"
        for match in PASSWORD_IN_URL.finditer(value):
            assert REQUIRED.fullmatch(match["password"]), f"{service}: {name}"


def test_the_example_names_every_variable_and_no_value() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    example = EXAMPLE.read_text()
    assert set(re.findall(r"^(\w+)=$", example, re.MULTILINE)) == set(REQUIRED.findall(text))
    assert set(re.findall(r"^#(\w+)=", example, re.MULTILINE)) == set(OPTIONAL.findall(text))
    assert not re.search(r"^\w+=.+$", example, re.MULTILINE)


def test_env_files_stay_out_of_version_control() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_settings_are_the_service_s() -> None:
    given = SERVICES["toolbelay-1"]["environment"]
    assert set(given) <= {*VARIABLES, *CLIENT_VARIABLES}
    filled = {name: REQUIRED.sub("x" * 64, value) for name, value in given.items()}
    settings = load(filled)
    assert settings.listen.endswith(":50051")
    assert settings.database_url.get_secret_value().startswith("postgresql+psycopg://")


def test_what_is_mounted_exists() -> None:
    sources = [
        volume.split(":")[0]
        for definition in SERVICES.values()
        for volume in definition.get("volumes", ())
        if volume.startswith(".")
    ]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_router_s_file_takes_the_upstream_and_fits_the_rest(tmp_path: Path) -> None:
    (script,) = SERVICES["router"]["command"]
    script, _, _ = (
        script.replace("$$", "$")
        .replace("/etc/toolbelay/envoy.yaml", "deploy/envoy/envoy.yaml")
        .partition("> /tmp/envoy.yaml")
    )
    environment = {"PATH": os.environ["PATH"], "UPSTREAM": "models.internal:1234"}
    done = subprocess.run(["sh", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    addresses = list(_socket_addresses(yaml.safe_load(done.stdout)))
    assert ("models.internal", 1234) in addresses
    assert not any(host == "upstream" for host, _ in addresses)
    assert ("toolbelay", 50052) in addresses
    assert {8080, 9901} <= {port for _, port in addresses}


def test_only_this_machine_is_let_in() -> None:
    published = [port for definition in SERVICES.values() for port in definition.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    hosts = [port.rsplit(":", 1)[0] for port in published]
    assert len(hosts) == len(set(hosts))


def test_the_stores_are_reached_from_inside_only() -> None:
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    for name in ("postgres", "valkey", "migrate", "upstream"):
        assert SERVICES[name]["networks"] == ["inside"]


def test_observability_is_a_choice() -> None:
    chosen = {name for name, definition in SERVICES.items() if definition.get("profiles") == ["observability"]}
    assert chosen == {"prometheus", "grafana"}


def test_the_image_is_built_from_pins_and_runs_as_nobody_special() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    text = "\n".join(lines)
    images = re.findall(r"^(?:FROM|ARG PYTHON_IMAGE=)\s*([^\s$]+:\S+)", text, re.MULTILINE)
    assert images
    assert all(PINNED.search(image) for image in images)
    installs = [line for line in lines if "pip install" in line]
    assert installs
    assert all("--require-hashes" in line or "--no-deps --no-index" in line for line in installs)
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
    assert any(line.startswith("HEALTHCHECK") for line in lines)


def test_the_image_copies_what_exists_and_is_not_ignored() -> None:
    copied: list[str] = []
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied += line.split()[1:-1]
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == allowed
    assert [path for path in copied if not (ROOT / path).exists()] == []


def _socket_addresses(node: Any) -> Iterator[tuple[str, int]]:
    """Every address and port in Envoy's configuration."""
    if isinstance(node, dict):
        if "port_value" in node:
            yield node["address"], node["port_value"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _socket_addresses(child)


def _waits_for(service: str) -> dict[str, str]:
    return {name: entry["condition"] for name, entry in SERVICES[service].get("depends_on", {}).items()}


def _dependants(service: str) -> list[str]:
    return [name for name in SERVICES if service in _waits_for(name)]
