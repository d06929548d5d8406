"""How much memory sessions take in Valkey: `python -m bench.session_memory [--sessions 100000] [--kind valkey]`.

Each session is its own principal's (the dearest case: an index of its own), holds 16 tools of ordinary names, the
digests of an answer of 20 items, and 8 turn keys. Prints bytes for each session, keys and all, as the server counts.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import time

import uvloop

from tests.support.servers import RedisServer
from toolbelay.planner.model import SessionState, StoredTool
from toolbelay.sessions.port import SessionRef, TurnKey
from toolbelay.sessions.store import RedisSessionStore, connect_store

AT_ONCE = 32
TTL_SECONDS = 3600
TURNS = 8


def _state(number: int) -> SessionState:
    names = [f"toolset_{number % 50}/create_or_update_item_{index:02}" for index in range(16)]
    tools = tuple(
        StoredTool(name, hashlib.sha256(name.encode()).digest(), index % 3 == 0, index + 1, index, 0)
        for index, name in enumerate(names)
    )
    return SessionState(seeded=True, tools=tools, last_answer=tuple(_digest(f"item{index}", 8) for index in range(20)))


def _digest(text: str, size: int) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:size]


async def _fill(store: RedisSessionStore, numbers: range, turns: int) -> None:
    for number in numbers:
        ref = SessionRef("acme", "https://idp.example", f"user-{number}", "default", "chat")
        for turn in range(turns):
            key = TurnKey(_digest(f"i{number}/{turn}", 8), _digest(f"c{number}/{turn}", 16))
            opened = await store.open(ref, epoch=0, ttl_seconds=TTL_SECONDS, timeout=10, turn_key=key)
            if not turn:
                state = _state(number)
                await store.save(ref, opened, state, epoch=0, ttl_seconds=TTL_SECONDS, timeout=10, turn_key=key)


async def _run(url: str, sessions: int, turns: int) -> None:
    store = connect_store(url, secret=b"a secret of the benchmark, 32 by", pool_size=AT_ONCE)
    await asyncio.gather(*(_fill(store, range(start, sessions, AT_ONCE), turns) for start in range(AT_ONCE)))
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--kind", choices=("valkey", "redis"), default="valkey")
    arguments = parser.parse_args()
    server = RedisServer(arguments.kind)
    try:
        server.start()
        before, started = _used(server), time.monotonic()
        uvloop.run(_run(server.url, arguments.sessions, arguments.turns))
        used, keys = _used(server) - before, server.command("DBSIZE")
        print(
            f"{arguments.sessions} sessions, {keys} keys: {used / arguments.sessions:.0f} bytes each, "
            f"{used / 2**20:.0f} MiB in all, written in {time.monotonic() - started:.0f} s ({arguments.kind})"
        )
    finally:
        server.close()


def _used(server: RedisServer) -> int:
    memory = server.command("INFO", "memory")
    assert isinstance(memory, dict)
    return int(memory["used_memory"])


if __name__ == "__main__":
    main()
