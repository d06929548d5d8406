"""A processor with a small application behind it, for tests that look at messages and bytes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from toolbelay.api.server import ListenOptions
from toolbelay.application.authorize import AuthorizeAnswer, AuthorizeRequest
from toolbelay.application.turn import CALLER_OWNED, SelectAnswer, SelectedItem, SelectRequest, ToolChoice
from toolbelay.authority.principal import Principal
from toolbelay.catalog.formats import WireFormat, render
from toolbelay.catalog.model import Tool
from toolbelay.catalog.offered import parse_offered
from toolbelay.catalog.surface import Rendered
from toolbelay.errors import ErrorReason, ToolbelayError
from toolbelay.ext_proc.identity import Identity
from toolbelay.ext_proc.options import ExtProcOptions
from toolbelay.ext_proc.processor import Processor
from toolbelay.ext_proc.server import ExtProcServer
from toolbelay.planner.calls import CallDecision, Denial, Verdict
from toolbelay.planner.model import Counts, Outcome
from toolbelay.settings_check import parse_address

T = TypeVar("T")

PRINCIPAL = Principal("acme", "https://issuer.test", "alice")
JWT = "eyJhbGciOiJIUzI1NiJ9.e30.c2ln"
CATALOG_TOOL = Tool("crm/find", "crm", "find", "find", b'"Finds \\u00e9."', b'{"type":"object"}', bytes(32))


class FakeVerifier:
    """Takes the one token JWT."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes | str, ...]] = []

    async def verify(self, authorization_values: Sequence[str | bytes]) -> Principal:
        self.seen.append(tuple(authorization_values))
        if set(authorization_values) != {f"Bearer {JWT}".encode()}:
            raise ToolbelayError(ErrorReason.TOKEN_INVALID, "the token is not valid")
        return PRINCIPAL


@dataclass
class FakeApplication:
    """Answers the caller's own items and one catalog tool; denies calls of the names in `denied`."""

    requests: list[SelectRequest] = field(default_factory=list)
    authorized: list[AuthorizeRequest] = field(default_factory=list)
    error: Exception | None = None
    delay: float = 0.0
    choice: ToolChoice | None = None
    keeps: bool = True  # the caller's items
    adds: bool = True  # the catalog tool
    denied: dict[str, Denial] = field(default_factory=dict)
    stable_prefix: int = 0

    async def select(self, principal: Principal, request: SelectRequest, *, deadline: float) -> SelectAnswer:
        assert principal == PRINCIPAL
        self.requests.append(request)
        await self._behave()
        wire_format = request.target.format
        items = [
            SelectedItem(Rendered("", item.name, "", item.definition, b""), CALLER_OWNED)
            for item in parse_offered(request.offered_tools, wire_format)
            if self.keeps
        ]
        if self.adds:
            definition = render(CATALOG_TOOL, wire_format)
            items.append(SelectedItem(Rendered("crm/find", "find", "", definition, b""), "SEEDED"))
        return SelectAnswer(
            items=tuple(items),
            choice=self.choice or request.choice,
            outcome=Outcome.SEEDED,
            reason=None,
            counts=Counts(0, int(self.adds), 0, 0, 0, 0, 0, 0, 0),
            turn=1,
            revision=1,
            generation=7,
            strategy="keyword",
            advertised_tokens=10,
            whole_catalog_tokens=100,
            replayed=False,
            caller_owned=len(items) - self.adds,
            called_ignored=0,
            candidates_ignored=0,
            offered_dropped=0,
            surface_digest=b"12345678",
            stable_prefix=self.stable_prefix,
        )

    async def authorize(self, principal: Principal, request: AuthorizeRequest, *, deadline: float) -> AuthorizeAnswer:
        assert principal == PRINCIPAL
        self.authorized.append(request)
        await self._behave()
        decisions = tuple(
            CallDecision(Verdict.DENIED, self.denied[name]) if name in self.denied else CallDecision(Verdict.ALLOWED)
            for name in request.names
        )
        return AuthorizeAnswer(decisions, 7, True)

    async def _behave(self) -> None:
        if self.error is not None:
            raise self.error
        if self.delay:
            await asyncio.sleep(self.delay)

    def processor(self, options: ExtProcOptions, verifier: FakeVerifier | None = None) -> Processor:
        return Processor(options, Identity(options, verifier or FakeVerifier()), self.select, self.authorize)


PATHS = {
    WireFormat.OPENAI_CHAT: "/v1/chat/completions",
    WireFormat.OPENAI_RESPONSES: "/v1/responses",
    WireFormat.ANTHROPIC_MESSAGES: "/v1/messages",
}


def chat_body(wire_format: WireFormat, text: str = "find é", **more: Any) -> bytes:
    """A small request, with white space and escapes that re-serialising would lose."""
    key = "input" if wire_format is WireFormat.OPENAI_RESPONSES else "messages"
    rest = "".join(f", {json.dumps(name)} : {json.dumps(value)}" for name, value in more.items())
    content = json.dumps(text, ensure_ascii=False)
    return (
        f'{{ "model":"m", "{key}" : [{{"role":"user","content":{content}}}]{rest},'
        f' "temperature": 1.0, "note":"\\u00e9\\/"\n}}\n'
    ).encode()


class ProcessorThread:
    """The processor's real listener on a loop of its own, so that a test can stop it, hang it and look inside."""

    def __init__(
        self,
        options: ExtProcOptions | None = None,
        app: FakeApplication | None = None,
        port: int = 0,
        listen: ListenOptions | None = None,
    ) -> None:
        self.app = app or FakeApplication()
        self._options = options or ExtProcOptions()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(self._start(listen or ListenOptions(parse_address(f"127.0.0.1:{port}"))))
        self.port = self._server.port

    async def _start(self, listen: ListenOptions) -> ExtProcServer:
        server = ExtProcServer(listen, self.app.processor(self._options))
        server.bind()
        await server.start()
        await server.set_ready(ready=True)
        return server

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self, grace: float = 0) -> None:
        if self._loop.is_closed():
            return
        self._run(self._server.stop(grace))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
