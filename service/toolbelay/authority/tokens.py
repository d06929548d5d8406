"""From an `authorization` value to a principal."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from jwt.exceptions import InvalidSubjectError

from toolbelay.authority.claims import (
    ClaimNames,
    TokenRefusedError,
    check_header,
    check_times,
    principal_from_claims,
)
from toolbelay.authority.key_refresh import JwksFile, JwksUrl
from toolbelay.authority.keys import (
    ASYMMETRIC_ALGORITHMS,
    SECRET_ALGORITHM,
    KeySource,
    KeysUnavailableError,
    SecretSource,
    VerificationKey,
    checked_algorithms,
)
from toolbelay.authority.principal import Principal
from toolbelay.errors import ErrorReason, ToolbelayError

MAX_AUTHORIZATION_BYTES = 32 * 1024
LEEWAY_SECONDS = 5.0
REMEMBERED_TOKENS = 16_384

_BEARER = re.compile(r"bearer +([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+) *", re.IGNORECASE | re.ASCII)
# Only the signature is left to PyJWT's decode(): times and types are checked more strictly in claims.py.
_OPTIONS: Any = {
    "require": ["iss", "aud", "exp", "sub"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """What the verifier is told at start-up. Exactly one of the three key sources is set.

    `algorithms` None: HS256 with a secret, all asymmetric ones with a key set.
    `default_tenant`: the tenant of tokens without the claim; None refuses them.
    `jwks_allow_http`: take keys over plain http from another host, such as inside a cluster.
    """

    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...] | None = None
    hs256_secret: bytes | None = field(default=None, repr=False)
    jwks_file: Path | None = None
    jwks_url: str | None = None
    jwks_allow_http: bool = False
    claims: ClaimNames = field(default_factory=ClaimNames)
    default_tenant: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError, in words for an operator, when tokens could not be verified safely."""
        if not self.issuer.strip():
            raise ValueError("the token issuer is empty")
        if not self.audiences or not all(audience.strip() for audience in self.audiences):
            raise ValueError("the token audience is empty")
        if self.default_tenant is not None and not self.default_tenant.strip():
            raise ValueError("the default tenant is empty")
        given = [self.hs256_secret is not None, self.jwks_file is not None, self.jwks_url is not None]
        if sum(given) != 1:
            raise ValueError("exactly one key source is needed: an HS256 secret, a JWKS file or a JWKS URL")

    @property
    def allowed(self) -> frozenset[str]:
        """The algorithm allow-list."""
        secret = self.hs256_secret is not None
        default = (SECRET_ALGORITHM,) if secret else tuple(ASYMMETRIC_ALGORITHMS)
        return checked_algorithms(default if self.algorithms is None else self.algorithms, secret=secret)

    def source(self) -> KeySource:
        """Make the key source."""
        allowed = self.allowed
        if self.hs256_secret is not None:
            return SecretSource(self.hs256_secret)
        if self.jwks_file is not None:
            return JwksFile(self.jwks_file, allowed)
        return JwksUrl(str(self.jwks_url), allowed, allow_http=self.jwks_allow_http)


class TokenCache:
    """Verified tokens by SHA-256: least recently used leave beyond `capacity`."""

    def __init__(self, capacity: int = REMEMBERED_TOKENS) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[bytes, tuple[Principal, float, int]] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes, version: int | None, now: float) -> Principal | None:
        """Recall a principal, while the token is valid and the key set is the one that verified it."""
        entry = self._entries.get(digest)
        if entry is not None:
            principal, until, verified_with = entry
            if verified_with == version and now < until:
                self._entries.move_to_end(digest)
                self.hits += 1
                return principal
            del self._entries[digest]
        self.misses += 1
        return None

    def put(self, digest: bytes, principal: Principal, until: float, version: int) -> None:
        """Remember until `until` (Unix seconds) for one version of the key set."""
        self._entries[digest] = (principal, until, version)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


class TokenVerifier:
    """Verifies bearer tokens.

    `refused` counts refusals by cause; the causes are a fixed set of words without content.
    """

    def __init__(
        self,
        config: TokenConfig,
        *,
        source: KeySource | None = None,
        remembered: int = REMEMBERED_TOKENS,
        now: Callable[[], float] = time.time,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        """Raise ValueError when `config` names algorithms or keys that cannot be used."""
        self._config = config
        self._allowed = config.allowed
        self._source = source if source is not None else config.source()
        self._now = now
        self._on_refused = on_refused
        self.cache = TokenCache(remembered)
        self.refused: Counter[str] = Counter()

    async def start(self) -> None:
        """Read the keys. Raises JwksError for a key file that cannot be used; a URL is tried again later."""
        await self._source.start()

    async def close(self) -> None:
        """Stop reading keys."""
        await self._source.close()

    @property
    def ready(self) -> bool:
        """Whether there are keys to verify with."""
        return self._source.version() is not None

    async def verify(self, authorization_values: Sequence[str | bytes]) -> Principal:
        """Give the principal of the call's one `authorization` value.

        Raises ToolbelayError TOKEN_MISSING, TOKEN_INVALID or TOKEN_EXPIRED, or AUTHORITY_UNVERIFIABLE
        while no key set could be read. Messages hold nothing of the token.
        """
        try:
            return await self._verify(authorization_values)
        except TokenRefusedError as refusal:
            self.refused[refusal.cause] += 1
            if self._on_refused is not None:
                self._on_refused(refusal.cause)
            # `from None`: the chain of a library's error could carry claims into a log.
            raise ToolbelayError(refusal.reason, refusal.message) from None
        except KeysUnavailableError:
            self.refused["keys_unavailable"] += 1
            if self._on_refused is not None:
                self._on_refused("keys_unavailable")
            message = "the keys to verify tokens with are not available"
            raise ToolbelayError(ErrorReason.AUTHORITY_UNVERIFIABLE, message) from None

    async def _verify(self, values: Sequence[str | bytes]) -> Principal:
        value = _one_value(values)
        digest = hashlib.sha256(value.encode("ascii")).digest()
        now = self._now()
        known = self.cache.get(digest, self._source.version(), now)
        if known is not None:
            return known
        token = _bearer(value)
        kid, algorithm = check_header(_header(token), self._allowed)
        keys = await self._source.candidates(kid, algorithm)
        version = self._source.version()
        claims = self._verified_claims(token, algorithm, keys)
        expires_at = check_times(claims, self._now(), LEEWAY_SECONDS)
        principal = principal_from_claims(
            claims, self._config.claims, self._config.issuer, self._config.default_tenant, expires_at
        )
        if version is not None:
            self.cache.put(digest, principal, expires_at + LEEWAY_SECONDS, version)
        return principal

    def _verified_claims(self, token: str, algorithm: str, keys: Sequence[VerificationKey]) -> Mapping[str, Any]:
        if not keys:
            raise TokenRefusedError("unknown_key", "the token names no known key for its algorithm")
        for key in keys:
            try:
                return self._decode(token, algorithm, key)
            except jwt.InvalidSignatureError:
                continue
        raise TokenRefusedError("signature", "the token's signature does not verify")

    def _decode(self, token: str, algorithm: str, key: VerificationKey) -> Mapping[str, Any]:
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.jwk.key,
                algorithms=[algorithm],
                audience=list(self._config.audiences),
                issuer=self._config.issuer,
                options=_OPTIONS,
            )
        except jwt.InvalidSignatureError:
            raise
        except jwt.MissingRequiredClaimError:
            raise TokenRefusedError("claim_missing", "the token lacks one of iss, aud, exp, sub") from None
        except jwt.InvalidIssuerError:
            raise TokenRefusedError("issuer", "the token's `iss` is not the expected issuer") from None
        except jwt.InvalidAudienceError:
            raise TokenRefusedError("audience", "the token's `aud` does not name this service") from None
        except InvalidSubjectError:
            raise TokenRefusedError("subject", "the token's `sub` is not a string") from None
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise TokenRefusedError("malformed", "the token is malformed") from None
        return claims


def _one_value(values: Sequence[str | bytes]) -> str:
    if not values:
        raise TokenRefusedError("missing", "no authorization value", ErrorReason.TOKEN_MISSING)
    if len(values) > 1:
        raise TokenRefusedError("several_values", "more than one authorization value")
    value = values[0]
    if len(value) > MAX_AUTHORIZATION_BYTES:
        message = f"the authorization value is larger than {MAX_AUTHORIZATION_BYTES} bytes"
        raise TokenRefusedError("too_large", message)
    try:
        text = value.decode("ascii") if isinstance(value, bytes) else value
        text.encode("ascii")
    except UnicodeError:
        raise TokenRefusedError("malformed", "the authorization value is not ASCII") from None
    if not text.strip():
        raise TokenRefusedError("missing", "the authorization value is empty", ErrorReason.TOKEN_MISSING)
    return text


def _bearer(value: str) -> str:
    match = _BEARER.fullmatch(value)
    if match is None:
        raise TokenRefusedError("scheme", "the authorization value is not `Bearer <JWT>`")
    return match[1]


def _header(token: str) -> Mapping[str, Any]:
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenRefusedError("malformed", "the token is malformed") from None
    return header
