"""Who sends the request through Envoy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ext_proc import JWT, PRINCIPAL, FakeApplication, FakeVerifier
from toolbelay.api.server import ListenError, ListenOptions
from toolbelay.authority.principal import Principal
from toolbelay.authority.tokens import TokenConfig
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.ext_proc.head import RequestHead
from toolbelay.ext_proc.identity import Identity, is_jwt_bearer
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.ext_proc.server import require_trusted_listener
from toolbelay.settings_check import parse_address

NOW = 1_000_000.0
CONFIG = TokenConfig("https://issuer.test", ("toolbelay", "gateway"), hs256_secret=b"x" * 32)
CLAIMS: dict[str, Any] = {
    "iss": "https://issuer.test",
    "aud": "toolbelay",
    "exp": NOW + 60,
    "sub": "bob",
    "tenant": "acme",
    "roles": ["support"],
}
JWT_AUTHN = "envoy.filters.http.jwt_authn"


def identity(*, trust: bool = True) -> Identity:
    return Identity(ExtProcOptions(trust_jwt_metadata=trust), FakeVerifier(), CONFIG, now=lambda: NOW)


def head(metadata: Any, **headers: bytes) -> RequestHead:
    named = {key.replace("_", "-"): (value,) for key, value in headers.items()}
    return RequestHead(named, metadata, None)


async def refusal(metadata: Any, *, trust: bool = True, **headers: bytes) -> ErrorReason:
    with pytest.raises(ToolbelayError) as caught:
        await identity(trust=trust).principal(head(metadata, **headers))
    return caught.value.reason


async def test_claims_that_envoy_verified() -> None:
    found = await identity().principal(head({JWT_AUTHN: {"payload": CLAIMS}}))
    assert found == Principal("acme", "https://issuer.test", "bob", frozenset({"support"}), expires_at=NOW + 60)
    listed = {**CLAIMS, "aud": ["x", "gateway"]}
    assert (await identity().principal(head({JWT_AUTHN: {"any name": listed}}))).subject == "bob"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://issuer.test/"},
        {"iss": ["https://issuer.test"]},
        {"aud": "other"},
        {"aud": []},
        {"aud": 5},
        {"aud": None},
        {"exp": "soon"},
        {"exp": True},
        {"sub": ""},
        {"sub": 42},
        {"nbf": NOW + 600},
        {"tenant": 5},
    ],
)
async def test_claims_are_checked_all_the_same(changes: dict[str, Any]) -> None:
    assert await refusal({JWT_AUTHN: {"payload": {**CLAIMS, **changes}}}) is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize("name", ["aud", "exp", "sub", "tenant"])
async def test_a_claim_that_is_missing(name: str) -> None:
    claims = {key: value for key, value in CLAIMS.items() if key != name}
    assert await refusal({JWT_AUTHN: {"payload": claims}}) is ErrorReason.TOKEN_INVALID


async def test_expired_claims() -> None:
    assert await refusal({JWT_AUTHN: {"payload": {**CLAIMS, "exp": NOW - 6}}}) is ErrorReason.TOKEN_EXPIRED


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {JWT_AUTHN: {}},
        {JWT_AUTHN: {"status": "ok"}},
        {"other": {"payload": CLAIMS}},
        {JWT_AUTHN: {"a": CLAIMS, "b": CLAIMS}},
    ],
)
async def test_metadata_that_is_no_identity(metadata: Any) -> None:
    assert await refusal(metadata) is ErrorReason.TOKEN_MISSING


async def test_metadata_is_not_trusted_unless_it_is_said() -> None:
    assert await refusal({JWT_AUTHN: {"payload": CLAIMS}}, trust=False) is ErrorReason.TOKEN_MISSING


async def test_a_token_wins_over_metadata_and_a_bad_one_does_not_fall_back() -> None:
    metadata = {JWT_AUTHN: {"payload": CLAIMS}}
    assert await identity().principal(head(metadata, x_toolbelay_token=JWT.encode())) == PRINCIPAL
    assert await refusal(metadata, x_toolbelay_token=b"bad") is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"Bearer " + JWT.encode(), True),
        (b"BEARER   " + JWT.encode(), True),
        (JWT.encode(), False),
        (b"Bearer sk-proj-abc", False),
        (b"Bearer sk.a.b", False),
        (b"Bearer e30.e30.x", False),
        (b"Basic " + JWT.encode(), False),
        (b"Bearer \xff.\xff.\xff", False),
        (b"", False),
    ],
)
def test_what_looks_like_our_token(value: bytes, expected: bool) -> None:
    assert is_jwt_bearer(value) is expected


@pytest.mark.parametrize(
    ("listen", "allowed"),
    [
        (ListenOptions(parse_address("127.0.0.1:1")), True),
        (ListenOptions(parse_address("unix:/tmp/x.sock")), True),
        (ListenOptions(parse_address("0.0.0.0:1")), False),
        (ListenOptions(parse_address("0.0.0.0:1"), tls_cert="c", tls_key="k"), False),
        (ListenOptions(parse_address("0.0.0.0:1"), tls_cert="c", tls_key="k", tls_client_ca="a"), True),
    ],
)
def test_claims_without_signature_need_a_listener_that_only_envoy_reaches(listen: ListenOptions, allowed: bool) -> None:
    options = ExtProcOptions(trust_jwt_metadata=True)
    require_trusted_listener(ExtProcOptions(), listen)
    if allowed:
        require_trusted_listener(options, listen)
    else:
        with pytest.raises(ListenError, match="TRUST_JWT_METADATA"):
            require_trusted_listener(options, listen)


def test_trust_needs_something_to_check_against() -> None:
    with pytest.raises(ValueError, match="issuer"):
        FakeApplication().processor(ExtProcOptions(trust_jwt_metadata=True))
