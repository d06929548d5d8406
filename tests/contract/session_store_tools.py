"""What the session store's suites share: a place to look behind the store, and short ways to say things."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.cluster import RedisCluster
from tests.support.servers import RedisServer
from toolbelay.planner.model import SessionState, StoredTool
from toolbelay.sessions.breaker import Phase
from toolbelay.sessions.observer import StoreEvent
from toolbelay.sessions.port import Opened, Saved, SessionRef, SessionStore, TurnKey
from toolbelay.sessions.store import RedisSessionStore, connect_store

SECRET = b"a-state-secret-of-thirty-two-bytes"
TTL = 3600
TIMEOUT = 5.0
REF = SessionRef("acme", "https://idp.example", "user-1", "default", "chat-1")


@dataclass
class Watch:
    """A StoreObserver that remembers."""

    failures: Counter[str] = field(default_factory=Counter)
    events: Counter[StoreEvent] = field(default_factory=Counter)
    phases: list[Phase] = field(default_factory=list)

    def failed(self, cause: str) -> None:
        self.failures[cause] += 1

    def happened(self, event: StoreEvent, count: int = 1) -> None:
        self.events[event] += count

    def breaker_changed(self, phase: Phase) -> None:
        self.phases.append(phase)


@dataclass
class Place:
    """The servers behind a store."""

    url: str
    servers: list[RedisServer]
    cluster: RedisCluster | None = None

    def keys(self, pattern: str = "*") -> list[str]:
        found: list[bytes] = []
        for server in self.servers:
            with server.client() as client:
                found += client.scan_iter(pattern, count=1000)
        return sorted(key.decode() for key in found)

    def command(self, word: str, key: str, *words: str | bytes | int) -> object:
        server = self.cluster.node_of(key) if self.cluster else self.servers[0]
        with server.client() as client:
            return client.execute_command(word, key, *words)

    def number(self, word: str, key: str, *words: str | bytes | int) -> int:
        answer = self.command(word, key, *words)
        assert isinstance(answer, int)
        return answer

    def value(self, key: str) -> bytes:
        answer = self.command("GET", key)
        assert isinstance(answer, bytes)
        return answer

    def session_key(self) -> str:
        (key,) = self.keys("tb:*:s:*")
        return key

    def index_key(self) -> str:
        (key,) = self.keys("tb:*:idx")
        return key


@dataclass
class Stores:
    """Makes stores on one place, each as another replica would, and closes them."""

    place: Place
    watch: Watch = field(default_factory=Watch)
    made: list[RedisSessionStore] = field(default_factory=list)

    def make(
        self,
        url: str | None = None,
        *,
        secret: bytes = SECRET,
        previous: bytes | None = None,
        sessions_per_principal: int = 64,
        pool_size: int = 16,
    ) -> RedisSessionStore:
        store = connect_store(
            url or self.place.url,
            secret=secret,
            previous=previous,
            sessions_per_principal=sessions_per_principal,
            pool_size=pool_size,
            observer=self.watch,
        )
        self.made.append(store)
        return store

    async def close(self) -> None:
        for store in self.made:
            await store.close()


@dataclass
class Session:
    """One session through one store, with the suite's ordinary arguments."""

    store: SessionStore
    ref: SessionRef = REF
    epoch: int = 0
    ttl: int = TTL

    async def open(self, key: TurnKey | None = None, turn: int = 0) -> Opened:
        return await self.store.open(
            self.ref, epoch=self.epoch, ttl_seconds=self.ttl, timeout=TIMEOUT, turn_key=key, turn=turn
        )

    async def save(self, opened: Opened, state: SessionState, key: TurnKey | None = None, spent: int = 0) -> Saved:
        return await self.store.save(
            self.ref,
            opened,
            state,
            epoch=self.epoch,
            ttl_seconds=self.ttl,
            timeout=TIMEOUT,
            turn_key=key,
            spent=spent,
        )

    async def touch(self) -> Opened:
        return await self.store.touch(self.ref, epoch=self.epoch, ttl_seconds=self.ttl, timeout=TIMEOUT)

    async def peek(self) -> Opened:
        return await self.store.peek(self.ref, epoch=self.epoch, timeout=TIMEOUT)

    async def merge(self, *tools: StoredTool) -> None:
        await self.store.merge(self.ref, tools, ttl_seconds=self.ttl, timeout=TIMEOUT)

    async def end(self) -> None:
        await self.store.end(self.ref, timeout=TIMEOUT)

    async def begin(self, state: SessionState | None = None, key: TurnKey | None = None) -> Saved:
        return await self.save(await self.open(key), state or state_of("crm/find"), key)


def tool(tool_id: str, *, pinned: bool = False, turn: int = 1, called: int = 0, place: int = 0) -> StoredTool:
    return StoredTool(tool_id, hashlib.sha256(tool_id.encode()).digest(), pinned, turn, called, place)


def state_of(*tool_ids: str, pinned: Iterable[str] = ()) -> SessionState:
    pins = set(pinned)
    return SessionState(seeded=True, tools=tuple(tool(name, pinned=name in pins) for name in tool_ids))


def names(state: SessionState) -> list[str]:
    return [stored.tool_id for stored in state.tools]


def turn_key(identity: str, content: str = "same") -> TurnKey:
    digest = hashlib.sha256(identity.encode()).digest()
    return TurnKey(digest[:8], hashlib.sha256(f"{identity}|{content}".encode()).digest()[:16])
