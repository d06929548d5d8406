"""One HTTP exchange through Envoy: its messages in order, each answered once, in every body mode.

| mode | how a request's body is rewritten |
| --- | --- |
| BUFFERED | in one message; content-length is set |
| BUFFERED_PARTIAL | the same while the body fits Envoy's buffer; a part of a body counts as too large |
| STREAMED | by setting: chunks are withheld until the JSON object closes (a compressed one: until the body ends) |
| FULL_DUPLEX_STREAMED | chunks are withheld until the body, or its trailers, end |
| NONE, GRPC | refused for chat requests, for nothing could be rewritten |
"""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import structlog

from toolbelay.ext_proc import replies
from toolbelay.ext_proc.faults import DenialError, OutageError
from toolbelay.ext_proc.gathering import Gathered, Gathering
from toolbelay.ext_proc.head import RequestHead, is_json, read_head, read_headers
from toolbelay.ext_proc.processor import Processor, Turn
from toolbelay.ext_proc.receipt import RECEIPT_HEADER
from toolbelay.ext_proc.replies import Mode

_log = structlog.get_logger(__name__)
_REWRITABLE = (Mode.BUFFERED, Mode.BUFFERED_PARTIAL, Mode.STREAMED, Mode.FULL_DUPLEX_STREAMED)

_REASONS = {Gathered.TOO_LARGE: "too_large", Gathered.NO_OBJECT: "not_json"}


class Exchange:
    """Answers the messages of one stream."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._options = processor.options
        self._request_mode: int = Mode.BUFFERED
        self._response_mode: int = Mode.NONE
        self._head: RequestHead | None = None
        self._gathering: Gathering | None = None
        self._turn: Turn | None = None
        self._response_coding = ""
        self._must_check = False  # until the answer is known to hold no calls, or has been checked
        self._answer_seen = False
        self._configured = False
        self._request_done = False

    @property
    def may_end(self) -> bool:
        """Whether the stream may end here, in order: the request is done and nothing must be checked any more.

        Envoy then goes on without the processor; only the receipt is lost.
        """
        return self._request_done and not self._options.authorize_calls

    async def answer(self, message: Any) -> list[Any]:
        """The replies to one message; none where a chunk is withheld in FULL_DUPLEX_STREAMED mode.

        Raises OutageError, whatever failed. A DenialError has become an immediate response.
        """
        self._configure(message)
        kind = message.WhichOneof("request")
        try:
            replied: list[Any] = await getattr(self, f"_on_{kind}")(getattr(message, kind), message)
        except DenialError as denial:
            self._count(kind, "denied")
            return [self._immediate(denial)]
        except OutageError as outage:
            self._count(kind, "outage")
            return [self._immediate(self._ended(outage))]
        except Exception as error:  # noqa: BLE001 - whatever it is, the request ends in one of two ways
            incident = uuid.uuid4().hex
            # The error's text could hold a part of the body: only its kind is logged.
            self._count(kind, "failed")
            _log.error("ext_proc_failed", incident=incident, error=type(error).__name__)
            failure = OutageError(grpc.StatusCode.INTERNAL, f"incident {incident}")
            return [self._immediate(self._ended(failure))]
        return replied

    def _count(self, kind: str, outcome: str) -> None:
        metrics = self._processor.metrics
        (metrics.ext_proc_answer if kind.startswith("response") else metrics.ext_proc_request)(outcome)

    def _immediate(self, denial: DenialError) -> Any:
        return replies.immediate(denial, self._head.wire_format if self._head else None)

    def _ended(self, outage: OutageError) -> DenialError:
        """The response that an outage ends in while a part of the body is withheld; elsewhere it is raised.

        Envoy could fail open with a body of which that part is missing.
        """
        if not self._withheld:
            raise outage from None
        return DenialError(503, outage.code.name, "the tool selection is not available")

    def _configure(self, message: Any) -> None:
        """Envoy says its body modes once, with the stream's first message."""
        if not self._configured and message.HasField("protocol_config"):
            self._request_mode = message.protocol_config.request_body_mode
            self._response_mode = message.protocol_config.response_body_mode
        self._configured = True

    async def _on_request_headers(self, headers: Any, message: Any) -> list[Any]:
        head = self._head = read_head(headers, message.metadata_context, self._options)
        chat = head.may_be_chat and not headers.end_of_stream
        if chat:
            self._require_modes()
            compressed = head.coding not in ("", "identity")
            at_end_only = self._request_mode == Mode.FULL_DUPLEX_STREAMED or compressed
            self._gathering = Gathering(self._options.max_body_bytes, at_end_only=at_end_only)
        buffered = self._request_mode in (Mode.BUFFERED, Mode.BUFFERED_PARTIAL)
        self._request_done = headers.end_of_stream or (not chat and buffered)
        remove = self._processor.carriers(head) if chat else [self._options.token_header]
        if not chat:
            self._processor.metrics.ext_proc_untouched("not_chat")
        return [replies.request_headers(remove=remove, mode=self._wanted(chat=chat))]

    def _wanted(self, *, chat: bool) -> Any:
        """The bodies to ask Envoy for; `None` = as configured."""
        if self._request_mode == Mode.FULL_DUPLEX_STREAMED:
            return None  # Envoy heeds no mode_override there
        streamed = self._request_mode == Mode.STREAMED
        if not chat:
            return None if streamed else Mode(request_body_mode=Mode.NONE, response_body_mode=Mode.NONE)
        # Said before the answer comes: what Envoy has begun to buffer, it refuses over its limit.
        answers = Mode.BUFFERED if self._options.authorize_calls else Mode.NONE
        trailers = Mode.SEND if streamed else Mode.DEFAULT  # they may be all that says that a body is over
        return Mode(request_body_mode=self._request_mode, request_trailer_mode=trailers, response_body_mode=answers)

    def _require_modes(self) -> None:
        """Refuse what would let a request or an answer pass unseen, or in part. Raises DenialError."""
        if self._request_mode not in _REWRITABLE:
            name = Mode.BodySendMode.Name(self._request_mode)
            raise _refused(f"request_body_mode {name} shows no body; set BUFFERED or FULL_DUPLEX_STREAMED")
        if self._request_mode == Mode.STREAMED and not self._options.allow_streamed:
            raise _refused(
                "request_body_mode STREAMED could let half a body through when the processor dies; set BUFFERED or"
                " FULL_DUPLEX_STREAMED, or TOOLBELAY_EXT_PROC_ALLOW_STREAMED beside failure_mode_allow: false"
            )
        if self._options.authorize_calls and self._response_mode != Mode.BUFFERED:
            raise _refused("checking tool calls (TOOLBELAY_EXT_PROC_AUTHORIZE_CALLS) needs response_body_mode BUFFERED")

    async def _on_request_body(self, body: Any, _message: Any) -> list[Any]:
        if self._head is None:
            raise _refused("a request's body came without its headers; set request_header_mode SEND")
        chunk, end = body.body, body.end_of_stream
        self._request_done = end or self._request_mode in (Mode.BUFFERED, Mode.BUFFERED_PARTIAL)
        if self._gathering is None:
            return self._as_it_came(chunk, end=end)
        if self._request_mode in (Mode.BUFFERED, Mode.BUFFERED_PARTIAL):
            return await self._on_buffered(chunk, end=end)
        held_before = self._withheld
        gathered = self._gathering.feed(chunk, end=end)
        if gathered is Gathered.HELD:
            return [] if self._request_mode == Mode.FULL_DUPLEX_STREAMED else [replies.withheld()]
        if gathered is Gathered.PASSING:
            return self._as_it_came(chunk, end=end)
        if gathered is Gathered.TOO_LARGE:
            self._processor.too_large()
        if gathered is not Gathered.WHOLE:
            self._processor.metrics.ext_proc_untouched(_REASONS[gathered])
        text = self._gathering.text
        new = await self._rewritten(text) if gathered is Gathered.WHOLE else None
        if new is None and not held_before:
            return self._as_it_came(chunk, end=end)
        return self._emitted(text if new is None else new, end=end)

    @property
    def _withheld(self) -> bool:
        return self._gathering is not None and self._gathering.has_withheld

    async def _on_buffered(self, chunk: bytes, *, end: bool) -> list[Any]:
        """The one body message of a request; `end` is not set when trailers follow, or more of the body."""
        assert self._gathering is not None
        gathered = self._gathering.feed(chunk, end=end or self._request_mode == Mode.BUFFERED)
        if gathered in (Gathered.HELD, Gathered.TOO_LARGE):
            self._processor.too_large()
            self._processor.metrics.ext_proc_untouched("too_large")
            self._gathering.passing = True
        if gathered is not Gathered.WHOLE:
            return [replies.whole_body(None)]
        new = await self._rewritten(chunk)
        return [replies.whole_body(new, set_length=self._request_mode == Mode.BUFFERED)]

    async def _rewritten(self, raw: bytes) -> bytes | None:
        assert self._head is not None
        metrics = self._processor.metrics
        with metrics.ext_proc_work(len(raw)):
            rewritten = await self._processor.rewrite(self._head, raw)
        if rewritten.turn is None:
            metrics.ext_proc_untouched(rewritten.untouched)
        else:
            metrics.ext_proc_request("unchanged" if rewritten.body is None else "rewritten")
        self._turn = rewritten.turn
        self._must_check = self._turn is not None and self._options.authorize_calls
        return rewritten.body

    def _as_it_came(self, chunk: bytes, *, end: bool) -> list[Any]:
        if self._request_mode == Mode.FULL_DUPLEX_STREAMED:
            return replies.streamed(chunk, end=end)
        return [replies.whole_body(None)]

    def _emitted(self, text: bytes, *, end: bool) -> list[Any]:
        assert self._gathering is not None
        self._gathering.has_withheld = False
        if self._request_mode == Mode.FULL_DUPLEX_STREAMED:
            return replies.streamed(text, end=end)
        return [replies.whole_body(text, set_length=False)]

    async def _on_request_trailers(self, _trailers: Any, _message: Any) -> list[Any]:
        self._request_done = True
        if self._gathering is None or not self._gathering.holds:
            return [replies.trailers()]
        if self._request_mode != Mode.FULL_DUPLEX_STREAMED:
            raise DenialError(400, "BODY_INCOMPLETE", "the body is compressed or cut short, and trailers follow it")
        text = self._gathering.finish()
        new = await self._rewritten(text)
        return [*self._emitted(text if new is None else new, end=False), replies.trailers()]

    async def _on_response_headers(self, headers: Any, _message: Any) -> list[Any]:
        self._answer_seen = True
        found = read_headers(headers)
        self._response_coding = b",".join(found.get("content-encoding", ())).decode("latin-1").strip().lower()
        # Streamed answers (text/event-stream) are never held back; a JSON answer is read as a whole.
        json_answer = is_json(found.get("content-type", (b"application/json",))[0])
        good = found.get(":status", (b"200",))[0].startswith(b"2")  # no client looks for calls in an error
        self._must_check = self._must_check and json_answer and good and not headers.end_of_stream
        values = {}
        if self._turn is not None and self._options.receipt_header:
            values[RECEIPT_HEADER] = self._turn.receipt
        # Envoy heeds no mode_override beside FULL_DUPLEX_STREAMED.
        heeds = self._request_mode != Mode.FULL_DUPLEX_STREAMED
        passes = self._response_mode == Mode.BUFFERED and heeds and not self._must_check
        return [replies.response_headers(values=values, body_mode=Mode.NONE if passes else None)]

    async def _on_response_body(self, body: Any, _message: Any) -> list[Any]:
        if self._response_mode == Mode.FULL_DUPLEX_STREAMED:
            return replies.streamed(body.body, end=body.end_of_stream, response=True)
        new = None
        checks, self._must_check = self._must_check, False
        if checks and not self._answer_seen:
            raise _refused("an answer's body came without its headers; set response_header_mode SEND")
        if checks and self._turn is not None:
            new = await self._processor.check(self._turn, self._response_coding, body.body)
            self._processor.metrics.ext_proc_answer("passed" if new is None else "changed")
        return [replies.whole_body(new, response=True)]

    async def _on_response_trailers(self, _trailers: Any, _message: Any) -> list[Any]:
        return [replies.trailers(response=True)]


def _refused(message: str) -> DenialError:
    """A configuration of Envoy under which nothing could be promised. No outage: it is never failed open."""
    _log.error("ext_proc_mode_refused", remedy=message)
    return DenialError(503, "MODE_REFUSED", message)
