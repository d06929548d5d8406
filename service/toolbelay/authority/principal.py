"""The authenticated caller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: taken from a verified token, never from a request."""

    tenant: str
    issuer: str
    subject: str
    roles: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    session_claim: str | None = None  # the session that the token is bound to
    expires_at: float = 0.0  # Unix seconds
