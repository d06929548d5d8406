"""Random histories of one session against a model that says in plain words what the store promises."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.contract.session_store_tools import REF, TIMEOUT, Place, Session, Stores, names, state_of, tool, turn_key
from tests.support.servers import RedisServer
from toolbelay.sessions.port import Found, Opened, SaveStatus, TurnKey

HISTORIES = 50
STEPS = 40


@dataclass
class Handle:
    """A turn under way. `life`, `revision`: what it saw; `ends`: how many ends there had been."""

    opened: Opened
    key: TurnKey | None
    life: int
    revision: int
    ends: int


@dataclass
class Model:
    """`life` 0 = absent; else the number of this session's incarnation."""

    life: int = 0
    lives: int = 0
    revision: int = 0
    turn: int = 0
    ends: int = 0
    tombstone: bool = False
    over_tombstone: bool = False
    tools: list[str] = field(default_factory=list)
    keys: dict[TurnKey, tuple[int, int]] = field(default_factory=dict)  # to (turn, spent), oldest first

    def note(self, key: TurnKey | None, turn: int, spent: int) -> None:
        if key is not None:
            self.keys[key] = (turn, max(spent, self.keys.get(key, (0, 0))[1]))
            for old in list(self.keys)[:-8]:
                del self.keys[old]

    def opens(self, key: TurnKey | None, given: int) -> tuple[int, bool, int]:
        """The turn number, whether it is a replay, what was spent."""
        if not self.life:
            return 1, False, 0
        if key in self.keys and key is not None:
            turn, spent = self.keys[key]
            return turn, not 1 < given <= self.turn, spent
        turn = given if 1 < given <= self.turn else self.turn + 1
        self.turn = max(self.turn, turn)
        self.note(key, turn, 0)
        return turn, False, 0

    def saves(self, handle: Handle, tools: list[str], spent: int) -> SaveStatus:
        if self.ends > handle.ends:
            return SaveStatus.ENDED
        if (self.life, self.revision if self.life else 0) != (handle.life, handle.revision):
            return SaveStatus.CONFLICT
        if not self.life:
            self.lives += 1
            self.life, self.revision, self.turn, self.keys = self.lives, 0, handle.opened.turn, {}
            self.over_tombstone, self.tombstone = self.tombstone, False
        self.revision += 1
        self.tools = tools
        self.note(handle.key, handle.opened.turn, spent)
        return SaveStatus.SAVED

    def vanishes(self) -> None:
        self.life = 0


@dataclass
class Player:
    """Does one random step at a time, on the store and on the model, and compares."""

    session: Session
    place: Place
    chance: random.Random
    model: Model = field(default_factory=Model)
    handles: list[Handle] = field(default_factory=list)

    async def step(self) -> str:
        steps = [self.open, self.open, self.save, self.save, self.save, self.reload, self.merge, self.end, self.expire]
        step = self.chance.choice(steps)
        await step()
        await self.compare()
        return step.__name__

    async def open(self, key: TurnKey | None = None, given: int = 0) -> None:
        if key is None and self.chance.random() < 0.8:
            key = turn_key(f"t{self.chance.randrange(12)}", str(self.chance.randrange(2)))
        life, revision = self.model.life, self.model.revision if self.model.life else 0
        expected = self.model.opens(key, given)
        opened = await self.session.open(key, given)
        assert (opened.turn, opened.replayed, opened.spent) == expected
        assert (opened.found is Found.PRESENT) == bool(life)
        self.handles.append(Handle(opened, key, life, revision, self.model.ends))

    async def reload(self) -> None:
        if self.handles:
            handle = self.handles.pop(self.chance.randrange(len(self.handles)))
            await self.open(handle.key, handle.opened.turn)

    async def save(self) -> None:
        if not self.handles:
            return
        handle = self.handles.pop(self.chance.randrange(len(self.handles)))
        tools, spent = [f"a/{self.chance.randrange(1000)}"], self.chance.randrange(3)
        expected = self.model.saves(handle, tools, spent)
        saved = await self.session.save(handle.opened, state_of(*tools), handle.key, spent)
        assert saved.status is expected

    async def merge(self) -> None:
        name = f"m/{self.chance.randrange(1000)}"
        await self.session.merge(tool(name, turn=1000 + self.model.revision))
        if self.model.life:
            self.model.revision += 1
            self.model.tools = [*self.model.tools, name]

    async def end(self) -> None:
        if self.chance.random() < 0.5:
            await self.session.end()
            self.model.tombstone = True
        else:
            await self.session.store.end_principal(REF.tenant, REF.issuer, REF.subject, timeout=TIMEOUT)
        self.model.ends += 1
        self.model.vanishes()

    async def expire(self) -> None:
        # A session begun over a tombstone takes the memory of that end with it when it vanishes within the minute:
        # a turn from before then conflicts, reloads and begins anew. The model leaves this out.
        if self.model.life and not self.model.over_tombstone and self.chance.random() < 0.3:
            self.place.command("DEL", *self.place.keys("tb:*:s:*"))
            self.model.vanishes()

    async def compare(self) -> None:
        seen = await self.session.peek()
        if not self.model.life:
            assert (seen.found, seen.turn) == (Found.ABSENT, 0)
            return
        assert (seen.revision, seen.turn) == (self.model.revision, self.model.turn)
        assert names(seen.state) == list(dict.fromkeys(self.model.tools))


@pytest.fixture
async def stores(redis_server: RedisServer) -> AsyncIterator[Stores]:
    stores = Stores(Place(redis_server.url, [redis_server]))
    yield stores
    await stores.close()


async def test_random_histories(stores: Stores) -> None:
    session = Session(stores.make(pool_size=1))
    for seed in range(HISTORIES):
        for key in stores.place.keys():  # noqa: SIM118 - a method, not a mapping
            stores.place.command("DEL", key)
        player = Player(dataclasses.replace(session), stores.place, random.Random(seed))
        done: list[str] = []
        try:
            for _ in range(STEPS):
                done += [await player.step()]
        except AssertionError as error:
            error.add_note(f"seed {seed}, after {done}")
            raise
