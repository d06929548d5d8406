"""A stub of an OpenAI-compatible endpoint that speaks HTTP/1.1 over a real socket, and misbehaves on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = tuple[int, bytes]


@dataclass
class Stub:
    """`answer`: path and request → status and body, or `None` to never answer."""

    answer: Callable[[str, dict[str, Any]], Answer | None]
    url: str = ""
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line = await reader.readline()
        if not line:
            return False
        path = line.split()[1].decode()
        headers = {}
        while (line := await reader.readline()).strip():
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append((path, headers, body))
        answer = self.answer(path, body)
        if answer is None:
            await reader.read()  # until the client gives up
            return False
        status, content = answer
        writer.write(b"HTTP/1.1 %d Stub\r\ncontent-length: %d\r\n\r\n" % (status, len(content)) + content)
        await writer.drain()
        return True


@asynccontextmanager
async def stub(answer: Callable[[str, dict[str, Any]], Answer | None]) -> AsyncIterator[Stub]:
    made = Stub(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield made
    finally:
        server.close()


def chat(content: object) -> Answer:
    """A completion whose message has this content."""
    return 200, json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


def embeddings(vectors: list[list[float]]) -> Answer:
    data = [{"object": "embedding", "index": n, "embedding": v} for n, v in enumerate(vectors)]
    return 200, json.dumps({"object": "list", "data": data}).encode()
