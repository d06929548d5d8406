"""One HTTP exchange through Envoy: its messages in order, each answered once, in every body mode.

| mode | how a request's body is rewritten |
| --- | --- |
| BUFFERED | in one message; content-length is set |
| BUFFERED_PARTIAL | the same while the body fits Envoy's buffer; a part of a body counts as too large |
| STREAMED | chunks are withheld until the JSON object closes (a compressed one: until the body ends) |
| FULL_DUPLEX_STREAMED | chunks are withheld until the body, or its trailers, end |
| NONE, GRPC | refused for chat requests, for nothing could be rewritten |
"""

from __future__ import annotations

from typing import Any

import grpc

from toolbelay.ext_proc import replies
from toolbelay.ext_proc.faults import DenialError, OutageError
from toolbelay.ext_proc.gathering import Gathered, Gathering
from toolbelay.ext_proc.head import RequestHead, is_json, read_head, read_headers
from toolbelay.ext_proc.processor import Processor, Turn
from toolbelay.ext_proc.receipt import RECEIPT_HEADER
from toolbelay.ext_proc.replies import Mode

_REWRITABLE = (Mode.BUFFERED, Mode.BUFFERED_PARTIAL, Mode.STREAMED, Mode.FULL_DUPLEX_STREAMED)


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
        self._checks_response = False
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

        Raises OutageError. A DenialError has become an immediate response.
        """
        self._configure(message)
        kind = message.WhichOneof("request")
        try:
            replied: list[Any] = await getattr(self, f"_on_{kind}")(getattr(message, kind), message)
        except DenialError as denial:
            return [replies.immediate(denial, self._head.wire_format if self._head else None)]
        except OutageError as outage:
            if self._gathering is None or not self._withheld:
                raise
            # Envoy could fail open with a body of which a part is missing: the request must end here.
            ended = DenialError(503, outage.code.name, "the tool selection is not available")
            return [replies.immediate(ended, self._head.wire_format if self._head else None)]
        return replied

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
        remove = [self._options.token_header]
        return [replies.request_headers(remove=remove, skip_rest=not chat and buffered)]

    def _require_modes(self) -> None:
        """Refuse what would let a request or an answer pass unseen. Raises OutageError."""
        if self._request_mode not in _REWRITABLE:
            name = Mode.BodySendMode.Name(self._request_mode)
            message = f"request_body_mode {name} shows no body; set BUFFERED or FULL_DUPLEX_STREAMED"
            raise OutageError(grpc.StatusCode.FAILED_PRECONDITION, message)
        # Envoy heeds no mode_override beside FULL_DUPLEX_STREAMED.
        fixed = Mode.FULL_DUPLEX_STREAMED in (self._request_mode, self._response_mode)
        if self._options.authorize_calls and fixed and self._response_mode != Mode.BUFFERED:
            message = "checking tool calls beside FULL_DUPLEX_STREAMED needs response_body_mode BUFFERED"
            raise OutageError(grpc.StatusCode.FAILED_PRECONDITION, message)

    @property
    def unchecked(self) -> bool:
        """Whether an answer that had to be checked never came: Envoy's `allow_mode_override` is off."""
        return self._checks_response

    async def _on_request_body(self, body: Any, _message: Any) -> list[Any]:
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
            self._gathering.passing = True
        if gathered is not Gathered.WHOLE:
            return [replies.whole_body(None)]
        new = await self._rewritten(chunk)
        return [replies.whole_body(new, set_length=self._request_mode == Mode.BUFFERED)]

    async def _rewritten(self, raw: bytes) -> bytes | None:
        assert self._head is not None
        rewritten = await self._processor.rewrite(self._head, raw)
        self._turn = rewritten.turn
        return rewritten.body

    def _as_it_came(self, chunk: bytes, *, end: bool) -> list[Any]:
        if self._request_mode == Mode.FULL_DUPLEX_STREAMED:
            return replies.streamed(chunk, end=end)
        return [replies.whole_body(None)]

    def _emitted(self, text: bytes, *, end: bool) -> list[Any]:
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
        return [*replies.streamed(text if new is None else new, end=False), replies.trailers()]

    async def _on_response_headers(self, headers: Any, _message: Any) -> list[Any]:
        if self._turn is None:
            return [replies.response_headers(values={}, body_mode=None)]
        found = read_headers(headers)
        values = {RECEIPT_HEADER: self._turn.receipt} if self._options.receipt_header else {}
        self._response_coding = b",".join(found.get("content-encoding", ())).decode("latin-1").strip().lower()
        json_answer = is_json(found.get("content-type", (b"",))[0])
        self._checks_response = self._options.authorize_calls and json_answer and not headers.end_of_stream
        wanted = None
        if self._checks_response and self._response_mode != Mode.BUFFERED:
            # Streamed answers (text/event-stream) are never held back; a JSON answer is read as a whole.
            wanted = self._response_mode = Mode.BUFFERED
        return [replies.response_headers(values=values, body_mode=wanted)]

    async def _on_response_body(self, body: Any, _message: Any) -> list[Any]:
        if self._response_mode == Mode.FULL_DUPLEX_STREAMED:
            return replies.streamed(body.body, end=body.end_of_stream, response=True)
        new = None
        checks, self._checks_response = self._checks_response, False
        if checks and self._turn is not None and self._response_mode == Mode.BUFFERED:
            new = await self._processor.check(self._turn, self._response_coding, body.body)
        return [replies.whole_body(new, response=True)]

    async def _on_response_trailers(self, _trailers: Any, _message: Any) -> list[Any]:
        return [replies.trailers(response=True)]
