"""What Python's gRPC can do at most here: a handler that does nothing, and one that makes a single Redis script call.

`python -m bench.limits PORT BODY [REDIS_URL]`: answers every call of the service with the bytes of the file BODY; with
a URL, after one EVALSHA through redis-py. `grpc.aio` on uvloop, one process, as the service runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio
import redis.asyncio
import uvloop

METHOD = "/toolbelay.v1.ToolSelectionService/SelectTools"
# What any session store does at least: read the session, renew it, and read the generation beside it.
SCRIPT = """local state = redis.call('GET', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {state, redis.call('GET', KEYS[2])}"""
STATE_BYTES = 1_200


async def serve(port: int, body: bytes, url: str) -> None:
    """Answer until the process ends."""
    store = redis.asyncio.Redis.from_url(url, protocol=2) if url else None
    sha = ""
    if store is not None:
        sha = await store.script_load(SCRIPT)
        await store.set("bench:state", bytes(STATE_BYTES), px=3_600_000)
        await store.set("bench:generation", b"1")

    async def empty(_raw: bytes, _context: Any) -> bytes:
        return body

    async def script(_raw: bytes, _context: Any) -> bytes:
        assert store is not None
        await store.evalsha(sha, 2, "bench:state", "bench:generation", "3600000")
        return body

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    service, _, name = METHOD[1:].partition("/")
    handler = grpc.unary_unary_rpc_method_handler(empty if store is None else script)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


class Limit:
    """A limit's process."""

    def __init__(self, port: int, body: Path, redis_url: str = "") -> None:
        self.port = port
        arguments = [str(port), str(body), *([redis_url] if redis_url else [])]
        self.process = subprocess.Popen([sys.executable, "-m", "bench.limits", *arguments])

    def __enter__(self) -> Self:
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=20)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2]).read_bytes(), (sys.argv[3:] or [""])[0]))
