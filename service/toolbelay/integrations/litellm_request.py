"""What the LiteLLM proxy says of a request and its user, and how the hook is configured. Pure; imports no litellm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast, get_args

from toolbelay.client import Tls, TokenMinter, ToolbelayCallError
from toolbelay.client.prepared import Format, OnError

# The proxy's call types that carry a chat request, and the shape that their tools have.
FORMATS: Final[Mapping[str, Format]] = {
    "completion": "openai_chat",
    "acompletion": "openai_chat",
    "responses": "openai_responses",
    "aresponses": "openai_responses",
    "anthropic_messages": "anthropic_messages",
    "aanthropic_messages": "anthropic_messages",
}
_NO_MODEL: Final = frozenset({"call_mcp_tool", "list_mcp_tools"})  # the proxy's own MCP gateway at work
SESSION_HEADERS: Final = ("x-session-id", "x-litellm-session-id", "x-claude-code-session-id")
TURN_HEADER: Final = "x-toolbelay-turn-id"
_STATUS: Final = {"INVALID_ARGUMENT": 400, "PERMISSION_DENIED": 403, "FAILED_PRECONDITION": 403}
_LABELS: Final = (("user_role", "litellm"), ("team_id", "team"), ("org_id", "organization"))
_MAX_LABEL: Final = 128


class HookSettingError(ValueError):
    """A setting of the hook that is missing or wrong; the message names it."""


@dataclass(frozen=True, slots=True)
class HookUser:
    """The proxy's user: what the token says. Nothing of it is taken from the request."""

    subject: str
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HookOptions:
    """How the hook reaches the service, and as whom.

    `tenant`: "" = the token names none, for services with a default tenant. `timeout`: seconds of one
    selection. `on_error`: see the client. `other_calls`: what becomes of requests with tools on endpoints
    whose tools the hook cannot select: "refuse" or "pass".
    """

    address: str
    minter: TokenMinter = field(repr=False)
    tenant: str = ""
    route: str = ""
    timeout: float = 1.0
    on_error: OnError = "raise"
    other_calls: str = "refuse"
    tls: Tls | None = None


def options_from(environment: Mapping[str, str]) -> HookOptions:
    """Options from the proxy's environment. Raises HookSettingError; docs/integrations/litellm.md lists them."""
    settings = _Environment(environment)
    on_error = settings.one_of("TOOLBELAY_HOOK_ON_ERROR", get_args(OnError))
    timeout = settings.get("TOOLBELAY_HOOK_TIMEOUT", "1.0")
    try:
        seconds = float(timeout)
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds <= 60:
        raise HookSettingError(f"TOOLBELAY_HOOK_TIMEOUT is {timeout!r}, not a number of seconds within 0.01 to 60")
    return HookOptions(
        address=settings.required("TOOLBELAY_ADDRESS"),
        minter=_minter(settings),
        tenant=settings.get("TOOLBELAY_HOOK_TENANT"),
        route=settings.get("TOOLBELAY_HOOK_ROUTE"),
        timeout=seconds,
        on_error=cast("OnError", on_error),
        other_calls=settings.one_of("TOOLBELAY_HOOK_OTHER_CALLS", ("refuse", "pass")),
        tls=_tls(settings),
    )


def user_of(key: Any) -> HookUser | None:
    """The user of a UserAPIKeyAuth; `None` for a key that has none.

    Roles are facts that the proxy vouches for: `litellm:<user_role>`, `team:<team_id>` and
    `organization:<org_id>`. A key's metadata is no source, as users may write their own keys'; nor is the
    request's `user`, which anybody may write.
    """
    subject = getattr(key, "user_id", None)
    if not isinstance(subject, str) or not subject.strip():
        return None
    roles = []
    for attribute, prefix in _LABELS:
        value = getattr(key, attribute, None)
        text = getattr(value, "value", value)  # user_role is an enum
        if isinstance(text, str) and 0 < len(text) <= _MAX_LABEL:
            roles.append(f"{prefix}:{text}")
    return HookUser(subject, tuple(roles))


def header(data: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of the headers that the request has; "" where it has none of them.

    From `secret_fields.raw_headers`: the proxy takes private headers out of `proxy_server_request`.
    """
    secret = data.get("secret_fields")
    raw = secret.get("raw_headers") if isinstance(secret, Mapping) else getattr(secret, "raw_headers", None)
    given = {str(key).lower(): value for key, value in raw.items()} if isinstance(raw, Mapping) else {}
    found = (given.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), "")


def offers_tools(data: Mapping[str, Any], call_type: str) -> bool:
    """Whether a request on some other endpoint carries tools to a model."""
    return call_type not in _NO_MODEL and bool(data.get("tools") or data.get("functions"))


def status_of(error: ToolbelayCallError) -> int:
    """The HTTP status of a failed selection; what is not the user's fault is the proxy's 503."""
    return 503 if error.is_outage else _STATUS.get(error.code.name, 503)


class _Environment:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def get(self, name: str, default: str = "") -> str:
        return self._environment.get(name, "").strip() or default

    def required(self, name: str) -> str:
        value = self.get(name)
        if not value:
            raise HookSettingError(f"{name} is not set")
        return value

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        value = self.get(name, choices[0])
        if value not in choices:
            raise HookSettingError(f"{name} is {value!r}, not one of {', '.join(choices)}")
        return value

    def file(self, name: str) -> bytes | None:
        path = self.get(name)
        if not path:
            return None
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise HookSettingError(f"{name}: {path}: {error.strerror}") from None


def _minter(settings: _Environment) -> TokenMinter:
    secret, pem = settings.get("TOOLBELAY_JWT_HS256_SECRET"), settings.file("TOOLBELAY_HOOK_SIGNING_KEY")
    if bool(secret) == (pem is not None):
        raise HookSettingError("set one of TOOLBELAY_JWT_HS256_SECRET and TOOLBELAY_HOOK_SIGNING_KEY")
    issuer, audience = settings.required("TOOLBELAY_JWT_ISSUER"), settings.required("TOOLBELAY_JWT_AUDIENCE")
    try:
        if pem is not None:
            kid = settings.required("TOOLBELAY_HOOK_SIGNING_KEY_ID")
            return TokenMinter.eddsa(pem, kid=kid, issuer=issuer, audience=audience)
        return TokenMinter.hs256(secret.encode(), issuer=issuer, audience=audience)
    except HookSettingError:
        raise
    except ValueError as error:
        name = "TOOLBELAY_JWT_HS256_SECRET" if pem is None else "TOOLBELAY_HOOK_SIGNING_KEY"
        raise HookSettingError(f"{name}: {error}") from None


def _tls(settings: _Environment) -> Tls | None:
    authority = settings.file("TOOLBELAY_CA")
    if authority is None:
        return None
    key, chain = settings.file("TOOLBELAY_CLIENT_KEY"), settings.file("TOOLBELAY_CLIENT_CERT")
    return Tls(authority, key, chain, settings.get("TOOLBELAY_SERVER_NAME"))
