"""Keys that tokens are verified with: which key may verify which algorithm is fixed here, on the server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

ASYMMETRIC_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
SECRET_ALGORITHM = "HS256"  # noqa: S105 - an algorithm's name
ALGORITHMS = ASYMMETRIC_ALGORITHMS | {SECRET_ALGORITHM}

MIN_SECRET_BYTES = 32
MIN_RSA_BITS = 2048
MAX_JWKS_BYTES = 256 * 1024
MAX_KEYS = 64
MAX_KID_BYTES = 256
MAX_KEYS_OF_ONE_KID = 3  # each candidate costs a signature check, so their number is bounded

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_BY_CURVE = {
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
    ("OKP", "Ed448"): frozenset({"EdDSA"}),
}


class KeysUnavailableError(Exception):
    """No key set may be used now: none was ever read, or the last good one is too old."""


class JwksError(Exception):
    """A key set cannot be used. The message holds no key material."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """One key and the algorithms it verifies. `kid` None: a key without a name."""

    kid: str | None
    algorithms: frozenset[str]
    jwk: jwt.PyJWK = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys read at one time."""

    keys: tuple[VerificationKey, ...] = ()

    def candidates(self, kid: str | None, algorithm: str) -> tuple[VerificationKey, ...]:
        """Keys that may verify a token with this header; without a `kid`, only an unambiguous one."""
        fitting = [key for key in self.keys if algorithm in key.algorithms]
        if kid is None:
            return tuple(fitting) if len(fitting) == 1 else ()
        return tuple(key for key in fitting if key.kid == kid)[:MAX_KEYS_OF_ONE_KID]


class KeySource(Protocol):
    """Where verification keys come from."""

    async def start(self) -> None:
        """Read the keys for the first time; raises JwksError only for a fault that waiting cannot cure."""

    async def close(self) -> None:
        """Stop background work."""

    def version(self) -> int | None:
        """A number that changes with the key set; `None` = no key may be used now. Never waits."""

    async def candidates(self, kid: str | None, algorithm: str) -> tuple[VerificationKey, ...]:
        """Keys for this header. Waits only when no known key fits. Raises KeysUnavailableError."""


class SecretSource:
    """One shared HS256 secret. A `kid` is not looked at: there is one key."""

    def __init__(self, secret: bytes) -> None:
        """Take a secret of at least 32 bytes; raises ValueError otherwise."""
        if len(secret) < MIN_SECRET_BYTES:
            message = f"the HS256 secret has {len(secret)} bytes, it needs at least {MIN_SECRET_BYTES}"
            raise ValueError(message)
        try:
            # A PEM or SSH public key as HMAC secret is the classic confusion; PyJWT refuses it.
            jwt.get_algorithm_by_name(SECRET_ALGORITHM).prepare_key(secret)
        except jwt.InvalidKeyError:
            message = "the HS256 secret looks like an asymmetric key; use a random secret"
            raise ValueError(message) from None
        encoded = jwt.utils.base64url_encode(secret).decode()
        jwk = jwt.PyJWK({"kty": "oct", "k": encoded}, algorithm=SECRET_ALGORITHM)
        self._keys = (VerificationKey(None, frozenset({SECRET_ALGORITHM}), jwk),)

    async def start(self) -> None:
        """Nothing to read."""

    async def close(self) -> None:
        """Nothing to stop."""

    def version(self) -> int | None:
        """Tell the constant version of a constant key."""
        return 0

    async def candidates(self, kid: str | None, algorithm: str) -> tuple[VerificationKey, ...]:  # noqa: ARG002 - the protocol's shape
        """Give the secret, for HS256 only."""
        return self._keys if algorithm == SECRET_ALGORITHM else ()


def parse_jwks(document: bytes, allowed: frozenset[str]) -> KeySet:
    """Read a JSON Web Key Set (RFC 7517), at most 256 KiB and 64 keys.

    Keys that cannot verify an allowed algorithm (encryption keys, unknown types, symmetric keys, weak
    RSA keys) are left out. Raises JwksError when the document is malformed or no key remains.
    """
    if len(document) > MAX_JWKS_BYTES:
        raise JwksError(f"the key set is larger than {MAX_JWKS_BYTES} bytes")
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        raise JwksError("the key set is not JSON") from None
    entries = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list):
        raise JwksError("the key set has no list `keys`")
    if len(entries) > MAX_KEYS:
        raise JwksError(f"the key set has {len(entries)} keys, more than {MAX_KEYS}")
    keys = tuple(key for entry in entries if (key := _key(entry, allowed)) is not None)
    if not keys:
        raise JwksError("the key set has no key for an allowed signature algorithm")
    return KeySet(keys)


def _key(entry: object, allowed: frozenset[str]) -> VerificationKey | None:
    if not isinstance(entry, dict) or not _meant_for_verification(entry):
        return None
    kid = entry.get("kid")
    if kid is not None and (not isinstance(kid, str) or len(kid.encode("utf-8", "replace")) > MAX_KID_BYTES):
        return None
    algorithms = _algorithms(entry) & allowed
    if not algorithms:
        return None
    public = {name: value for name, value in entry.items() if name in {"kty", "crv", "x", "y", "n", "e"}}
    try:
        jwk = jwt.PyJWK(public, algorithm=min(algorithms))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(jwk.key, RSAPublicKey) and jwk.key.key_size < MIN_RSA_BITS:
        return None
    return VerificationKey(kid, algorithms, jwk)


def _meant_for_verification(entry: Mapping[str, Any]) -> bool:
    operations = entry.get("key_ops")
    may_verify = operations is None or (isinstance(operations, list) and "verify" in operations)
    return entry.get("use") in (None, "sig") and may_verify


def _algorithms(entry: Mapping[str, Any]) -> frozenset[str]:
    """Algorithms by key type and curve, narrowed by the key's own `alg`."""
    kind = entry.get("kty")
    curve = entry.get("crv")
    if kind == "RSA":
        by_type = _RSA
    elif isinstance(kind, str) and isinstance(curve, str):
        by_type = _BY_CURVE.get((kind, curve), frozenset())
    else:
        by_type = frozenset()
    named = entry.get("alg")
    if named is None:
        return by_type
    return by_type & {named} if isinstance(named, str) else frozenset()


def checked_algorithms(names: Iterable[str], *, secret: bool) -> frozenset[str]:
    """Give the allow-list, checked against the kind of key source; raises ValueError."""
    allowed = frozenset(names)
    usable = frozenset({SECRET_ALGORITHM}) if secret else ASYMMETRIC_ALGORITHMS
    unknown = sorted(allowed - usable)
    if unknown:
        source = "an HS256 secret" if secret else "a key set"
        message = f"algorithms {unknown} cannot be used with {source}; it allows {sorted(usable)}"
        raise ValueError(message)
    if not allowed:
        raise ValueError("the list of token algorithms is empty")
    return allowed
