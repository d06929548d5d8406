"""The client side of commands: where the service is, as whom to call, and what its errors mean here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from toolbelay.cli import dev_state
from toolbelay.cli.exits import REFUSED, UNAVAILABLE, UNCONFIRMED, USAGE, CommandError
from toolbelay.cli.minted import mint_token
from toolbelay.settings import Settings
from toolbelay.settings_check import parse_address
from toolbelay.v1 import admin_pb2_grpc, selection_pb2_grpc

TIMEOUT: Final = 30.0  # seconds of one call
MAX_ANSWER: Final = 24 * 1024 * 1024
_T = TypeVar("_T")
_OUTAGE: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Caller:
    """Options of `caller_options`."""

    address: str | None = None
    token_file: str | None = None
    sub: str | None = None
    roles: tuple[str, ...] = ()
    tenant: str | None = None
    session: str | None = None
    admin: bool = False


def target_of(address: str | None) -> str:
    """The service's address: the option, TOOLBELAY_ADDRESS, or where the settings say it listens."""
    text = address or os.environ.get("TOOLBELAY_ADDRESS") or _loopback(dev_state.settings_of().listen)
    try:
        return parse_address(text).target
    except ValueError:
        return text  # a gRPC name such as dns:///toolbelay:50051


def channel_to(target: str) -> grpc.Channel:
    """A channel; TLS when TOOLBELAY_CA names an authority, mutual TLS with TOOLBELAY_CLIENT_CERT and _KEY."""
    options: list[tuple[str, Any]] = [("grpc.max_receive_message_length", MAX_ANSWER)]
    authority = _file("TOOLBELAY_CA")
    if authority is None:
        return grpc.insecure_channel(target, options)
    name = os.environ.get("TOOLBELAY_SERVER_NAME")
    if name:
        options.append(("grpc.ssl_target_name_override", name))
    key, certificate = _file("TOOLBELAY_CLIENT_KEY"), _file("TOOLBELAY_CLIENT_CERT")
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(authority, key, certificate), options)


def _file(variable: str) -> bytes | None:
    path = os.environ.get(variable)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{variable}: {path}: {error.strerror}", code=REFUSED) from None


@contextmanager
def service(caller: Caller) -> Iterator[tuple[grpc.Channel, tuple[tuple[str, str], ...]]]:
    """A channel to the service and the metadata of `caller`; gRPC errors become CommandError."""
    target = target_of(caller.address)
    metadata = (("authorization", f"Bearer {_token(caller)}"),)
    with channel_to(target) as channel:
        try:
            yield channel, metadata
        except grpc.RpcError as error:
            raise refusal(error, target) from None


def selection(channel: grpc.Channel) -> Any:
    """A stub of ToolSelectionService."""
    stub: Any = selection_pb2_grpc.ToolSelectionServiceStub
    return stub(channel)


def admin(channel: grpc.Channel) -> Any:
    """A stub of AdminService."""
    stub: Any = admin_pb2_grpc.AdminServiceStub
    return stub(channel)


def call(method: Callable[..., _T], request: Any, metadata: tuple[tuple[str, str], ...]) -> _T:
    """One call under the commands' deadline."""
    return method(request, metadata=metadata, timeout=TIMEOUT)


def refusal(error: grpc.RpcError, target: str) -> CommandError:
    """What an RPC's failure means at a terminal."""
    code, (reason, field) = error.code(), _reason_and_field(error)
    text = f"{field}: {error.details() or code.name}" if field else error.details() or code.name
    if reason == "PROPAGATION_UNCONFIRMED":
        return CommandError(text, code=UNCONFIRMED)
    if code in _OUTAGE:
        hint = "" if reason else f"; is the service running at {target}? Try `toolbelay serve --dev` or --address"
        return CommandError(f"{reason or code.name}: {text}{hint}", code=UNAVAILABLE)
    remedy = _REMEDIES.get(reason, "")
    return CommandError(f"{reason or code.name}: {text}{remedy}", code=REFUSED)


_REMEDIES: Final = {
    "TOKEN_EXPIRED": "; mint a new one with `toolbelay token mint`",
    "TOKEN_INVALID": "; mint one with `toolbelay token mint`, issuer and audience as the service has them",
    "ADMIN_ROLE_REQUIRED": "; mint one with --role toolbelay.admin",
    "ROUTE_NOT_FOUND": "; `toolbelay apply DIR` puts a folder's tools, policies and routes into force",
}


def _reason_and_field(error: grpc.RpcError) -> tuple[str, str]:
    """What the rich status says; "" where it says nothing."""
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # every RpcError of a call is one
    except ValueError:
        return "", ""
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    reason = field = ""
    for detail in status.details if status else ():
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(request) and request.field_violations:
            field = request.field_violations[0].field
    return reason, field


def _token(caller: Caller) -> str:
    given = Path(caller.token_file).read_text() if caller.token_file else os.environ.get("TOOLBELAY_TOKEN", "")
    if given.strip():
        if caller.sub or caller.roles or caller.tenant:
            source = "--token-file" if caller.token_file else "TOOLBELAY_TOKEN"
            raise CommandError(
                f"--sub, --role and --tenant are for a token minted here, and {source} gives one; use one or the other",
                code=USAGE,
            )
        return given.strip()
    roles = caller.roles or (("toolbelay.admin",) if caller.admin else ())
    return mint_token(_minting_settings(), subject=caller.sub or "dev", tenant=caller.tenant, roles=roles, session=None)


def _minting_settings() -> Settings:
    settings = dev_state.settings_of()
    if dev_state.using_dev_state() or settings.jwt_hs256_secret is not None:
        return settings
    raise CommandError(
        "no token: set TOOLBELAY_TOKEN, give --token-file, or run in the folder of a `toolbelay serve --dev`",
        code=REFUSED,
    )


def _loopback(listen: str) -> str:
    """An address to connect to for one that listens on all interfaces."""
    for anywhere, loopback in (("0.0.0.0:", "127.0.0.1:"), ("[::]:", "[::1]:")):
        if listen.startswith(anywhere):
            return loopback + listen.removeprefix(anywhere)
    return listen
