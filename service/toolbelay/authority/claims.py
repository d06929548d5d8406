"""A token's header and claims: exact types and bounds, and the principal that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolbelay.authority.principal import Principal
from toolbelay.errors import ErrorReason

MAX_SUBJECT_BYTES = 1024
MAX_TENANT_BYTES = 256
MAX_SESSION_BYTES = 128
MAX_ROLES_AND_SCOPES = 256
MAX_GRANT_BYTES = 256  # of one role or scope
MAX_KID_BYTES = 256
LATEST_TIME = 253_402_300_799.0  # the end of the year 9999

# Headers that name or carry a key of the token's own choice, or demand processing that we don't do.
_REFUSED_HEADERS = frozenset({"jwk", "jku", "x5u", "x5c", "crit", "b64", "zip"})


class TokenRefusedError(Exception):
    """A token is refused. `cause` is one of a fixed set of words; `message` is public; neither has content."""

    def __init__(self, cause: str, message: str, reason: ErrorReason = ErrorReason.TOKEN_INVALID) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """Names of the claims that are settings."""

    tenant: str = "tenant"
    roles: str = "roles"
    scopes: str = "scope"
    session: str = "toolbelay_session"


def check_header(header: Mapping[str, Any], allowed: frozenset[str]) -> tuple[str | None, str]:
    """Give (`kid`, `alg`) of a JOSE header; raises TokenRefusedError."""
    if not _REFUSED_HEADERS.isdisjoint(header):
        raise TokenRefusedError("header", "the token's header has a field that is not accepted")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in allowed:
        raise TokenRefusedError("algorithm", "the token's algorithm is not allowed")
    kid = header.get("kid")
    if kid is not None and (not isinstance(kid, str) or len(kid) > MAX_KID_BYTES):
        raise TokenRefusedError("header", "the token's `kid` is not a short string")
    return kid, algorithm


def check_times(claims: Mapping[str, Any], now: float, leeway: float) -> float:
    """Check exp, nbf and iat against `now` (Unix seconds) and give exp; raises TokenRefusedError."""
    expires_at = _time(claims["exp"], "exp")
    for name in ("nbf", "iat"):
        if name in claims and _time(claims[name], name) > now + leeway:
            raise TokenRefusedError("not_yet_valid", f"the token's `{name}` lies in the future")
    if expires_at + leeway <= now:
        raise TokenRefusedError("expired", "the token has expired", ErrorReason.TOKEN_EXPIRED)
    return expires_at


def principal_from_claims(
    claims: Mapping[str, Any],
    names: ClaimNames,
    issuer: str,
    default_tenant: str | None,
    expires_at: float,
) -> Principal:
    """Make the principal of verified claims; raises TokenRefusedError for a wrong type or bound."""
    if claims.get("iss") != issuer:
        raise TokenRefusedError("issuer", "the token's `iss` is not the expected issuer")
    subject = _text(claims.get("sub"), "sub", MAX_SUBJECT_BYTES)
    if names.tenant in claims:
        tenant = _text(claims[names.tenant], "tenant", MAX_TENANT_BYTES)
    elif default_tenant is not None:
        tenant = default_tenant
    else:
        raise TokenRefusedError("tenant", "the token names no tenant")
    roles = _grants(claims.get(names.roles, []), "roles")
    scopes = _grants(claims.get(names.scopes, []), "scopes")
    if len(roles) + len(scopes) > MAX_ROLES_AND_SCOPES:
        message = f"the token has more than {MAX_ROLES_AND_SCOPES} roles and scopes"
        raise TokenRefusedError("too_many_grants", message)
    session = None
    if names.session in claims:
        session = _text(claims[names.session], "session", MAX_SESSION_BYTES)
    return Principal(
        tenant=tenant,
        issuer=issuer,
        subject=subject,
        roles=roles,
        scopes=scopes,
        session_claim=session,
        expires_at=expires_at,
    )


def _time(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefusedError("time", f"the token's `{name}` is not a number")
    if not 0 <= value <= LATEST_TIME:  # false for NaN, too
        raise TokenRefusedError("time", f"the token's `{name}` is out of range")
    return float(value)


def _text(value: object, what: str, limit: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TokenRefusedError(what, f"the token's {what} claim is not a non-empty string")
    _encodable(value, what, limit)
    return value


def _encodable(value: str, what: str, limit: int) -> None:
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise TokenRefusedError(what, f"the token's {what} claim holds a lone surrogate") from None
    if size > limit:
        raise TokenRefusedError(what, f"the token's {what} claim is larger than {limit} bytes")
    if "\0" in value:
        raise TokenRefusedError(what, f"the token's {what} claim holds NUL")


def _grants(value: object, what: str) -> frozenset[str]:
    """Read a list of strings, or one string with names between spaces."""
    names = value.split(" ") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TokenRefusedError(what, f"the token's {what} claim is neither a list of strings nor a string")
    granted = frozenset(name for name in names if name or not isinstance(value, str))
    if "" in granted:
        raise TokenRefusedError(what, f"the token's {what} claim holds an empty name")
    for name in granted:
        _encodable(name, what, MAX_GRANT_BYTES)
    return granted
