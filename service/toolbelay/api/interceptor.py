"""The one wrapper around every RPC: admission, identity, parsing, error mapping, counting.

One function per call shape instead of a chain of interceptors, because a layer costs as much as the
work it guards. Nothing is served that the method table does not name. Health and reflection are
registered beside it: they need no token and are not counted.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2
from grpc_status import rpc_status

from toolbelay.api import errors
from toolbelay.api.context import CallContext
from toolbelay.api.methods import METHODS, Method
from toolbelay.authority.principal import Principal
from toolbelay.clock import loop_time
from toolbelay.errors import ErrorReason, ToolbelayError, invalid
from toolbelay.sessions.port import StateUnavailableError
from toolbelay.storage.port import StorageUnavailableError
from toolbelay.telemetry.metrics import Metrics

MAX_ANSWER_BYTES: Final = 24 * 1024 * 1024
NEVER: Final = float("inf")

_log = structlog.get_logger(__name__)
_M = TypeVar("_M", bound=Message)
_Context = grpc.aio.ServicerContext[Any, Any]


class Verifier(Protocol):
    """Turns the values of the `authorization` metadata into a principal, or raises TOKEN_*."""

    async def verify(self, authorization_values: Sequence[str | bytes], /) -> Principal:
        """Verify."""


class Gate:
    """Admits calls: at most `max_concurrent` at once, none before the service is ready."""

    def __init__(self, verifier: Verifier, metrics: Metrics, *, max_concurrent: int) -> None:
        self._verifier = verifier
        self._metrics = metrics
        self._max_concurrent = max_concurrent
        self.in_flight = 0
        self.ready = False
        self._stopping: asyncio.Event | None = None

    def handlers(self, servicers: Mapping[str, object]) -> list[grpc.GenericRpcHandler[Any, Any]]:
        """Handlers of every method of the table; `servicers` maps a service's full name to its servicer.

        A servicer's method takes (request, CallContext) and returns a message or its bytes; where the
        client streams it takes (async iterator of requests, CallContext), where the server streams it
        returns an async iterator. Raises LookupError for a method that no servicer has.
        """
        by_service: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
        for method in METHODS:
            function = getattr(servicers.get(method.service), method.name, None)
            if function is None:
                raise LookupError(f"no servicer for {method.service}/{method.name}")
            by_service.setdefault(method.service, {})[method.name] = self._handler(method, function)
        return [grpc.method_handlers_generic_handler(name, table) for name, table in by_service.items()]

    def park(self) -> None:
        """Hold every call that comes from now on, until `release`.

        gRPC cancels what reaches it in the moment of its shutdown. A client that waits for an answer sends
        nothing meanwhile: while new calls are held, that moment is quiet.
        """
        self._stopping = asyncio.Event()

    def release(self) -> None:
        """Answer the held calls UNAVAILABLE, NOT_READY: a client may try them on another replica."""
        if self._stopping is not None:
            self._stopping.set()

    def _handler(self, method: Method, function: Callable[..., Any]) -> grpc.RpcMethodHandler[Any, Any]:
        parse = method.request.FromString
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(method, function))
        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(
                self._answering(method, function, lambda stream: _decoded_stream(parse, stream))
            )
        return grpc.unary_unary_rpc_method_handler(self._answering(method, function, lambda raw: _decoded(parse, raw)))

    def _answering(
        self,
        method: Method,
        function: Callable[[Any, CallContext], Awaitable[Message | bytes]],
        decode: Callable[[Any], Any],
    ) -> Callable[[Any, _Context], Awaitable[bytes]]:
        finish = self._metrics.call_recorder(method.name)

        async def serve(raw: Any, context: _Context) -> bytes:
            started = time.perf_counter()
            code = "CANCELLED"  # what remains when the task is cancelled
            self.in_flight += 1
            try:
                call = await self._admit(method, context)
                answer = _encoded(await function(decode(raw), call))
                code = "OK"
                return answer
            except Exception as error:  # noqa: BLE001 - the one funnel: nothing may leave unmapped
                status = self._refusal(method, error)
                code = _code_name(status)
                await _abort(context, status)
            finally:
                self.in_flight -= 1
                finish(code, time.perf_counter() - started)

        return serve

    def _streaming(
        self, method: Method, function: Callable[[Any, CallContext], AsyncIterator[Message | bytes]]
    ) -> Callable[[bytes, _Context], AsyncIterator[bytes]]:
        finish = self._metrics.call_recorder(method.name)
        parse = method.request.FromString

        async def serve(raw: bytes, context: _Context) -> AsyncIterator[bytes]:
            started = time.perf_counter()
            code = "CANCELLED"
            self.in_flight += 1
            try:
                call = await self._admit(method, context)
                async for answer in function(_decoded(parse, raw), call):
                    yield _encoded(answer)
                code = "OK"
            except Exception as error:  # noqa: BLE001 - the one funnel: nothing may leave unmapped
                status = self._refusal(method, error)
                code = _code_name(status)
                await _abort(context, status)
            finally:
                self.in_flight -= 1
                finish(code, time.perf_counter() - started)

        return serve

    async def _admit(self, method: Method, context: _Context) -> CallContext:
        if self._stopping is not None:
            await self._stopping.wait()
            raise ToolbelayError(ErrorReason.NOT_READY, "the service is stopping; retry on another replica")
        if not self.ready:
            raise ToolbelayError(ErrorReason.NOT_READY, "the service is not ready; retry with backoff")
        if self.in_flight > self._max_concurrent:
            self._metrics.overloaded()
            raise ToolbelayError(
                ErrorReason.OVERLOADED,
                f"more than {self._max_concurrent} calls at once in this worker; retry with backoff",
            )
        values = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        principal = await self._verifier.verify(values)
        if method.role and method.role not in principal.roles:
            raise ToolbelayError(
                ErrorReason.ADMIN_ROLE_REQUIRED, f"{method.name} needs a token with the role {method.role!r}"
            )
        remaining = context.time_remaining()
        deadline = NEVER if remaining is None else loop_time() + remaining
        return CallContext(principal, deadline, method.name)

    def _refusal(self, method: Method, error: Exception) -> status_pb2.Status:
        """The status that tells the caller of `error`; counts and logs what operators want to see."""
        if isinstance(error, _AnswerTooLargeError):
            return errors.answer_too_large(error.size, MAX_ANSWER_BYTES)
        told = _as_told(error)
        if told is None:
            incident = secrets.token_hex(8)
            _log.error("internal_error", method=method.name, incident=incident, **_anatomy(error))
            return errors.internal_status(incident)
        if told.reason in _TOKEN_REASONS:
            self._metrics.token_refused(told.reason.value)
            _log.info("token_refused", method=method.name, reason=told.reason.value)
        elif told.reason in _OUTAGE_REASONS:
            _log.warning("call_refused", method=method.name, reason=told.reason.value)
        return errors.status_of(told)


class _AnswerTooLargeError(Exception):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


_TOKEN_REASONS: Final = frozenset({ErrorReason.TOKEN_MISSING, ErrorReason.TOKEN_INVALID, ErrorReason.TOKEN_EXPIRED})
_OUTAGE_REASONS: Final = frozenset(
    {ErrorReason.AUTHORITY_UNVERIFIABLE, ErrorReason.PROPAGATION_UNCONFIRMED, ErrorReason.STATE_UNAVAILABLE}
)


def _as_told(error: Exception) -> ToolbelayError | None:
    """The domain error to answer with; `None` = a fault nobody foresaw."""
    if isinstance(error, ToolbelayError):
        return error
    if isinstance(error, StateUnavailableError):
        return ToolbelayError(ErrorReason.STATE_UNAVAILABLE, "session state is unavailable; retry with backoff")
    if isinstance(error, StorageUnavailableError):
        return ToolbelayError(
            ErrorReason.AUTHORITY_UNVERIFIABLE, "catalog and policy cannot be established; retry with backoff"
        )
    return None


def _anatomy(error: Exception) -> dict[str, object]:
    """Kind and place of an unforeseen fault. Its message may quote a request, so it stays out."""
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    return {"kind": type(error).__qualname__, "frames": where}


def _decoded(parse: Callable[[bytes], _M], raw: bytes) -> _M:
    try:
        return parse(raw)
    except (DecodeError, UnicodeDecodeError):
        raise invalid(None, "the request is not a readable message of its type") from None


async def _decoded_stream(parse: Callable[[bytes], _M], stream: AsyncIterator[bytes]) -> AsyncIterator[_M]:
    async for raw in stream:
        yield _decoded(parse, raw)


def _encoded(answer: Message | bytes) -> bytes:
    raw = answer if isinstance(answer, bytes) else answer.SerializeToString()
    if len(raw) > MAX_ANSWER_BYTES:
        raise _AnswerTooLargeError(len(raw))
    return raw


def _code_name(status: status_pb2.Status) -> str:
    return _CODE_NAMES[status.code]


_CODE_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}


async def _abort(context: _Context, status: status_pb2.Status) -> NoReturn:
    told = rpc_status.to_status(status)
    await context.abort(told.code, told.details, told.trailing_metadata)
