"""The dashboard and the alerts ask for metrics that the service has; the scrape goes where it listens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolbelay.settings import VARIABLES
from toolbelay.telemetry.metrics import Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "toolbelay.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
PROMETHEUS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())

METRIC = re.compile(r"\btoolbelay_\w+")


def _samples() -> set[str]:
    """The names in a scrape."""
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    return {
        family.name + suffix for family in Metrics().registry.collect() for suffix in suffixes.get(family.type, [""])
    }


def _alerts() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def _expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (alert["expr"] for alert in _alerts())


def test_every_metric_asked_for_exists() -> None:
    asked = {name for expression in _expressions() for name in METRIC.findall(expression)}
    assert asked
    assert asked - _samples() == set()


@pytest.mark.parametrize("alert", _alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_and_what(alert: dict[str, Any]) -> None:
    assert alert["for"]
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"]["summary"]


def test_settings_named_in_alerts_exist() -> None:
    text = (DEPLOY / "prometheus" / "alerts.yml").read_text() + json.dumps(DASHBOARD)
    assert set(re.findall(r"TOOLBELAY_\w+", text)) <= set(VARIABLES)


def test_prometheus_scrapes_every_replica_where_it_listens() -> None:
    (job,) = PROMETHEUS["scrape_configs"]
    replicas = [name for name in COMPOSE["services"] if name.startswith("toolbelay-")]
    listen = COMPOSE["services"][replicas[0]]["environment"]["TOOLBELAY_METRICS_LISTEN"]
    port = listen.rpartition(":")[2]
    assert job["static_configs"][0]["targets"] == [f"{name}:{port}" for name in replicas]


def test_the_dashboard_is_provisioned_with_its_data_source() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    uids = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]}
    assert uids == {source["uid"] for source in sources}
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "toolbelay.yml").read_text())["providers"]
    mounts = [volume.split(":") for volume in COMPOSE["services"]["grafana"]["volumes"]]
    assert provider["options"]["path"] in {target for _, target, _ in mounts}


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
