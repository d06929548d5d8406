"""What the external processor does with a whole request and a whole answer; how they travel is `exchange`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import grpc
import structlog

from toolbelay.api import bounds
from toolbelay.application.authorize import AuthorizeAnswer, AuthorizeRequest
from toolbelay.application.turn import CALLER_OWNED, SelectAnswer, SelectRequest
from toolbelay.authority.principal import Principal
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.raw_json import JsonTextError, NotJsonError
from toolbelay.clock import loop_time
from toolbelay.errors import ToolbelayError, invalid
from toolbelay.ext_proc.body import MAX_VALUES, Body, TooManyValuesError, read_body
from toolbelay.ext_proc.calls import UnreadableAnswerError, called_names, read_response, without_denied
from toolbelay.ext_proc.codings import CodingError, TooLargeError, UnsupportedCodingError, decode, encode
from toolbelay.ext_proc.faults import DenialError, OutageError, of_error
from toolbelay.ext_proc.head import RequestHead
from toolbelay.ext_proc.identity import Identity
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.ext_proc.receipt import receipt_value
from toolbelay.ext_proc.rewrite import read_chat, write_answer
from toolbelay.planner.calls import Verdict
from toolbelay.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class Select(Protocol):
    """The use case SelectTools, in this process."""

    async def __call__(self, principal: Principal, request: SelectRequest, *, deadline: float) -> SelectAnswer:
        """Answer one turn; `deadline` is loop time. Raises ToolbelayError."""


class Authorize(Protocol):
    """The use case AuthorizeToolCalls, in this process."""

    async def __call__(self, principal: Principal, request: AuthorizeRequest, *, deadline: float) -> AuthorizeAnswer:
        """Decide the calls; `deadline` is loop time. Raises ToolbelayError."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the response's side needs to know of a request that was answered."""

    principal: Principal
    wire_format: WireFormat
    route: str
    session_id: str
    model: str
    caller_tools: frozenset[str]
    receipt: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """`body`: the new bytes, in the coding of the old; `None` = leave it.

    `turn`: `None` = not ours, for the reason in `untouched` (of telemetry.metrics.UNTOUCHED_REASONS).
    """

    body: bytes | None = None
    turn: Turn | None = None
    untouched: str = ""


class Processor:
    """Rewrites requests and checks answers. One instance serves all streams of a worker."""

    def __init__(
        self,
        options: ExtProcOptions,
        identity: Identity,
        select: Select,
        authorize: Authorize,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self._identity = identity
        self._select = select
        self._authorize = authorize
        self._running = 0

    def carriers(self, head: RequestHead) -> list[str]:
        """Headers to remove, for they may carry our token."""
        return self._identity.carriers(head)

    async def rewrite(self, head: RequestHead, raw: bytes) -> Rewritten:
        """The request's body with this turn's tools. Raises DenialError and OutageError."""
        try:
            text = decode(raw, head.coding, self.options.max_body_bytes)
        except TooLargeError:
            self.too_large()
            return Rewritten(untouched="too_large")
        except (UnsupportedCodingError, CodingError) as error:
            self._undecodable(type(error).__name__)
            return Rewritten(untouched="coding")
        try:
            body = _json_object(text) if text else None
        except TooManyValuesError:
            self.too_large()
            return Rewritten(untouched="too_large")
        if body is None:
            return Rewritten(untouched="not_json")
        return await self._guarded(lambda deadline: self._turn(head, body, deadline))

    async def check(self, turn: Turn, coding: str, raw: bytes) -> bytes | None:
        """The answer without denied calls; `None` = leave it.

        Raises DenialError when nothing else is left, and for an answer that cannot be read: its calls would
        pass unseen.
        """
        try:
            text = decode(raw, coding, self.options.max_body_bytes)
            response = read_response(text) if text else None
        except (TooLargeError, UnsupportedCodingError, CodingError, UnreadableAnswerError) as error:
            message = f"the model's answer cannot be checked for tool calls: {type(error).__name__}"
            raise DenialError(502, "ANSWER_UNREADABLE", message) from None
        if response is None:
            return None
        names = called_names(response, turn.wire_format)
        if not names:
            return None
        denied = await self._guarded(lambda deadline: self._denied(turn, names, deadline))
        if not denied:
            return None
        left = without_denied(response, turn.wire_format, denied)
        if left is None:
            reasons = ", ".join(sorted(set(denied.values())))
            raise DenialError(403, "TOOL_CALL_DENIED", f"the model's tool calls were denied: {reasons}")
        return encode(left, coding)

    def too_large(self) -> None:
        """What a body over the limit means. Raises DenialError where the setting says so."""
        if self.options.on_large_body == "reject":
            limit = self.options.max_body_bytes
            message = f"the body is over the limit of {limit} bytes, or of {MAX_VALUES} JSON values"
            raise DenialError(413, "BODY_TOO_LARGE", message)
        _log.warning("body_passed", cause="too_large")

    async def _turn(self, head: RequestHead, body: Body, deadline: float) -> Rewritten:
        request = read_chat(body, head, self.options)
        if request is None:
            return Rewritten(untouched="not_chat")
        principal = await self._principal(head)
        answer = await self._select(principal, request.turn, deadline=deadline)
        text = write_answer(request, answer)
        turn = Turn(
            principal=principal,
            wire_format=request.turn.target.format,
            route=request.turn.route,
            session_id=request.turn.session_id,
            model=request.turn.target.model,
            caller_tools=frozenset(i.name for i in answer.items if i.origin == CALLER_OWNED and i.name),
            receipt=receipt_value(answer),
        )
        if text == body.text:
            return Rewritten(None, turn)
        return Rewritten(encode(text, head.coding), turn)

    async def _principal(self, head: RequestHead) -> Principal:
        try:
            return await self._identity.principal(head)
        except ToolbelayError as error:
            self.metrics.token_refused(error.reason.value)
            raise

    async def _denied(self, turn: Turn, names: list[str], deadline: float) -> dict[str, str]:
        """Reasons by name. A name that no tool can have is denied without being asked for."""
        asked = list(
            dict.fromkeys(name for name in names if 0 < len(name.encode("utf-8", "replace")) <= bounds.MAX_NAME)
        )
        denied = {name: "NOT_ADVERTISED" for name in names if name not in asked}
        for start in range(0, len(asked), bounds.MAX_CALLS):
            part = tuple(asked[start : start + bounds.MAX_CALLS])
            request = AuthorizeRequest(turn.route, turn.session_id, part, turn.model, turn.caller_tools)
            answer = await self._authorize(turn.principal, request, deadline=deadline)
            for name, decision in zip(part, answer.decisions, strict=True):
                if decision.verdict is Verdict.DENIED:
                    denied[name] = decision.denial.value if decision.denial else "DENIED"
        return denied

    async def _guarded(self, work: Callable[[float], Awaitable[T]]) -> T:
        """Run under the deadline, with every error turned into one of the two ends."""
        if self._running >= self.options.max_concurrent:
            self.metrics.overloaded()
            raise OutageError(grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED: too many requests at once")
        deadline = loop_time() + self.options.deadline
        self._running += 1
        try:
            async with asyncio.timeout_at(deadline):
                return await work(deadline)
        except ToolbelayError as error:
            raise of_error(error) from None
        except TimeoutError:
            raise OutageError(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer within the deadline") from None
        finally:
            self._running -= 1

    def _undecodable(self, cause: str) -> None:
        if self.options.on_unknown_encoding == "reject":
            raise DenialError(415, "UNSUPPORTED_ENCODING", "the content-encoding cannot be decoded")
        _log.warning("body_passed", cause=cause)


def _json_object(text: bytes) -> Body | None:
    """The body; `None` where it is no JSON object at all. What two parsers may read in two ways is refused."""
    try:
        return read_body(text)
    except NotJsonError:
        return None
    except TooManyValuesError:
        raise
    except JsonTextError as error:
        raise of_error(invalid(error.path or "body", error.message)) from None
