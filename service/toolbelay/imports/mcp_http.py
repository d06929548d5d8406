"""An MCP server over streamable HTTP: the SDK's transport, on a client whose answers pass the tap."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from toolbelay.imports.mcp_tap import MAX_LISTED, MAX_MESSAGE, Tap

_EVENTS: Final = "text/event-stream"


@asynccontextmanager
async def http_transport(url: str, headers: Mapping[str, str], timeout: float, tap: Tap) -> AsyncIterator[Any]:
    """A transport for the SDK's session. Redirects are followed on the URL's own origin only."""
    transport = _TappedTransport(tap)
    # Bytes must come as they are to be cut: no content coding.
    wanted = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(transport=transport, headers=wanted, timeout=timeout) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


class _TappedTransport(httpx2.AsyncBaseTransport):
    """Passes each answer's body through the tap, under a bound."""

    def __init__(self, tap: Tap) -> None:
        self._inner = httpx2.AsyncHTTPTransport(trust_env=True)
        self._tap = tap

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send, and wrap what comes."""
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            self._tap.trouble = f"{type(error).__name__}: {error}"
            raise
        if response.status_code >= 400:
            self._tap.trouble = f"HTTP status {response.status_code}"
        if response.headers.get("content-encoding", "identity") != "identity":
            self._tap.trouble = "the server codes its answers, though it was asked not to"
        response.headers.pop("content-length", None)
        kind = response.headers.get("content-type", "").lower()
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Tapped(response.stream, self._tap, is_events=kind.startswith(_EVENTS))
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Tapped(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, tap: Tap, *, is_events: bool) -> None:
        self._inner = inner
        self._tap = tap
        self._is_events = is_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._is_events:
            async for line in self._event_lines():
                yield line
            return
        body = bytearray()
        async for chunk in self._bounded(MAX_MESSAGE):
            body += chunk
        yield self._tap.strip(bytes(body))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _bounded(self, most: int) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > most:
                self._tap.trouble = f"an answer is more than {most} bytes"
                raise httpx2.ReadError(self._tap.trouble)
            yield chunk

    async def _event_lines(self) -> AsyncIterator[bytes]:
        """Server-sent events line by line, the data lines of one event joined, as the format defines them."""
        data: list[bytes] = []
        async for line in _lines(self._bounded(MAX_LISTED)):
            text = line.rstrip(b"\r\n")
            if text.startswith(b"data:"):
                data.append(text.removeprefix(b"data:").removeprefix(b" "))
                continue
            if not text and data:
                message = self._tap.strip(b"\n".join(data))
                data.clear()
                yield b"".join(b"data: %b\n" % part for part in message.split(b"\n"))
            yield text + b"\n"


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    waiting = bytearray()
    async for chunk in chunks:
        searched = len(waiting)
        waiting += chunk
        while (end := waiting.find(b"\n", searched)) >= 0:
            yield bytes(waiting[: end + 1])
            del waiting[: end + 1]
            searched = 0
    if waiting:
        yield bytes(waiting)
