"""Settings: environment variables `TOOLBELAY_*`, checked as a whole before anything starts.

Two steps, so that a command asks only for what it uses: `load` reads and types them and refuses unknown
names; `settings_check` says whether what a command needs is there.
Every fault is one line that names the variable and the remedy; no line repeats a secret's value.
`docs/configuration.md` is generated from the descriptions here (see `settings_table`).
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX: Final = "TOOLBELAY_"
MIN_SECRET_BYTES: Final = 32

# Read by client commands, not by the service.
CLIENT_VARIABLES: Final[Mapping[str, str]] = {
    "TOOLBELAY_TOKEN": "Bearer token of client commands such as `toolbelay select`.",
    "TOOLBELAY_ADDRESS": "Address of the service for client commands; default: `TOOLBELAY_LISTEN`.",
    "TOOLBELAY_CA": "PEM file of the authority that client commands trust; given = use TLS.",
    "TOOLBELAY_SERVER_NAME": "Name in the service's certificate, where it is not the address.",
    "TOOLBELAY_CLIENT_CERT": "PEM file of the client's certificate, for mutual TLS.",
    "TOOLBELAY_CLIENT_KEY": "PEM file of its private key.",
    "TOOLBELAY_HOOK_TENANT": "LiteLLM hook: tenant of the minted tokens; empty = the service's default tenant.",
    "TOOLBELAY_HOOK_ROUTE": "LiteLLM hook: route of every request; empty = the tenant's default route.",
    "TOOLBELAY_HOOK_TIMEOUT": "LiteLLM hook: seconds of one selection, 0.01 to 60; default 1.0.",
    "TOOLBELAY_HOOK_ON_ERROR": "LiteLLM hook: on an outage `raise` (default, 503), `no_tools` or `caller_tools`.",
    "TOOLBELAY_HOOK_OTHER_CALLS": "LiteLLM hook: requests with tools on other endpoints: `refuse` (default) or `pass`.",
    "TOOLBELAY_HOOK_SIGNING_KEY": "LiteLLM hook: PEM file of an Ed25519 key, instead of the HS256 secret.",
    "TOOLBELAY_HOOK_SIGNING_KEY_ID": "LiteLLM hook: the key's `kid` in the service's JWKS.",
}

Strings = Annotated[tuple[str, ...], NoDecode]


class InvalidSettingsError(Exception):
    """Settings that cannot be used. `faults`: one line each, naming the variable and the remedy."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


class Settings(BaseSettings):
    """The service's settings. A field `x` is the variable `TOOLBELAY_X`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=False
    )

    # Listener
    listen: str = Field("127.0.0.1:50051", description="Address of the gRPC listener: `host:port`, `[::1]:port`.")
    tls_cert: str = Field("", description="PEM file of the listener's certificate chain; turns TLS on.")
    tls_key: str = Field("", description="PEM file of the certificate's private key.")
    tls_client_ca: str = Field("", description="PEM file of the authority of client certificates; turns mutual TLS on.")
    allow_plaintext: bool = Field(False, description="Allow a listener without TLS on an address other than loopback.")
    reflection: bool = Field(False, description="Answer gRPC reflection, without a token.")
    max_concurrent: int = Field(
        256, ge=1, le=100_000, description="Calls at once in one worker; more are answered OVERLOADED."
    )
    max_connection_age_seconds: int = Field(
        0, ge=0, le=86_400, description="Ask clients to reconnect after this time, so that they spread; 0 = never."
    )
    grace_seconds: float = Field(
        10.0, ge=0, le=600, description="Time that running calls have to finish after SIGTERM."
    )
    workers: int = Field(1, ge=1, le=64, description="Processes that share the listener; as many as cores.")

    # Catalog, policy and routes
    database_url: SecretStr = Field(
        SecretStr("sqlite+aiosqlite:///toolbelay.db"),
        description="SQLAlchemy URL: `sqlite+aiosqlite:///file` or `postgresql+psycopg://user:password@host/db`.",
    )
    database_pool_size: int = Field(4, ge=1, le=100, description="Database connections of one worker.")
    authority_poll_seconds: float = Field(
        1.0, ge=0.05, le=60, description="How often a worker compares its generations with the database."
    )
    authority_max_unverified_seconds: float = Field(
        30.0, ge=1, le=3600, description="A worker that has not matched the database for so long answers nothing."
    )

    # Session state
    redis_url: SecretStr = Field(
        SecretStr("redis://127.0.0.1:6379/0"),
        description="`redis://`, `rediss://`, `unix://`, `redis+cluster://` or `redis+sentinel://` URL.",
    )
    redis_pool_size: int = Field(64, ge=1, le=10_000, description="Redis connections of one worker.")
    state_secret: SecretStr | None = Field(
        None, description="Keys the names of sessions in Redis; at least 32 bytes, the same on every replica."
    )
    state_secret_previous: SecretStr | None = Field(
        None, description="The secret before, read for one session TTL after a change of `STATE_SECRET`."
    )
    sessions_per_principal: int = Field(
        64, ge=1, le=10_000, description="Sessions that one principal may keep; the least recently used goes."
    )

    # Identity
    jwt_issuer: str = Field("", description="`iss` that tokens must have, exactly.")
    jwt_audience: Strings = Field((), description="`aud` that tokens must have: one, or a JSON list of which one.")
    jwt_algorithms: Strings = Field(
        (),
        description="JSON list of algorithms; default: HS256 with a secret, RS, PS, ES and EdDSA with a JWKS.",
    )
    jwt_hs256_secret: SecretStr | None = Field(
        None, description="Key source 1 of 3: a shared secret of at least 32 bytes."
    )
    jwt_jwks_file: str = Field("", description="Key source 2 of 3: a JWKS file, read again when it changes.")
    jwt_jwks_url: str = Field("", description="Key source 3 of 3: a JWKS URL, fetched every 300 s.")
    jwt_jwks_allow_http: bool = Field(
        False, description="Take keys over plain http from another host, such as inside a cluster."
    )
    claim_tenant: str = Field("tenant", min_length=1, description="Claim that names the tenant.")
    claim_roles: str = Field("roles", min_length=1, description="Claim that lists roles.")
    claim_scopes: str = Field("scope", min_length=1, description="Claim that lists scopes.")
    claim_session: str = Field(
        "toolbelay_session", min_length=1, description="Claim that binds a token to one session."
    )
    default_tenant: str = Field("", description="Tenant of tokens without a tenant claim; empty = refuse them.")

    # Ranking
    embeddings_url: str = Field(
        "", description="OpenAI-compatible base URL for vectors; empty = the static vectors in the package."
    )
    embeddings_model: str = Field("", description="Model of `EMBEDDINGS_URL`.")
    embeddings_api_key: SecretStr | None = Field(None, description="Key for `EMBEDDINGS_URL`.")
    rewrite_url: str = Field("", description="OpenAI-compatible base URL for the strategy `rewrite`.")
    rewrite_model: str = Field("", description="Model of `REWRITE_URL`.")
    rewrite_api_key: SecretStr | None = Field(None, description="Key for `REWRITE_URL`.")

    tokenizer_file: str = Field(
        "", description="`tokenizer.json` that counts the tokens of receipts; empty = bytes / 4."
    )

    # Envoy external processor
    ext_proc_listen: str = Field("", description="Address of the ext_proc listener; empty = off.")
    ext_proc_token_header: str = Field(
        "x-toolbelay-token", min_length=1, description="Header that carries the token; removed before the upstream."
    )
    ext_proc_use_authorization: bool = Field(
        False, description="Also take a JWT from `authorization` when the token header is absent."
    )
    ext_proc_trust_jwt_metadata: bool = Field(
        False, description="Take the payload that Envoy's jwt_authn verified; loopback, UNIX or mTLS listener only."
    )
    ext_proc_jwt_namespace: str = Field(
        "envoy.filters.http.jwt_authn", min_length=1, description="Dynamic metadata that jwt_authn writes."
    )
    ext_proc_metadata_namespace: str = Field(
        "toolbelay", min_length=1, description="Dynamic metadata that names the route and the model's capabilities."
    )
    ext_proc_session_header: str = Field(
        "x-session-id", min_length=1, description="Header that carries the session id."
    )
    ext_proc_route_header: str = Field("", description="Header that names the route; empty = dynamic metadata only.")
    ext_proc_turn_header: str = Field(
        "x-toolbelay-turn-id", description="Header that carries the turn id; empty = none."
    )
    ext_proc_deadline_ms: int = Field(150, ge=10, le=60_000, description="Time for one request of Envoy.")
    ext_proc_max_body_bytes: int = Field(
        8 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="Largest decoded body that is rewritten."
    )
    ext_proc_on_large_body: Literal["pass", "reject"] = Field(
        "pass", description="A body over the limit: `pass` it untouched, or `reject` it with 413."
    )
    ext_proc_on_unknown_encoding: Literal["pass", "reject"] = Field(
        "pass", description="A content-encoding that cannot be decoded: `pass` it, or `reject` it with 415."
    )
    ext_proc_allow_streamed: bool = Field(
        False,
        description="Take `request_body_mode: STREAMED`; beside `failure_mode_allow: true`, a dying processor would"
        " let half a body through.",
    )
    ext_proc_receipt_header: bool = Field(
        True, description="Add the content-free receipt to the response as `x-toolbelay-receipt`."
    )
    ext_proc_authorize_calls: bool = Field(
        False, description="Read buffered responses for tool calls and authorize them before they go on."
    )

    ext_proc_cache_breakpoint: bool = Field(
        False, description="Anthropic: add one cache breakpoint at the answer's stable prefix."
    )

    # Operations
    metrics_listen: str = Field("", description="`host:port` of the Prometheus endpoint; empty = off.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_format: Literal["json", "console"] = Field("json", description="JSON lines, or text for a person.")

    @field_validator("jwt_audience", "jwt_algorithms", mode="before")
    @classmethod
    def _one_or_json_list(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if not value.lstrip().startswith("["):
            return (value,) if value.strip() else ()
        try:
            return tuple(json.loads(value))
        except ValueError:
            raise ValueError('must be one value or a JSON list such as ["a","b"]') from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `load` hands in: one explicit environment, no files."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from `environment` (default: the process's). Raises InvalidSettingsError with every fault."""
    given = os.environ if environment is None else environment
    values = {name: value for name, value in given.items() if name.upper().startswith(PREFIX)}
    faults = [_unknown(name) for name in sorted(values) if name not in VARIABLES and name not in CLIENT_VARIABLES]
    known = {VARIABLES[name]: value for name, value in values.items() if name in VARIABLES}
    try:
        settings = Settings(**known)  # type: ignore[arg-type]
    except ValidationError as error:
        raise InvalidSettingsError([*faults, *map(_fault, error.errors(include_input=False))]) from None
    if faults:
        raise InvalidSettingsError(faults)
    return settings


def variable(field: str) -> str:
    """The environment variable of a field."""
    return PREFIX + field.upper()


def environment_of(settings: Settings) -> dict[str, str]:
    """The variables that make `load` give `settings` again; secrets in plain text, for a child process."""
    result: dict[str, str] = {}
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if value == field.default:
            continue
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        elif isinstance(value, tuple):
            value = json.dumps(value)
        result[variable(name)] = str(value)
    return result


def settings_table() -> str:
    """The Markdown table of every setting, as `docs/configuration.md` has it."""
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        rows.append(f"| `{variable(name)}` | {_default_text(field.default)} | {_bounded(name)} |")
    return "\n".join(rows) + "\n"


def client_table() -> str:
    """The Markdown table of the variables that client commands read."""
    rows = ["| variable | meaning |", "| --- | --- |"]
    rows += [f"| `{name}` | {text} |" for name, text in CLIENT_VARIABLES.items()]
    return "\n".join(rows) + "\n"


VARIABLES: Final[Mapping[str, str]] = {variable(name): name for name in Settings.model_fields}


def _unknown(name: str) -> str:
    known = [known.removeprefix(PREFIX) for known in (*VARIABLES, *CLIENT_VARIABLES)]
    near = difflib.get_close_matches(name.upper().removeprefix(PREFIX), known, n=1, cutoff=0.6)
    hint = f"did you mean {PREFIX}{near[0]}?" if near else "unset it; docs/configuration.md lists what there is"
    return f"{name}: no such setting; {hint}"


def _fault(item: Any) -> str:
    name = variable(str(item["loc"][0])) if item["loc"] else PREFIX
    return f"{name}: {item['msg'].removeprefix('Value error, ')}"


def _default_text(default: object) -> str:
    if default is None or default is PydanticUndefined or default in ("", ()):
        return ""
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


def _bounded(name: str) -> str:
    field = Settings.model_fields[name]
    bounds = {type(item).__name__: item for item in field.metadata}
    text = field.description or ""
    if "Ge" in bounds and "Le" in bounds:
        text += f" {bounds['Ge'].ge} to {bounds['Le'].le}."
    options = getattr(field.annotation, "__args__", ())
    if getattr(field.annotation, "__origin__", None) is Literal:
        text += " One of " + ", ".join(f"`{option}`" for option in options) + "."
    return text
