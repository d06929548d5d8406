"""Tokens for gateways that hold API keys and no user JWTs: one short-lived token per request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolbelay.authority.minting import SigningKey, mint


class TokenMinter:
    """Mints tokens that the service verifies with the same secret (HS256) or the public key (EdDSA).

    `ttl_seconds`: 1 to 3600, default 60. Raises ValueError for a secret under 32 bytes, a key of another
    kind, or a life out of bounds.
    """

    def __init__(self, key: SigningKey, *, issuer: str, audience: str, ttl_seconds: int = 60) -> None:
        if not 1 <= ttl_seconds <= 3600:
            raise ValueError(f"the token's life is {ttl_seconds} s, not within 1 to 3600")
        self._key = key
        self._issuer = issuer
        self._audience = audience
        self._ttl = ttl_seconds

    @classmethod
    def hs256(cls, secret: bytes, *, issuer: str, audience: str, ttl_seconds: int = 60) -> TokenMinter:
        """Sign with a shared secret of at least 32 bytes."""
        return cls(SigningKey.from_secret(secret), issuer=issuer, audience=audience, ttl_seconds=ttl_seconds)

    @classmethod
    def eddsa(cls, pem: bytes, *, kid: str, issuer: str, audience: str, ttl_seconds: int = 60) -> TokenMinter:
        """Sign with an unencrypted PKCS#8 Ed25519 key, which the service's JWKS names by `kid`."""
        return cls(SigningKey.from_pem(pem, kid), issuer=issuer, audience=audience, ttl_seconds=ttl_seconds)

    def mint(
        self,
        subject: str,
        *,
        tenant: str | None = None,
        roles: Sequence[str] = (),
        scopes: Sequence[str] = (),
        session_id: str | None = None,
    ) -> str:
        """A token for the gateway's user; with `session_id` it serves that session only."""
        return mint(
            self._key,
            issuer=self._issuer,
            audience=self._audience,
            subject=subject,
            tenant=tenant,
            roles=roles,
            scopes=scopes,
            session=session_id or None,
            ttl_seconds=self._ttl,
        )

    def for_user(
        self, subject: str, *, tenant: str | None = None, roles: Sequence[str] = (), scopes: Sequence[str] = ()
    ) -> Callable[[str], str]:
        """A client's `token`: mints one for each call, bound to the call's session."""
        return lambda session_id: self.mint(
            subject, tenant=tenant, roles=roles, scopes=scopes, session_id=session_id or None
        )
