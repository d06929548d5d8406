"""Tokens for development and for clients that hold a signing key of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from toolbelay.authority.claims import ClaimNames
from toolbelay.authority.keys import MIN_SECRET_BYTES

MAX_TTL_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs: an HS256 secret of ≥ 32 bytes, or an Ed25519 key (EdDSA). Made by its factories."""

    algorithm: str
    kid: str | None
    key: bytes | Ed25519PrivateKey = field(repr=False)

    @staticmethod
    def from_secret(secret: bytes) -> SigningKey:
        """Sign with HS256; raises ValueError for a secret under 32 bytes."""
        if len(secret) < MIN_SECRET_BYTES:
            message = f"the HS256 secret has {len(secret)} bytes, it needs at least {MIN_SECRET_BYTES}"
            raise ValueError(message)
        return SigningKey("HS256", None, secret)

    @staticmethod
    def generate(kid: str = "toolbelay-dev") -> SigningKey:
        """Make a new Ed25519 key."""
        return SigningKey("EdDSA", kid, Ed25519PrivateKey.generate())

    @staticmethod
    def from_pem(pem: bytes, kid: str = "toolbelay-dev") -> SigningKey:
        """Read an unencrypted PKCS#8 Ed25519 key; raises ValueError for anything else."""
        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            raise ValueError("the signing key is not an unencrypted PEM private key") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("the signing key is not an Ed25519 key")  # noqa: TRY004 - the file's content is wrong, not a type
        return SigningKey("EdDSA", kid, key)

    def pem(self) -> bytes:
        """Write the Ed25519 private key as PKCS#8 PEM, for `from_pem`."""
        return self._ed25519().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def jwks(self) -> bytes:
        """Write the public half as a JWKS document, for `TokenConfig.jwks_file`."""
        public: dict[str, Any] = jwt.algorithms.OKPAlgorithm.to_jwk(self._ed25519().public_key(), as_dict=True)
        entry = {**public, "kid": self.kid, "alg": "EdDSA", "use": "sig"}
        return json.dumps({"keys": [entry]}, indent=2).encode()

    def _ed25519(self) -> Ed25519PrivateKey:
        if not isinstance(self.key, Ed25519PrivateKey):
            raise TypeError("an HS256 secret has no public half")
        return self.key


def mint(
    key: SigningKey,
    *,
    issuer: str,
    audience: str,
    subject: str,
    tenant: str | None = None,
    roles: Sequence[str] = (),
    scopes: Sequence[str] = (),
    session: str | None = None,
    ttl_seconds: int = 3600,
    claims: ClaimNames = ClaimNames(),  # noqa: B008 - frozen
    now: float | None = None,
) -> str:
    """Sign a token (a compact JWT, without "Bearer ").

    `ttl_seconds`: 1 to 30 days. Raises ValueError for an empty subject or a ttl out of range.
    """
    if not subject.strip():
        raise ValueError("the subject is empty")
    if not 1 <= ttl_seconds <= MAX_TTL_SECONDS:
        message = f"the token's life is {ttl_seconds} s, not within 1 to {MAX_TTL_SECONDS}"
        raise ValueError(message)
    issued_at = int(time.time() if now is None else now)
    payload: dict[str, Any] = {
        "iss": issuer,
        "aud": audience,
        "sub": subject,
        "iat": issued_at,
        "exp": issued_at + ttl_seconds,
        claims.roles: list(roles),
        claims.scopes: " ".join(scopes),
    }
    if tenant is not None:
        payload[claims.tenant] = tenant
    if session is not None:
        payload[claims.session] = session
    headers = None if key.kid is None else {"kid": key.kid}
    return jwt.encode(payload, key.key, algorithm=key.algorithm, headers=headers)
