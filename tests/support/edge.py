"""The server shell with a stand-in application, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from toolbelay.api.context import CallContext
from toolbelay.api.interceptor import Gate
from toolbelay.api.methods import ADMIN_SERVICE, SELECTION_SERVICE
from toolbelay.api.server import ListenOptions, Server
from toolbelay.authority.principal import Principal
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.settings_check import Address
from toolbelay.telemetry.metrics import Metrics
from toolbelay.v1 import admin_pb2, selection_pb2


def raw(channel: grpc.aio.Channel) -> Any:
    """The channel, untyped: calls with bytes need no serializers."""
    return channel


USER = (("authorization", "Bearer user"),)
ADMIN = (("authorization", "Bearer admin"),)


class NamedTokens:
    """Knows the tokens "user" and "admin"."""

    async def verify(self, authorization_values: Sequence[str | bytes], /) -> Principal:
        if not authorization_values:
            raise ToolbelayError(ErrorReason.TOKEN_MISSING, "no authorization")
        if list(authorization_values) == ["Bearer user"]:
            return Principal("acme", "issuer", "u1")
        if list(authorization_values) == ["Bearer admin"]:
            return Principal("acme", "issuer", "a1", frozenset({"toolbelay.admin"}))
        raise ToolbelayError(ErrorReason.TOKEN_INVALID, "the token does not verify")


@dataclass
class StubSelection:
    """Answers, raises or waits as the test says."""

    raises: BaseException | None = None
    hold: asyncio.Event | None = None
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[CallContext] = field(default_factory=list)
    answer: selection_pb2.SelectToolsResponse | bytes = field(default_factory=selection_pb2.SelectToolsResponse)

    async def SelectTools(  # noqa: N802 - the RPC's name
        self, request: selection_pb2.SelectToolsRequest, call: CallContext
    ) -> selection_pb2.SelectToolsResponse | bytes:
        self.calls.append(call)
        self.entered.set()
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if self.raises is not None:
            raise self.raises
        return self.answer

    async def AuthorizeToolCalls(  # noqa: N802
        self, request: selection_pb2.AuthorizeToolCallsRequest, call: CallContext
    ) -> selection_pb2.AuthorizeToolCallsResponse:
        return selection_pb2.AuthorizeToolCallsResponse()

    async def GetSession(  # noqa: N802
        self, request: selection_pb2.GetSessionRequest, call: CallContext
    ) -> selection_pb2.GetSessionResponse:
        return selection_pb2.GetSessionResponse()

    async def EndSession(  # noqa: N802
        self, request: selection_pb2.EndSessionRequest, call: CallContext
    ) -> selection_pb2.EndSessionResponse:
        return selection_pb2.EndSessionResponse()


class StubAdmin:
    """Counts chunks and streams two items."""

    async def ApplyConfig(  # noqa: N802
        self, requests: AsyncIterator[admin_pb2.ApplyConfigRequest], call: CallContext
    ) -> admin_pb2.ApplyConfigResponse:
        return admin_pb2.ApplyConfigResponse(generation=len([item async for item in requests]))

    async def GetConfig(  # noqa: N802
        self, request: admin_pb2.GetConfigRequest, call: CallContext
    ) -> AsyncIterator[admin_pb2.GetConfigResponse]:
        yield admin_pb2.GetConfigResponse(generation=1)
        yield admin_pb2.GetConfigResponse(generation=1)

    async def ExplainDecision(  # noqa: N802
        self, request: admin_pb2.ExplainDecisionRequest, call: CallContext
    ) -> admin_pb2.ExplainDecisionResponse:
        return admin_pb2.ExplainDecisionResponse()

    async def EndSessions(  # noqa: N802
        self, request: admin_pb2.EndSessionsRequest, call: CallContext
    ) -> admin_pb2.EndSessionsResponse:
        return admin_pb2.EndSessionsResponse()


@dataclass
class Edge:
    """A running shell."""

    server: Server
    gate: Gate
    metrics: Metrics
    target: str


@asynccontextmanager
async def running_edge(
    selection: StubSelection | None = None,
    *,
    options: ListenOptions | None = None,
    max_concurrent: int = 16,
    ready: bool = True,
) -> AsyncIterator[Edge]:
    """The shell on a free loopback port."""
    server = Server(options or ListenOptions(Address("127.0.0.1", 0)))
    port = server.bind()
    metrics = Metrics()
    gate = Gate(NamedTokens(), metrics, max_concurrent=max_concurrent)
    servicers: Mapping[str, object] = {
        SELECTION_SERVICE: selection or StubSelection(),
        ADMIN_SERVICE: StubAdmin(),
    }
    await server.start(gate, servicers)
    if ready:
        await server.set_ready(ready=True)
    try:
        yield Edge(server, gate, metrics, f"127.0.0.1:{port}")
    finally:
        await server.stop(0)
