"""The shipped Envoy file fits the defaults of the settings beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from toolbelay.api.server import ListenOptions
from toolbelay.ext_proc.server import SERVICE
from toolbelay.settings import Settings
from toolbelay.settings_check import parse_address

ROOT = Path(__file__).parents[2]
ENVOY: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "envoy" / "envoy.yaml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def _values(node: Any, key: str) -> Iterator[Any]:
    """Every value under a key, wherever it stands."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from _values(value, key)
    elif isinstance(node, list):
        for item in node:
            yield from _values(item, key)


def test_envoy_waits_longer_than_the_processor_works() -> None:
    (timeout,) = _values(ENVOY, "message_timeout")
    assert _seconds(timeout) * 1000 > DEFAULTS["ext_proc_deadline_ms"]
    environment = COMPOSE["services"]["toolbelay-1"]["environment"]
    assert not {"TOOLBELAY_EXT_PROC_DEADLINE_MS", "TOOLBELAY_EXT_PROC_MAX_BODY_BYTES"} & set(environment)


def test_the_processors_own_limit_is_the_one_that_counts() -> None:
    limits = list(_values(ENVOY, "per_connection_buffer_limit_bytes"))
    assert limits
    assert min(limits) > DEFAULTS["ext_proc_max_body_bytes"]


def test_clients_cannot_choose_a_route_and_tokens_stay_here() -> None:
    (filters,) = _values(ENVOY, "http_filters")
    names = [item["name"] for item in filters]
    assert names.index("strip") < names.index("toolbelay")
    assert [item["remove"] for item in next(_values(filters, "request_mutations"))] == ["x-toolbelay-route"]
    (removed,) = _values(ENVOY, "request_headers_to_remove")
    assert removed == [DEFAULTS["ext_proc_token_header"]]


def test_what_the_processor_reads_is_forwarded() -> None:
    (namespaces,) = _values(ENVOY, "untyped")
    assert namespaces == [DEFAULTS["ext_proc_metadata_namespace"], DEFAULTS["ext_proc_jwt_namespace"]]


def test_nothing_fails_open_by_default() -> None:
    assert list(_values(ENVOY, "failure_mode_allow")) == [False]
    (mode,) = _values(ENVOY, "processing_mode")
    assert (mode["request_body_mode"], mode["response_body_mode"]) == ("BUFFERED", "BUFFERED")


def test_health_checks_and_pings_are_the_listeners() -> None:
    (health,) = _values(ENVOY, "grpc_health_check")
    assert health["service_name"] == SERVICE
    (keepalive,) = _values(ENVOY, "connection_keepalive")
    # Pings that come closer together end the connection, with every answer that is waited for on it.
    least = ListenOptions(parse_address("127.0.0.1:0")).min_ping_interval_ms
    assert _seconds(keepalive["interval"]) * 1000 >= 2 * least
    listen = COMPOSE["services"]["toolbelay-1"]["environment"]["TOOLBELAY_EXT_PROC_LISTEN"]
    (cluster,) = (item for item in ENVOY["static_resources"]["clusters"] if item["name"] == "toolbelay")
    assert next(_values(cluster["load_assignment"], "port_value")) == int(listen.rpartition(":")[2])
