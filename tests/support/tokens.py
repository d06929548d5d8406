"""Tokens of every kind, good and forged, and verifiers that meet them."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest

from toolbelay.authority.tokens import TokenConfig, TokenVerifier
from toolbelay.errors import ToolbelayError

ISSUER = "https://idp.example/auth"
AUDIENCE = "toolbelay"
SECRET = b"s" * 32
NOW = 1_800_000_000.0
MISSING = object()


def config(**changes: Any) -> TokenConfig:
    given: dict[str, Any] = {"issuer": ISSUER, "audiences": (AUDIENCE,), "hs256_secret": SECRET}
    return TokenConfig(**{**given, **changes})


def verifier(now: float = NOW, **changes: Any) -> TokenVerifier:
    return TokenVerifier(config(**changes), now=lambda: now)


def claims(**changes: Any) -> dict[str, Any]:
    base = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 60, "tenant": "acme"}
    return {name: value for name, value in {**base, **changes}.items() if value is not MISSING}


def sign(payload: object, header: dict[str, Any] | None = None, secret: bytes = SECRET) -> str:
    """Sign anything at all, past PyJWT's own checks of claims."""
    return jwt.api_jws.encode(json.dumps(payload).encode(), secret, algorithm="HS256", headers=header)


async def refusal(check: TokenVerifier, *values: str | bytes) -> ToolbelayError:
    with pytest.raises(ToolbelayError) as caught:
        await check.verify(values)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return caught.value
