"""The asyncio client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import grpc
import grpc.aio

from toolbelay.client import calling
from toolbelay.client.calling import AsyncToken, Method, Tls
from toolbelay.client.errors import ToolbelayCallError, from_rpc
from toolbelay.client.prepared import Asked, OnError, Prepared, answered, ask, without_answer
from toolbelay.v1 import selection_pb2 as pb


class AsyncToolbelayClient:
    """Calls ToolSelectionService on the running event loop.

    `token`: a JWT, or a function from a session id to one (see `TokenMinter.for_user`), which may be async; each method
    takes another for its one call. `timeout`: seconds that a call may take, tries included. `tls`: `None` =
    plain text. `keepalive_seconds`: how often an idle connection is proven alive, at least 10. `options`:
    further gRPC channel options. `on_error`: what `prepare` does when the service cannot answer. Failed
    calls raise ToolbelayCallError.
    """

    def __init__(
        self,
        address: str,
        *,
        token: AsyncToken = "",
        timeout: float = 1.0,
        on_error: OnError = "raise",
        tls: Tls | None = None,
        keepalive_seconds: float = 20.0,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self._token = token
        self._timeout = timeout
        self._on_error = on_error
        self._floor = calling.Floor()
        merged = calling.channel_options(tls, keepalive_seconds, options)
        self._channel = (
            grpc.aio.insecure_channel(address, merged)
            if tls is None
            else grpc.aio.secure_channel(address, tls.credentials(), merged)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; running calls are cancelled."""
        await self._channel.close(grace=None)

    def require_generation(self, generation: int) -> None:
        """From here on no answer is older: read what you applied.

        For clients of one tenant; generations of tenants are not related, so others give each call its
        `min_generation`. Where a replica cannot reach it, the call fails with GENERATION_NOT_REACHED.
        """
        self._floor.raise_to(generation)

    async def select_tools(
        self, request: pb.SelectToolsRequest, *, token: AsyncToken | None = None, timeout: float | None = None
    ) -> pb.SelectToolsResponse:
        """The tools of one turn. Tried again only with a turn_id, without a session, or when overloaded."""
        raised = self._floor.apply(request)
        answer: pb.SelectToolsResponse = await self._call(calling.SELECT, raised, token, timeout)
        return answer

    async def authorize_tool_calls(
        self, request: pb.AuthorizeToolCallsRequest, *, token: AsyncToken | None = None, timeout: float | None = None
    ) -> pb.AuthorizeToolCallsResponse:
        """Whether the model's calls may be dispatched."""
        answer: pb.AuthorizeToolCallsResponse = await self._call(calling.AUTHORIZE, request, token, timeout)
        return answer

    async def get_session(
        self, session_id: str, route: str = "", *, token: AsyncToken | None = None, timeout: float | None = None
    ) -> pb.GetSessionResponse:
        """The caller's own session; turn 0 where there is none."""
        request = pb.GetSessionRequest(route=route, session_id=session_id)
        answer: pb.GetSessionResponse = await self._call(calling.GET_SESSION, request, token, timeout)
        return answer

    async def end_session(
        self, session_id: str, route: str = "", *, token: AsyncToken | None = None, timeout: float | None = None
    ) -> None:
        """Forget the caller's own session."""
        request = pb.EndSessionRequest(route=route, session_id=session_id)
        await self._call(calling.END_SESSION, request, token, timeout)

    async def prepare(
        self,
        body: Mapping[str, Any],
        *,
        cache_breakpoint: bool = False,
        on_error: OnError | None = None,
        token: AsyncToken | None = None,
        timeout: float | None = None,
        **asked: Unpack[Asked],
    ) -> Prepared:
        """An OpenAI or Anthropic request with its tools replaced by this turn's.

        `asked`: `session_id`, `turn_id`, `route`, `format`, `capabilities`, `max_tools`, `min_generation`; see `Asked`.
        `cache_breakpoint` (Anthropic): mark the last tool that the provider has seen before. On an outage
        `on_error` decides: "raise", "no_tools" (the request goes on without tools), "caller_tools" (as it
        came); a refusal is raised whatever it says.
        """
        question = ask(body, calling.new_turn_id(), **asked)
        try:
            answer = await self.select_tools(question.message, token=token, timeout=timeout)
        except ToolbelayCallError as error:
            return without_answer(body, error, on_error or self._on_error)
        return answered(question, answer, cache_breakpoint=cache_breakpoint)

    async def _call(self, method: Method, request: Any, token: AsyncToken | None, timeout: float | None) -> Any:
        rpc = self._channel.unary_unary(
            method.path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=method.response.FromString,
        )
        ends = time.monotonic() + (self._timeout if timeout is None else timeout)
        metadata = calling.metadata(await self._bearer(token, request.session_id, ends))
        tries = 0
        while True:
            tries += 1
            try:
                return await rpc(request, metadata=metadata, timeout=max(ends - time.monotonic(), 0.001))
            except grpc.aio.AioRpcError as error:
                failed = from_rpc(error)
            pause = calling.pause_before_retry(method, request, failed, tries, ends - time.monotonic())
            if pause is None:
                raise failed
            await asyncio.sleep(pause)

    async def _bearer(self, token: AsyncToken | None, session_id: str, ends: float) -> str:
        source = self._token if token is None else token
        made = source if isinstance(source, str) else source(session_id)
        if isinstance(made, str):
            return made
        try:
            async with asyncio.timeout(ends - time.monotonic()):
                return await made
        except TimeoutError:
            raise ToolbelayCallError(grpc.StatusCode.DEADLINE_EXCEEDED, "no token in time") from None
