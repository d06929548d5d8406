"""Who sends the request through Envoy: a signed token in a header, or claims that Envoy itself verified."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from toolbelay.authority.claims import TokenRefusedError, check_times, principal_from_claims
from toolbelay.authority.principal import Principal
from toolbelay.authority.tokens import LEEWAY_SECONDS, TokenConfig
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.ext_proc.head import RequestHead
from toolbelay.ext_proc.options import ExtProcOptions


class Verifier(Protocol):
    """The service's token verifier."""

    async def verify(self, authorization_values: Sequence[str | bytes]) -> Principal:
        """The principal of the values. Raises TOKEN_MISSING, TOKEN_INVALID, TOKEN_EXPIRED."""


class Identity:
    """Finds the principal. `tokens` is needed for `trust_jwt_metadata` only."""

    def __init__(
        self,
        options: ExtProcOptions,
        verifier: Verifier,
        tokens: TokenConfig | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if options.trust_jwt_metadata and tokens is None:
            raise ValueError("trust_jwt_metadata needs the issuer and audience to check claims against")
        self._options = options
        self._verifier = verifier
        self._tokens = tokens
        self._now = now

    def carriers(self, head: RequestHead) -> list[str]:
        """Headers that may carry our token, which is not for the upstream to see."""
        own = [self._options.token_header]
        if self._options.use_authorization and self._options.token_header not in head.headers:
            own += ["authorization"] * any(map(is_jwt_bearer, head.headers.get("authorization", ())))
        return own

    async def principal(self, head: RequestHead) -> Principal:
        """The caller. A token, where there is one, wins over metadata. Raises TOKEN_* errors."""
        values = [_as_bearer(value) for value in head.headers.get(self._options.token_header, ())]
        if not values and self._options.use_authorization:
            given = head.headers.get("authorization", ())
            values = list(given) if any(map(is_jwt_bearer, given)) else []
        if values:
            return await self._verifier.verify(values)
        claims = _payload(head.metadata.get(self._options.jwt_namespace, {}))
        if self._options.trust_jwt_metadata and claims is not None:
            return self._principal_of(claims)
        raise ToolbelayError(ErrorReason.TOKEN_MISSING, "the request carries no token")

    def _principal_of(self, claims: Mapping[str, Any]) -> Principal:
        config = self._tokens
        assert config is not None
        try:
            _check_claims(claims, config.audiences)
            expires_at = check_times(claims, self._now(), LEEWAY_SECONDS)
            return principal_from_claims(claims, config.claims, config.issuer, config.default_tenant, expires_at)
        except TokenRefusedError as refusal:
            raise ToolbelayError(refusal.reason, refusal.message) from None


def _check_claims(claims: Mapping[str, Any], audiences: Sequence[str]) -> None:
    for name in ("iss", "aud", "exp", "sub"):
        if name not in claims:
            raise TokenRefusedError(name, f"the token has no `{name}`")
    given = claims["aud"]
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not any(isinstance(item, str) and item in audiences for item in listed):
        raise TokenRefusedError("audience", "the token's `aud` is not the expected audience")


def _payload(namespace: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The one payload that jwt_authn wrote, under whatever `payload_in_metadata` names; two are none."""
    found = [value for value in namespace.values() if isinstance(value, Mapping) and "iss" in value]
    return found[0] if len(found) == 1 else None


def _as_bearer(value: bytes) -> bytes:
    return value if value[:7].lower() == b"bearer " else b"Bearer " + value


def is_jwt_bearer(value: bytes) -> bool:
    """Whether an authorization value is a bearer JWT: three parts, the first of them a JOSE header."""
    scheme, _, token = value.strip().partition(b" ")
    parts = token.strip().split(b".")
    if scheme.lower() != b"bearer" or len(parts) != 3:
        return False
    try:
        header = json.loads(base64.b64decode(parts[0] + b"=" * (-len(parts[0]) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header
