"""What settings must hold before a command may go on: one line per fault, naming variable and remedy.

Pure apart from looking whether named files are there; nothing is connected to.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from toolbelay.settings import MIN_SECRET_BYTES, InvalidSettingsError, Settings

REDIS_SCHEMES: Final = (
    "redis://", "rediss://", "unix://",
    "redis+cluster://", "rediss+cluster://", "redis+sentinel://", "rediss+sentinel://",
)  # fmt: skip
SYMMETRIC: Final = frozenset({"HS256"})
ASYMMETRIC: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. `host` of a UNIX socket is "", `path` is set then."""

    host: str
    port: int
    path: str = ""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def target(self) -> str:
        """As gRPC writes it."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`host:port`, `[::1]:port` or `unix:/path`. Raises ValueError."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise ValueError("names no path after unix:")
        return Address("", 0, path)
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address needs brackets, as in [::1]:50051")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("must be host:port, such as 127.0.0.1:50051")
    return Address(host, int(port))


def require_serving(settings: Settings) -> None:
    """All that `toolbelay serve` needs. Raises InvalidSettingsError with every fault."""
    _require(settings, _listeners, _tls, _state, _identity, _database, _redis, _ranking)


def require_database(settings: Settings) -> None:
    """What commands on the database need."""
    _require(settings, _database)


def require_apply(settings: Settings) -> None:
    """What `toolbelay apply` needs: the database, and Redis to tell of the change."""
    _require(settings, _database, _redis)


def require_minting(settings: Settings) -> None:
    """What `toolbelay token mint` needs: the shared secret, issuer and audience."""
    _require(settings, _identity)
    if settings.jwt_hs256_secret is None:
        raise InvalidSettingsError(
            ["TOOLBELAY_JWT_HS256_SECRET: needed to mint tokens; with a JWKS your identity provider mints them"]
        )


def _require(settings: Settings, *rules: Callable[[Settings], Iterator[str]]) -> None:
    faults = [fault for rule in rules for fault in rule(settings)]
    if faults:
        raise InvalidSettingsError(faults)


def _listeners(settings: Settings) -> Iterator[str]:
    secured = bool(settings.tls_cert)
    for name in ("listen", "ext_proc_listen", "metrics_listen"):
        text = getattr(settings, name)
        if not text and name != "listen":
            continue
        try:
            address = parse_address(text)
        except ValueError as error:
            yield f"TOOLBELAY_{name.upper()}: {error}"
            continue
        if name == "metrics_listen":
            if address.path:
                yield "TOOLBELAY_METRICS_LISTEN: must be host:port"
        elif not address.loopback and not secured and not settings.allow_plaintext:
            yield (
                f"TOOLBELAY_{name.upper()}: {address.target} is not loopback and has no TLS; set TOOLBELAY_TLS_CERT"
                " and TOOLBELAY_TLS_KEY, or TOOLBELAY_ALLOW_PLAINTEXT=true"
            )
        elif name == "ext_proc_listen" and _trusts_strangers(settings, address):
            yield (
                "TOOLBELAY_EXT_PROC_TRUST_JWT_METADATA: needs a loopback or UNIX listener, or mutual TLS"
                " (TOOLBELAY_TLS_CLIENT_CA)"
            )
    if settings.workers > 1 and any(text.startswith("unix:") for text in (settings.listen, settings.ext_proc_listen)):
        yield "TOOLBELAY_WORKERS: a UNIX socket cannot be shared; use host:port or one worker"


def _trusts_strangers(settings: Settings, address: Address) -> bool:
    """Whether anybody who reaches the ext_proc listener could claim any identity."""
    return settings.ext_proc_trust_jwt_metadata and not address.loopback and not settings.tls_client_ca


def _tls(settings: Settings) -> Iterator[str]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        yield "TOOLBELAY_TLS_CERT, TOOLBELAY_TLS_KEY: set both or none"
    if settings.tls_client_ca and not settings.tls_cert:
        yield "TOOLBELAY_TLS_CLIENT_CA: needs TOOLBELAY_TLS_CERT and TOOLBELAY_TLS_KEY"
    for name in ("tls_cert", "tls_key", "tls_client_ca"):
        yield from _readable(name, getattr(settings, name))


def _state(settings: Settings) -> Iterator[str]:
    if settings.state_secret is None:
        yield (
            "TOOLBELAY_STATE_SECRET: missing; set the same value of 32 or more random bytes on every replica,"
            " from `openssl rand -base64 32`"
        )
    yield from _long_enough("state_secret", settings.state_secret)
    yield from _long_enough("state_secret_previous", settings.state_secret_previous)


def _identity(settings: Settings) -> Iterator[str]:
    if not settings.jwt_issuer.strip():
        yield "TOOLBELAY_JWT_ISSUER: missing; set the `iss` of your tokens"
    if not settings.jwt_audience:
        yield "TOOLBELAY_JWT_AUDIENCE: missing; set the `aud` of tokens meant for this service"
    elif not all(item.strip() for item in settings.jwt_audience):
        yield "TOOLBELAY_JWT_AUDIENCE: holds an empty audience, which would accept any token; remove it"
    given = [name for name in ("jwt_hs256_secret", "jwt_jwks_file", "jwt_jwks_url") if getattr(settings, name)]
    if len(given) != 1:
        found = "none is set" if not given else f"{' and '.join('TOOLBELAY_' + g.upper() for g in given)} are set"
        yield (
            "TOOLBELAY_JWT_HS256_SECRET, TOOLBELAY_JWT_JWKS_FILE, TOOLBELAY_JWT_JWKS_URL:"
            f" exactly one is needed, {found}"
        )
    yield from _long_enough("jwt_hs256_secret", settings.jwt_hs256_secret)
    yield from _readable("jwt_jwks_file", settings.jwt_jwks_file)
    yield from _jwks_url(settings)
    allowed = SYMMETRIC if settings.jwt_hs256_secret is not None else ASYMMETRIC
    strange = sorted(set(settings.jwt_algorithms) - allowed)
    if strange:
        yield (
            f"TOOLBELAY_JWT_ALGORITHMS: {', '.join(strange)} cannot be used with this key source;"
            f" choose from {', '.join(sorted(allowed))}"
        )


def _jwks_url(settings: Settings) -> Iterator[str]:
    url = settings.jwt_jwks_url
    if url and not url.startswith(("https://", "http://")):
        yield "TOOLBELAY_JWT_JWKS_URL: must begin with https://"
    elif url.startswith("http://") and not settings.jwt_jwks_allow_http and not _on_loopback(url):
        yield (
            "TOOLBELAY_JWT_JWKS_URL: keys over plain http can be replaced on the way; use https://,"
            " or set TOOLBELAY_JWT_JWKS_ALLOW_HTTP=true"
        )


def _on_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return Address(host, 0).loopback


def _database(settings: Settings) -> Iterator[str]:
    from toolbelay.storage.address import DatabaseAddress  # SQLAlchemy is slow to import and not always needed

    try:
        DatabaseAddress(settings.database_url.get_secret_value())
    except ValueError as fault:
        yield f"TOOLBELAY_{fault}"


def _redis(settings: Settings) -> Iterator[str]:
    from toolbelay.sessions.connect import parse  # redis-py is slow to import and not always needed

    url = settings.redis_url.get_secret_value()
    if not url.startswith(REDIS_SCHEMES):
        yield f"TOOLBELAY_REDIS_URL: must begin with one of {', '.join(REDIS_SCHEMES)}"
        return
    try:
        parse(url)
    except ValueError as fault:
        yield f"TOOLBELAY_REDIS_URL: {fault}"


def _ranking(settings: Settings) -> Iterator[str]:
    for kind in ("embeddings", "rewrite"):
        url, model = getattr(settings, f"{kind}_url"), getattr(settings, f"{kind}_model")
        if bool(url) != bool(model):
            yield f"TOOLBELAY_{kind.upper()}_URL, TOOLBELAY_{kind.upper()}_MODEL: set both or none"
        if url and not url.startswith(("https://", "http://")):
            yield f"TOOLBELAY_{kind.upper()}_URL: must begin with https:// or http://"


def _long_enough(name: str, secret: SecretStr | None) -> Iterator[str]:
    if secret is not None and len(secret.get_secret_value().encode()) < MIN_SECRET_BYTES:
        yield f"TOOLBELAY_{name.upper()}: shorter than {MIN_SECRET_BYTES} bytes; use `openssl rand -base64 32`"


def _readable(name: str, path: str) -> Iterator[str]:
    if not path:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        yield f"TOOLBELAY_{name.upper()}: {path}: {error.strerror}; name a readable file"
