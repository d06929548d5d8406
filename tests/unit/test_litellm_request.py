"""The parts of the LiteLLM hook that need no LiteLLM."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import jwt
import pytest

from toolbelay.authority.minting import SigningKey
from toolbelay.client import ToolbelayCallError
from toolbelay.integrations import litellm_request as given

SECRET = "s" * 32
ENVIRONMENT = {
    "TOOLBELAY_ADDRESS": "toolbelay:50051",
    "TOOLBELAY_JWT_HS256_SECRET": SECRET,
    "TOOLBELAY_JWT_ISSUER": "https://gateway",
    "TOOLBELAY_JWT_AUDIENCE": "toolbelay",
}


class Role(Enum):
    """As the proxy's own."""

    USER = "internal_user"


def test_options_from_the_environment(tmp_path: Path) -> None:
    options = given.options_from(ENVIRONMENT)
    assert (options.address, options.timeout, options.on_error, options.other_calls) == (
        "toolbelay:50051",
        1.0,
        "raise",
        "refuse",
    )
    assert options.tls is None
    assert SECRET not in repr(options)
    (tmp_path / "ca.pem").write_bytes(b"ca")
    key = SigningKey.generate("k1")
    (tmp_path / "key.pem").write_bytes(key.pem())
    more = {
        "TOOLBELAY_JWT_HS256_SECRET": "",
        "TOOLBELAY_HOOK_SIGNING_KEY": str(tmp_path / "key.pem"),
        "TOOLBELAY_HOOK_SIGNING_KEY_ID": "k1",
        "TOOLBELAY_HOOK_ON_ERROR": "no_tools",
        "TOOLBELAY_HOOK_TIMEOUT": "0.25",
        "TOOLBELAY_CA": str(tmp_path / "ca.pem"),
    }
    options = given.options_from(ENVIRONMENT | more)
    assert (options.on_error, options.timeout) == ("no_tools", 0.25)
    assert options.tls is not None
    assert jwt.get_unverified_header(options.minter.mint("alice"))["alg"] == "EdDSA"


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"TOOLBELAY_ADDRESS": ""}, "TOOLBELAY_ADDRESS"),
        ({"TOOLBELAY_JWT_ISSUER": " "}, "TOOLBELAY_JWT_ISSUER"),
        ({"TOOLBELAY_JWT_HS256_SECRET": ""}, "TOOLBELAY_HOOK_SIGNING_KEY"),
        ({"TOOLBELAY_JWT_HS256_SECRET": "short"}, "TOOLBELAY_JWT_HS256_SECRET"),
        ({"TOOLBELAY_HOOK_SIGNING_KEY": "/no/such/file"}, "TOOLBELAY_HOOK_SIGNING_KEY"),
        ({"TOOLBELAY_HOOK_ON_ERROR": "ignore"}, "TOOLBELAY_HOOK_ON_ERROR"),
        ({"TOOLBELAY_HOOK_TIMEOUT": "nan"}, "TOOLBELAY_HOOK_TIMEOUT"),
        ({"TOOLBELAY_HOOK_TIMEOUT": "soon"}, "TOOLBELAY_HOOK_TIMEOUT"),
        ({"TOOLBELAY_HOOK_OTHER_CALLS": "maybe"}, "TOOLBELAY_HOOK_OTHER_CALLS"),
    ],
)
def test_a_wrong_setting_is_named(more: dict[str, str], name: str) -> None:
    with pytest.raises(given.HookSettingError, match=name) as caught:
        given.options_from(ENVIRONMENT | more)
    assert "short" not in str(caught.value)


@pytest.mark.parametrize("subject", [None, "", " ", 7])
def test_a_key_without_a_user_is_nobody(subject: Any) -> None:
    claimed = {"end_user_id": "alice", "metadata": {"user": "alice"}}
    assert given.user_of(SimpleNamespace(user_id=subject, **claimed)) is None


def test_roles_are_what_the_proxy_vouches_for() -> None:
    key = SimpleNamespace(
        user_id="alice",
        user_role=Role.USER,
        team_id="t1",
        org_id=None,
        metadata={"toolbelay_roles": ["toolbelay.admin"], "roles": ["toolbelay.admin"]},
    )
    assert given.user_of(key) == given.HookUser("alice", ("litellm:internal_user", "team:t1"))
    assert given.user_of(SimpleNamespace(user_id="bob")) == given.HookUser("bob")


def test_headers_come_from_the_secret_fields_only() -> None:
    data: dict[str, Any] = {
        "proxy_server_request": {"headers": {"x-session-id": "public"}},
        "secret_fields": {"raw_headers": {"X-Session-Id": "s1", "x-litellm-session-id": "s2"}},
    }
    assert given.header(data, given.SESSION_HEADERS) == "s1"
    assert given.header(data, [given.TURN_HEADER]) == ""
    assert (
        given.header({"secret_fields": SimpleNamespace(raw_headers={"x-session-id": "s3"})}, ["x-session-id"]) == "s3"
    )
    assert given.header({}, given.SESSION_HEADERS) == ""


@pytest.mark.parametrize(
    ("code", "reason", "status"),
    [
        ("UNAVAILABLE", "", 503),
        ("RESOURCE_EXHAUSTED", "OVERLOADED", 503),
        ("UNAUTHENTICATED", "TOKEN_INVALID", 503),
        ("NOT_FOUND", "ROUTE_NOT_FOUND", 503),
        ("PERMISSION_DENIED", "SESSION_MISMATCH", 403),
        ("FAILED_PRECONDITION", "REQUIRED_TOOL_UNAVAILABLE", 403),
        ("INVALID_ARGUMENT", "INVALID_REQUEST", 400),
    ],
)
def test_status(code: str, reason: str, status: int) -> None:
    assert given.status_of(ToolbelayCallError(grpc.StatusCode[code], "", reason)) == status


def test_which_other_requests_carry_tools() -> None:
    assert given.offers_tools({"tools": [{}]}, "agenerate_content")
    assert given.offers_tools({"functions": [{}]}, "aembedding")
    assert not given.offers_tools({"tools": [], "input": "x"}, "aembedding")
    assert not given.offers_tools({"tools": [{}]}, "list_mcp_tools")
