"""Tokens for gateways that hold API keys and no user JWTs: short-lived, minted for each user and session."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from toolbelay.authority.minting import SigningKey, mint

_MAX_KEPT: Final = 10_000  # tokens, about 1 KiB each
_SPARE: Final = 5.0  # seconds before its end that a token is no longer handed out, at most half of its life

_Identity = tuple[str, str | None, tuple[str, ...], tuple[str, ...], str | None]


class TokenMinter:
    """Mints tokens that the service verifies with the same secret (HS256) or the public key (EdDSA).

    A token is handed out again to the same user and session until shortly before its end, so that neither
    side does a signature's work for each call. Safe to use from several threads.

    `ttl_seconds`: 1 to 3600, default 60. Raises ValueError for a secret under 32 bytes, a key of another
    kind, or a life out of bounds.
    """

    def __init__(
        self,
        key: SigningKey,
        *,
        issuer: str,
        audience: str,
        ttl_seconds: int = 60,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 1 <= ttl_seconds <= 3600:
            raise ValueError(f"the token's life is {ttl_seconds} s, not within 1 to 3600")
        self._key = key
        self._issuer = issuer
        self._audience = audience
        self._ttl = ttl_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Identity, tuple[float, str]] = OrderedDict()

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
        """A token for the gateway's user; with `session_id` it serves that session only.

        Raises ValueError for an empty subject.
        """
        identity = (subject, tenant, tuple(roles), tuple(scopes), session_id or None)
        now = self._clock()
        with self._lock:
            ends, token = self._kept.get(identity, (0.0, ""))
            if ends - min(_SPARE, self._ttl / 2) > now:
                self._kept.move_to_end(identity)
                return token
        token = self._mint(identity, now)
        with self._lock:
            self._kept[identity] = (int(now) + self._ttl, token)
            self._kept.move_to_end(identity)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return token

    def for_user(
        self, subject: str, *, tenant: str | None = None, roles: Sequence[str] = (), scopes: Sequence[str] = ()
    ) -> Callable[[str], str]:
        """A client's `token`: a token for each call, bound to the call's session."""
        return lambda session_id: self.mint(
            subject, tenant=tenant, roles=roles, scopes=scopes, session_id=session_id or None
        )

    def _mint(self, identity: _Identity, now: float) -> str:
        subject, tenant, roles, scopes, session = identity
        return mint(
            self._key,
            issuer=self._issuer,
            audience=self._audience,
            subject=subject,
            tenant=tenant,
            roles=roles,
            scopes=scopes,
            session=session,
            ttl_seconds=self._ttl,
            now=now,
        )
