"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import grpc

from toolbelay.client import calling
from toolbelay.client.calling import Method, Tls, Token
from toolbelay.client.errors import ToolbelayCallError, from_rpc
from toolbelay.client.prepared import Asked, OnError, Prepared, answered, ask, without_answer
from toolbelay.v1 import selection_pb2 as pb


class ToolbelayClient:
    """Calls ToolSelectionService; safe to use from several threads.

    `token`: a JWT, or a function from a session id to one (see `TokenMinter.for_user`); each method
    takes another for its one call. `timeout`: seconds that a call may take, tries included. `tls`: `None` =
    plain text. `keepalive_seconds`: how often an idle connection is proven alive, at least 10. `options`:
    further gRPC channel options. `on_error`: what `prepare` does when the service cannot answer. Failed
    calls raise ToolbelayCallError.
    """

    def __init__(
        self,
        address: str,
        *,
        token: Token = "",
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
            grpc.insecure_channel(address, merged)
            if tls is None
            else grpc.secure_channel(address, tls.credentials(), merged)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; running calls are cancelled."""
        self._channel.close()

    def require_generation(self, generation: int) -> None:
        """From here on no answer is older: read what you applied.

        For clients of one tenant; generations of tenants are not related, so others give each call its
        `min_generation`. Where a replica cannot reach it, the call fails with GENERATION_NOT_REACHED.
        """
        self._floor.raise_to(generation)

    def select_tools(
        self, request: pb.SelectToolsRequest, *, token: Token | None = None, timeout: float | None = None
    ) -> pb.SelectToolsResponse:
        """The tools of one turn. Tried again only with a turn_id, without a session, or when overloaded."""
        raised = self._floor.apply(request)
        answer: pb.SelectToolsResponse = self._call(calling.SELECT, raised, token, timeout)
        return answer

    def authorize_tool_calls(
        self, request: pb.AuthorizeToolCallsRequest, *, token: Token | None = None, timeout: float | None = None
    ) -> pb.AuthorizeToolCallsResponse:
        """Whether the model's calls may be dispatched."""
        answer: pb.AuthorizeToolCallsResponse = self._call(calling.AUTHORIZE, request, token, timeout)
        return answer

    def get_session(
        self, session_id: str, route: str = "", *, token: Token | None = None, timeout: float | None = None
    ) -> pb.GetSessionResponse:
        """The caller's own session; turn 0 where there is none."""
        request = pb.GetSessionRequest(route=route, session_id=session_id)
        answer: pb.GetSessionResponse = self._call(calling.GET_SESSION, request, token, timeout)
        return answer

    def end_session(
        self, session_id: str, route: str = "", *, token: Token | None = None, timeout: float | None = None
    ) -> None:
        """Forget the caller's own session."""
        request = pb.EndSessionRequest(route=route, session_id=session_id)
        self._call(calling.END_SESSION, request, token, timeout)

    def prepare(
        self,
        body: Mapping[str, Any],
        *,
        cache_breakpoint: bool = False,
        on_error: OnError | None = None,
        token: Token | None = None,
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
            answer = self.select_tools(question.message, token=token, timeout=timeout)
        except ToolbelayCallError as error:
            return without_answer(body, error, on_error or self._on_error)
        return answered(question, answer, cache_breakpoint=cache_breakpoint)

    def _call(self, method: Method, request: Any, token: Token | None, timeout: float | None) -> Any:
        rpc = self._channel.unary_unary(
            method.path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=method.response.FromString,
        )
        ends = time.monotonic() + (self._timeout if timeout is None else timeout)
        source = self._token if token is None else token
        metadata = calling.metadata(source if isinstance(source, str) else source(request.session_id))
        tries = 0
        while True:
            tries += 1
            try:
                return rpc(request, metadata=metadata, timeout=max(ends - time.monotonic(), 0.001))
            except grpc.RpcError as error:
                failed = from_rpc(error)
            pause = calling.pause_before_retry(method, request, failed, tries, ends - time.monotonic())
            if pause is None:
                raise failed
            time.sleep(pause)
