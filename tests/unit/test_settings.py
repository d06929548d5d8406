"""Settings: read as a whole, checked before anything starts, and never showing a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from toolbelay.cli.config_reference import reference
from toolbelay.settings import CLIENT_VARIABLES, VARIABLES, InvalidSettingsError, Settings, environment_of, load
from toolbelay.settings_check import (
    parse_address,
    require_apply,
    require_database,
    require_minting,
    require_serving,
)

SECRET = "0123456789abcdef0123456789abcdef"
GOOD = {
    "TOOLBELAY_STATE_SECRET": SECRET,
    "TOOLBELAY_JWT_ISSUER": "https://idp.example",
    "TOOLBELAY_JWT_AUDIENCE": "toolbelay",
    "TOOLBELAY_JWT_HS256_SECRET": SECRET,
}


def faults(environment: dict[str, str]) -> tuple[str, ...]:
    """What `serve` says of an environment."""
    try:
        require_serving(load(environment))
    except InvalidSettingsError as error:
        return error.faults
    return ()


def test_the_documented_minimum_is_enough() -> None:
    assert faults(GOOD) == ()


@pytest.mark.parametrize(
    ("change", "names", "says"),
    [
        ({"TOOLBELAY_STATE_SECRT": "x"}, "TOOLBELAY_STATE_SECRT", "did you mean TOOLBELAY_STATE_SECRET?"),
        ({"TOOLBELAY_ZZZZ": "x"}, "TOOLBELAY_ZZZZ", "docs/configuration.md"),
        ({"toolbelay_listen": "x"}, "toolbelay_listen", "did you mean TOOLBELAY_LISTEN?"),
        ({"TOOLBELAY_WORKERS": "0"}, "TOOLBELAY_WORKERS", "greater than or equal to 1"),
        ({"TOOLBELAY_MAX_CONCURRENT": "many"}, "TOOLBELAY_MAX_CONCURRENT", "integer"),
        ({"TOOLBELAY_JWT_AUDIENCE": '["a"'}, "TOOLBELAY_JWT_AUDIENCE", "JSON list"),
        ({"TOOLBELAY_JWT_AUDIENCE": "[]"}, "TOOLBELAY_JWT_AUDIENCE", "missing"),
        ({"TOOLBELAY_JWT_AUDIENCE": '["a"," "]'}, "TOOLBELAY_JWT_AUDIENCE", "empty audience"),
        ({"TOOLBELAY_JWT_ISSUER": " "}, "TOOLBELAY_JWT_ISSUER", "missing"),
        ({"TOOLBELAY_STATE_SECRET": "short"}, "TOOLBELAY_STATE_SECRET", "32 bytes"),
        ({"TOOLBELAY_STATE_SECRET_PREVIOUS": "short"}, "TOOLBELAY_STATE_SECRET_PREVIOUS", "32 bytes"),
        ({"TOOLBELAY_JWT_HS256_SECRET": "short"}, "TOOLBELAY_JWT_HS256_SECRET", "32 bytes"),
        ({"TOOLBELAY_JWT_JWKS_URL": "https://idp/keys"}, "TOOLBELAY_JWT_JWKS_URL", "exactly one"),
        ({"TOOLBELAY_JWT_ALGORITHMS": '["RS256"]'}, "TOOLBELAY_JWT_ALGORITHMS", "HS256"),
        ({"TOOLBELAY_LISTEN": "0.0.0.0:50051"}, "TOOLBELAY_LISTEN", "TOOLBELAY_ALLOW_PLAINTEXT=true"),
        ({"TOOLBELAY_LISTEN": "toolbelay.internal:1"}, "TOOLBELAY_LISTEN", "TOOLBELAY_ALLOW_PLAINTEXT=true"),
        ({"TOOLBELAY_EXT_PROC_LISTEN": "0.0.0.0:1"}, "TOOLBELAY_EXT_PROC_LISTEN", "TOOLBELAY_ALLOW_PLAINTEXT=true"),
        ({"TOOLBELAY_LISTEN": "50051"}, "TOOLBELAY_LISTEN", "host:port"),
        ({"TOOLBELAY_LISTEN": "::1:50051"}, "TOOLBELAY_LISTEN", "brackets"),
        ({"TOOLBELAY_METRICS_LISTEN": "unix:/x"}, "TOOLBELAY_METRICS_LISTEN", "host:port"),
        ({"TOOLBELAY_TLS_CERT": "/nowhere.pem"}, "TOOLBELAY_TLS_CERT, TOOLBELAY_TLS_KEY", "both or none"),
        ({"TOOLBELAY_TLS_CLIENT_CA": "/nowhere.pem"}, "TOOLBELAY_TLS_CLIENT_CA", "No such file"),
        ({"TOOLBELAY_DATABASE_URL": "mysql://x"}, "TOOLBELAY_DATABASE_URL", "postgresql+psycopg://"),
        ({"TOOLBELAY_DATABASE_URL": "sqlite+aiosqlite://"}, "TOOLBELAY_DATABASE_URL", "memory"),
        ({"TOOLBELAY_REDIS_URL": "http://x"}, "TOOLBELAY_REDIS_URL", "redis+cluster://"),
        ({"TOOLBELAY_REDIS_URL": "redis+sentinel://h"}, "TOOLBELAY_REDIS_URL", "names the master"),
        ({"TOOLBELAY_REDIS_URL": "redis+cluster://a:b"}, "TOOLBELAY_REDIS_URL", "host or host:port"),
        ({"TOOLBELAY_REDIS_URL": "redis://h:x/0"}, "TOOLBELAY_REDIS_URL", "cannot be read"),
        ({"TOOLBELAY_REDIS_URL": "redis://h?max_connections=3"}, "TOOLBELAY_REDIS_URL", "may not set max_connections"),
        ({"TOOLBELAY_EMBEDDINGS_URL": "https://x"}, "TOOLBELAY_EMBEDDINGS_MODEL", "both or none"),
        ({"TOOLBELAY_WORKERS": "2", "TOOLBELAY_LISTEN": "unix:/x"}, "TOOLBELAY_WORKERS", "one worker"),
    ],
)
def test_each_fault_is_one_line_that_names_variable_and_remedy(change: dict[str, str], names: str, says: str) -> None:
    found = faults(GOOD | change)
    assert any(names in fault.partition(": ")[0] and says in fault for fault in found), found
    assert not any("\n" in fault for fault in found)


@pytest.mark.parametrize("name", ["STATE_SECRET", "JWT_ISSUER", "JWT_AUDIENCE", "JWT_HS256_SECRET"])
def test_what_must_be_set_is_missed(name: str) -> None:
    found = faults({key: value for key, value in GOOD.items() if not key.endswith(name)})
    assert len(found) == 1
    assert f"TOOLBELAY_{name}" in found[0]


def test_all_faults_are_told_at_once() -> None:
    assert len(faults({"TOOLBELAY_LISTEN": "x", "TOOLBELAY_REDIS_URL": "x"})) == 6


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1"])
def test_plaintext_beyond_loopback_is_a_decision(listen: str) -> None:
    assert faults(GOOD | {"TOOLBELAY_LISTEN": listen, "TOOLBELAY_ALLOW_PLAINTEXT": "true"}) == ()


def test_tls_allows_any_address(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text("pem")
    tls = {"TOOLBELAY_TLS_CERT": f"{tmp_path}/cert", "TOOLBELAY_TLS_KEY": f"{tmp_path}/key"}
    assert faults(GOOD | tls | {"TOOLBELAY_LISTEN": "0.0.0.0:1"}) == ()


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "[::1]:1", "localhost:1", "127.9.9.9:1", "unix:/tmp/x"])
def test_loopback_needs_no_tls(listen: str) -> None:
    assert faults(GOOD | {"TOOLBELAY_LISTEN": listen}) == ()
    assert parse_address(parse_address(listen).target) == parse_address(listen)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [("http://idp.example/keys", False), ("http://127.0.0.1:1/keys", True), ("ftp://x", False), ("https://x", True)],
)
def test_keys_come_over_https(url: str, allowed: bool) -> None:
    environment = {key: value for key, value in GOOD.items() if "HS256" not in key}
    assert (faults(environment | {"TOOLBELAY_JWT_JWKS_URL": url}) == ()) is allowed


def test_envoys_word_for_an_identity_needs_a_closed_listener() -> None:
    trusting = GOOD | {"TOOLBELAY_EXT_PROC_TRUST_JWT_METADATA": "true", "TOOLBELAY_ALLOW_PLAINTEXT": "true"}
    assert faults(trusting | {"TOOLBELAY_EXT_PROC_LISTEN": "127.0.0.1:1"}) == ()
    (found,) = faults(trusting | {"TOOLBELAY_EXT_PROC_LISTEN": "0.0.0.0:1"})
    assert "TOOLBELAY_TLS_CLIENT_CA" in found


def test_commands_ask_only_for_what_they_use() -> None:
    require_database(load({}))
    require_apply(load({}))
    with pytest.raises(InvalidSettingsError, match="HS256"):
        require_minting(load({}))


def test_lists_are_json_and_one_value_may_stand_alone() -> None:
    assert load({"TOOLBELAY_JWT_AUDIENCE": '["a", "b"]'}).jwt_audience == ("a", "b")
    assert load({"TOOLBELAY_JWT_AUDIENCE": "a,b"}).jwt_audience == ("a,b",)
    assert load({"TOOLBELAY_JWT_ALGORITHMS": "HS256"}).jwt_algorithms == ("HS256",)


def test_client_variables_are_not_refused() -> None:
    load(dict.fromkeys(CLIENT_VARIABLES, "x"))


def test_no_secret_is_shown() -> None:
    secret = "hunter2-hunter2-hunter2-hunter2-hunter2"
    environment = {
        variable: secret
        for variable, name in VARIABLES.items()
        if isinstance(Settings.model_fields[name].default, SecretStr) or "SecretStr" in str(Settings.model_fields[name])
    }
    assert len(environment) == 7
    loaded = load(environment)
    assert "hunter2" not in repr(loaded) + str(loaded) + loaded.model_dump_json()
    with pytest.raises(InvalidSettingsError) as caught:
        require_serving(loaded)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidSettingsError) as caught:
        load({"TOOLBELAY_WORKERS": "hunter2", "TOOLBELAY_JWT_AUDIENCE": '["hunter2"'})
    assert "hunter2" not in str(caught.value)


@settings(max_examples=50, deadline=None)
@given(
    audience=st.lists(st.text(min_size=1, max_size=9), max_size=3),
    workers=st.integers(1, 64),
    plaintext=st.booleans(),
    secret=st.none() | st.text(min_size=1, max_size=40),
)
def test_a_child_process_gets_the_same_settings(
    audience: list[str], workers: int, plaintext: bool, secret: str | None
) -> None:
    values: dict[str, Any] = {
        "jwt_audience": tuple(audience),
        "workers": workers,
        "allow_plaintext": plaintext,
        "state_secret": SecretStr(secret) if secret else None,
    }
    given_ = Settings(**values)
    assert load(environment_of(given_)) == given_


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_the_docs_are_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text() == reference(), "run: toolbelay config reference > docs/configuration.md"
