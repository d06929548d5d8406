"""Session state in Redis or Valkey: the port, on scripts and one link."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Final, Required, TypedDict

from msgspec.structs import replace
from redis.exceptions import ResponseError

from toolbelay.memo import Cache
from toolbelay.planner.model import EMPTY_STATE, SessionState, StoredTool
from toolbelay.sessions import envelope, faults, lua
from toolbelay.sessions.connect import open_link
from toolbelay.sessions.endpoint import Call, Reply
from toolbelay.sessions.keys import PROBE_KEY, KeyMaker, generation_key
from toolbelay.sessions.link import Link
from toolbelay.sessions.observer import StoreEvent, StoreObserver, Unobserved
from toolbelay.sessions.port import (
    Found,
    Opened,
    Saved,
    SaveStatus,
    SeenGeneration,
    SessionRef,
    StateUnavailableError,
    TurnKey,
)

GENERATION_TTL_SECONDS: Final = 24 * 3600
PROBE_TTL_SECONDS: Final = 10
MAX_GENERATION: Final = 2**53 - 1  # above it Lua's numbers would lose a step
_MAX_SPENT: Final = 0xFFFF
_NO_KEY: Final = TurnKey(b"", b"")


class _AboutTurn(TypedDict, total=False):
    """The fields of `Opened` that only a turn's *open* knows."""

    turn: Required[int]
    replayed: bool
    spent: int
    key_reused: bool
    idle_ms: int


class RedisSessionStore:
    """See `SessionStore` for what each method promises.

    `secret`: STATE_SECRET. `previous`: STATE_SECRET_PREVIOUS; a session that is absent under the present secret is
    looked for under it and moved, in up to four further trips, once. Turn keys made with the old secret match no
    more, so a retry across the change counts as a new turn. `sessions_per_principal`: from 1.
    """

    def __init__(
        self,
        link: Link,
        *,
        secret: bytes,
        previous: bytes | None = None,
        sessions_per_principal: int = 64,
        observer: StoreObserver | None = None,
    ) -> None:
        if sessions_per_principal < 1:
            raise ValueError("sessions_per_principal is at least 1")
        self._link = link
        self._keys = KeyMaker(secret)
        self._old_keys = KeyMaker(previous) if previous else None
        self._quota = b"%d" % sessions_per_principal
        self._observer = observer or Unobserved()
        self._tails = envelope.TailMemo()
        self.caches: Mapping[str, Cache] = {"session_states": self._tails.states, "session_keys": self._keys.cache}

    async def open(
        self,
        ref: SessionRef,
        *,
        epoch: int,
        ttl_seconds: int,
        timeout: float,
        turn_key: TurnKey | None = None,
        turn: int = 0,
    ) -> Opened:
        key = turn_key or _NO_KEY
        about = (b"1", b"%d" % turn, key.identity, key.content)
        return await self._open(ref, about, epoch=epoch, ttl_seconds=ttl_seconds, timeout=timeout)

    async def touch(self, ref: SessionRef, *, epoch: int, ttl_seconds: int, timeout: float) -> Opened:
        about = (b"0", b"0", b"", b"")
        opened = await self._open(ref, about, epoch=epoch, ttl_seconds=ttl_seconds, timeout=timeout)
        return opened if opened.found is Found.PRESENT else replace(opened, turn=0)

    async def peek(self, ref: SessionRef, *, epoch: int, timeout: float) -> Opened:
        deadline = _Deadline(timeout)
        reply = await self._peek(ref, self._keys, epoch, deadline)
        if self._old_keys is not None and _is_vacant(reply):
            older = await self._peek(ref, self._old_keys, epoch, deadline)
            if older.value[1] is not None:
                reply = replace(older, fresh=reply.fresh or older.fresh)
        token, raw, now, ttl = reply.value
        opened = self._opened(reply, token, raw, expires_ms=now + max(ttl, 0))
        return opened if opened.found is Found.PRESENT else replace(opened, turn=0)

    async def save(
        self,
        ref: SessionRef,
        opened: Opened,
        state: SessionState,
        *,
        epoch: int,
        ttl_seconds: int,
        timeout: float,
        turn_key: TurnKey | None = None,
        spent: int = 0,
    ) -> Saved:
        at, key = self._keys.session(ref), turn_key or _NO_KEY
        args = (
            at.member,
            opened.token,
            b"0" if opened.found is Found.PRESENT else b"1",
            b"%d" % epoch,
            b"%d" % (ttl_seconds * 1000),
            self._tail(state),
            b"" if opened.found is Found.PRESENT else os.urandom(8),
            b"%d" % opened.turn,
            key.identity,
            key.content,
            b"%d" % min(spent, _MAX_SPENT),
            self._quota,
        )
        reply = await self._run(Call(lua.SAVE, (at.session, at.index), args), timeout)
        word, revision, evicted = reply.value
        status = SaveStatus(word.decode())
        if evicted:
            self._observer.happened(StoreEvent.EVICTED, evicted)
        return Saved(status, revision if status is SaveStatus.SAVED else opened.revision)

    async def merge(self, ref: SessionRef, tools: Sequence[StoredTool], *, ttl_seconds: int, timeout: float) -> None:
        at = self._keys.session(ref)
        entries = [envelope.encode_entry(tool) for tool in tools]
        args = (at.member, b"%d" % (ttl_seconds * 1000), *entries)
        reply = await self._run(Call(lua.MERGE, (at.session, at.index), args), timeout)
        if reply.value > 0:
            self._observer.happened(StoreEvent.MERGE_REFUSED, reply.value)

    async def end(self, ref: SessionRef, *, timeout: float) -> None:
        deadline = _Deadline(timeout)
        for keys in self._all_keys():
            at = keys.session(ref)
            call = Call(lua.END, (at.session, at.index), (at.member, os.urandom(8)))
            await self._run(call, deadline.left())

    async def end_principal(self, tenant: str, issuer: str, subject: str, *, timeout: float) -> int:
        deadline, ended = _Deadline(timeout), 0
        for keys in self._all_keys():
            call = Call(lua.END_PRINCIPAL, (keys.index(tenant, issuer, subject),))
            ended += (await self._run(call, deadline.left())).value
        return ended

    async def generation(self, tenant: str, *, timeout: float) -> tuple[int | None, bool]:
        seen = await self.see_generation(tenant, timeout=timeout)
        return seen.value, seen.fresh

    async def see_generation(self, tenant: str, *, timeout: float, proven: bool = False) -> SeenGeneration:
        reply = await self._run(Call(generation_key=generation_key(tenant), proven=proven), timeout)
        if proven and reply.fresh:
            return SeenGeneration(None, fresh=True)
        return SeenGeneration(self._generation(reply), reply.fresh, reply.vouch)

    async def raise_generation(self, tenant: str, generation: int, *, timeout: float) -> int:
        args = (b"%d" % generation, b"%d" % (GENERATION_TTL_SECONDS * 1000))
        reply = await self._run(Call(lua.RAISE_GENERATION, (generation_key(tenant),), args), timeout)
        stored: int = reply.value
        return stored

    async def ping(self, *, timeout: float) -> None:
        await self._run(Call(lua.PROBE, (PROBE_KEY,), (b"%d" % (PROBE_TTL_SECONDS * 1000),)), timeout)

    async def close(self) -> None:
        await self._link.close()

    async def _open(
        self, ref: SessionRef, about: tuple[bytes, ...], *, epoch: int, ttl_seconds: int, timeout: float
    ) -> Opened:
        deadline = _Deadline(timeout)
        at, ttl_ms = self._keys.session(ref), ttl_seconds * 1000
        args = (at.member, b"%d" % epoch, b"%d" % ttl_ms, *about)
        call = Call(lua.OPEN, (at.session, at.index), args, generation_key(ref.tenant))
        reply = await self._run(call, timeout)
        if _is_vacant(reply) and await self._adopt(ref, epoch=epoch, ttl_ms=ttl_ms, deadline=deadline):
            again = await self._run(call, deadline.left())
            reply = replace(again, fresh=reply.fresh or again.fresh)
        token, raw, turn, replayed, spent, reused, idle_ms, now = reply.value
        about_turn: _AboutTurn = {
            "turn": turn,
            "replayed": bool(replayed),
            "spent": spent,
            "key_reused": bool(reused),
            "idle_ms": max(idle_ms, 0),
        }
        return self._opened(reply, token, raw, expires_ms=now + ttl_ms, about_turn=about_turn)

    async def _peek(self, ref: SessionRef, keys: KeyMaker, epoch: int, deadline: _Deadline) -> Reply:
        at = keys.session(ref)
        call = Call(lua.PEEK, (at.session, at.index), (b"%d" % epoch,), generation_key(ref.tenant))
        return await self._run(call, deadline.left())

    async def _adopt(self, ref: SessionRef, *, epoch: int, ttl_ms: int, deadline: _Deadline) -> bool:
        """Move a session from the previous secret's key; whether there was one."""
        if self._old_keys is None:
            return False
        raw = (await self._peek(ref, self._old_keys, epoch, deadline)).value[1]
        if raw is None:
            return False
        at, old = self._keys.session(ref), self._old_keys.session(ref)
        args = (at.member, raw, b"%d" % ttl_ms, self._quota)
        if (await self._run(Call(lua.ADOPT, (at.session, at.index), args), deadline.left())).value:
            self._observer.happened(StoreEvent.ADOPTED)
        # Left behind, the old value would come back once the session's tombstone has gone.
        await self._run(Call(lua.FORGET, (old.session, old.index), (old.member,)), deadline.left())
        return True

    def _opened(
        self, reply: Reply, token: bytes, raw: bytes | None, *, expires_ms: int, about_turn: _AboutTurn | None = None
    ) -> Opened:
        """What a script found; without `about_turn` the turn is the last one's."""
        generation = self._generation(reply)
        damaged = token.startswith(b"D")
        if raw is not None:
            try:
                found = envelope.decode(raw, self._tails)
            except envelope.DamagedEnvelopeError:
                damaged = True
            else:
                return Opened(
                    found=Found.PRESENT,
                    state=found.state,
                    token=token,
                    revision=found.revision,
                    created_ms=found.created_ms,
                    last_seen_ms=found.last_seen_ms,
                    expires_ms=expires_ms,
                    epoch=found.epoch,
                    generation=generation,
                    fresh_connection=reply.fresh,
                    vouch=reply.vouch,
                    **(about_turn or {"turn": found.turn}),
                )
        if damaged:
            self._observer.happened(StoreEvent.DAMAGED)
        return Opened(
            found=Found.DAMAGED if damaged else Found.ABSENT,
            state=EMPTY_STATE,
            token=token,
            revision=0,
            turn=1,
            generation=generation,
            fresh_connection=reply.fresh,
            vouch=reply.vouch,
        )

    def _generation(self, reply: Reply) -> int | None:
        raw = reply.generation
        if raw is None:
            return None
        if isinstance(raw, bytes) and raw.isdigit() and int(raw) <= MAX_GENERATION:
            return int(raw)
        if isinstance(raw, ResponseError) and not str(raw).startswith("WRONGTYPE"):
            raise self._counted(StateUnavailableError(faults.cause_of(raw))) from raw
        self._observer.happened(StoreEvent.FOREIGN_GENERATION)
        return None

    def _tail(self, state: SessionState) -> bytes:
        try:
            tail, complete = envelope.encode_tail(state)
        except envelope.OversizedStateError as error:
            raise self._counted(StateUnavailableError(faults.TOO_LARGE)) from error
        if complete:
            self._tails.states.put(tail, state)  # the session's next turn reads it
        else:
            self._observer.happened(StoreEvent.DIGESTS_DROPPED)
        return tail

    async def _run(self, call: Call, timeout: float) -> Reply:
        try:
            return await self._link.call(call, timeout=timeout)
        except StateUnavailableError as error:
            self._counted(error)
            raise

    def _counted(self, error: StateUnavailableError) -> StateUnavailableError:
        self._observer.failed(error.cause)
        return error

    def _all_keys(self) -> tuple[KeyMaker, ...]:
        return (self._keys,) if self._old_keys is None else (self._keys, self._old_keys)


class _Deadline:
    """What is left of a timeout when one method needs several trips."""

    def __init__(self, timeout: float) -> None:
        self._end = time.monotonic() + timeout

    def left(self) -> float:
        return self._end - time.monotonic()


def _is_vacant(reply: Reply) -> bool:
    """Nothing at all is there: no tombstone, no older epoch's envelope, no damage."""
    token: bytes = reply.value[0]
    return token.startswith(b"A")


def connect_store(
    url: str,
    *,
    secret: bytes,
    previous: bytes | None = None,
    sessions_per_principal: int = 64,
    pool_size: int = 16,
    observer: StoreObserver | None = None,
) -> RedisSessionStore:
    """A store on the servers of REDIS_URL; connects on first use. `pool_size`: connections per server.

    Raises ValueError for a URL that cannot be read, a short secret, or a bound below 1.
    """
    watch = observer or Unobserved()
    return RedisSessionStore(
        open_link(url, pool_size=pool_size, observer=watch),
        secret=secret,
        previous=previous,
        sessions_per_principal=sessions_per_principal,
        observer=watch,
    )
