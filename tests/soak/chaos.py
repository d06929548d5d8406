"""Random faults under load on two replicas: whatever breaks, calls end as documented, and nothing leaks."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import psutil

from tests.support.fault_world import TOOLS, FaultWorld, reason_of, told
from tests.support.service import Client, ids

CALL_SECONDS: Final = 1.0
ALLOWED_ENDINGS: Final = frozenset({"OK", "UNAVAILABLE AUTHORITY_UNVERIFIABLE", "UNAVAILABLE STATE_UNAVAILABLE"})
LATE: Final = "DEADLINE_EXCEEDED"  # a busy machine may be late; a service that is late often has a fault
MOST_LATE: Final = 0.02  # of all calls
OUTCOMES: Final = frozenset({"SEEDED", "REUSED", "UPDATED", "UNSEEDED", "RESET", "STATELESS"})


@dataclass
class Chaos:
    """One run. `endings`, `outcomes` and `faults` count what happened."""

    world: FaultWorld
    seed: int = 0
    clients: int = 4
    endings: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)  # bytes of both replicas, after each fault

    def play(self, seconds: float, *, pause: float = 1.0) -> None:
        """Break and mend for so long. Raises AssertionError with what was not as documented."""
        over, chance = threading.Event(), random.Random(self.seed)
        ends = time.monotonic() + seconds
        with ThreadPoolExecutor(self.clients) as threads:
            playing = [threads.submit(self._play, over, number) for number in range(self.clients)]
            try:
                while time.monotonic() < ends and not any(task.done() for task in playing):
                    self._break(chance, pause)
                    self.memory.append(
                        sum(psutil.Process(r.process.pid).memory_info().rss for r in self.world.replicas)
                    )
            finally:
                over.set()
                self.world.cure()
            for task in playing:
                task.result()
        unforeseen = self.endings.keys() - ALLOWED_ENDINGS - {LATE}
        assert not unforeseen, f"{unforeseen} among {self.endings}"
        assert self.endings[LATE] <= MOST_LATE * self.endings.total() + 3, self.endings
        assert self.outcomes.keys() <= OUTCOMES, self.outcomes
        assert self.endings["OK"], self.endings

    def _play(self, over: threading.Event, number: int) -> None:
        chance = random.Random(self.seed + number)
        clients = [self.world.client(f"chaos-{number}", replica=r) for r in range(len(self.world.replicas))]
        while not over.is_set():
            self.endings[reason_of(lambda: self._call(chance, chance.choice(clients), number))] += 1

    def _call(self, chance: random.Random, client: Client, number: int) -> None:
        session, kind = f"c{chance.randrange(3)}", chance.randrange(10)
        if kind == 0:
            client.session(session)
        elif kind < 4:
            client.authorize(session, [chance.choice("abcdefgh")], timeout=CALL_SECONDS)
        else:
            # Each client's sessions know their own two tools: another's in the answer is a mixed up reply.
            own = [TOOLS[number % 4 * 2], TOOLS[number % 4 * 2 + 1]]
            answer = client.select(session, candidates=own, turn_id=str(chance.random()), timeout=CALL_SECONDS)
            assert set(ids(answer)) <= set(own), (number, ids(answer))
            self.outcomes[told(answer)[0]] += 1

    def _break(self, chance: random.Random, pause: float) -> None:
        world = self.world
        faults: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "redis killed": (world.redis.kill, world.redis.start),
            "redis hung": (world.redis.suspend, world.redis.resume),
            "redis slow": (lambda: world.wire.delay(0.3), world.wire.forward),
            "redis black-holed": (world.wire.black_hole, world.wire.forward),
            "redis refused": (world.wire.refuse, world.wire.forward),
            "redis cut": (lambda: world.wire.cut_replies_after(chance.randrange(40)), world.wire.forward),
            "redis flushed": (lambda: world.redis.command("FLUSHALL"), lambda: None),
            "scripts flushed": (lambda: world.redis.command("SCRIPT", "FLUSH"), lambda: None),
            "sql killed": (world.postgres.kill, world.postgres.start),
            "sql hung": (world.postgres.suspend, world.postgres.resume),
            "sql black-holed": (world.sql.black_hole, world.sql.forward),
            "sql refused": (world.sql.refuse, world.sql.forward),
            "nothing": (lambda: None, lambda: None),
        }
        name = chance.choice(sorted(faults))
        start, mend = faults[name]
        self.faults[name] += 1
        start()
        time.sleep(chance.uniform(0.2, 1.0) * pause)
        mend()
        time.sleep(chance.uniform(0.2, 1.0) * pause)
