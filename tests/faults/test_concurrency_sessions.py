"""Turns of one session at once on two replicas, and cancelled calls beside control sessions."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from tests.support.fault_world import TOOLS, FaultWorld, fault_world
from tests.support.service import PERMIT_ALL, Client, apply_config, bundle, ids, in_thread, tool
from toolbelay.v1 import selection_pb2 as pb

pytestmark = pytest.mark.faults

MANY = tuple(f"crm/t{n:02d}" for n in range(40))
MAX_TOOLS = 8
GROWTH = 2
ROUNDS = 200
CONTROLS = 6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultWorld]:
    folder = tmp_path_factory.mktemp("concurrency")
    with fault_world(folder, replicas=2, TOOLBELAY_REDIS_POOL_SIZE="2") as made:
        route = {
            "strategy": "caller",
            "top_k": 40,
            "seed_tools": 2,
            "sticky": {"max_tools": MAX_TOOLS, "max_new_tools_per_turn": GROWTH},
        }
        config = bundle([tool(t) for t in MANY], {"all.cedar": PERMIT_ALL}, {"default": route})
        in_thread(apply_config(made.admin_environment, "acme", config, prune=True))
        yield made


@contextmanager
def closing_of(world: FaultWorld) -> Iterator[None]:
    """The wire behaves again afterwards."""
    try:
        yield
    finally:
        world.wire.forward()


def both(world: FaultWorld, subject: str) -> list[Client]:
    return [world.client(subject, replica=number) for number in range(2)]


def pins(client: Client, session: str) -> set[str]:
    return {t.tool_id for t in client.session(session).tools if t.pinned}


def name_of(tool_id: str) -> str:
    return tool_id.partition("/")[2]


def test_turns_at_once_lose_no_pin_and_break_no_bound(world: FaultWorld) -> None:
    """Each round two turns of one session leave at a barrier, to two replicas, and each calls another tool."""
    clients = both(world, "rounds")
    barrier = threading.Barrier(2)

    def turn(side: int, number: int) -> pb.SelectToolsResponse:
        called = MANY[(number * 2 + side) % 6]  # six pins in all: they fit, so none may go
        barrier.wait(30)
        return clients[side].select(
            f"rounds-{number // 20}",
            candidates=random.Random(number * 2 + side).sample(MANY[8:], 20),
            called_tools=[name_of(called)],
            turn_id=f"{side}-{number}",
        )

    world.wire.delay(0.003)  # longer than the threads are apart: both have loaded before either saves
    with ThreadPoolExecutor(2) as threads, closing_of(world):
        for number in range(ROUNDS):
            answers = list(threads.map(turn, (0, 1), (number, number)))
            stored = clients[number % 2].session(f"rounds-{number // 20}")
            pinned = {t.tool_id for t in stored.tools if t.pinned}
            first = number // 20 * 20
            wanted = {MANY[n % 6] for n in range(first * 2, number * 2 + 2)}
            assert wanted <= pinned, number
            assert len(stored.tools) <= MAX_TOOLS, number
            assert all(len(answer.tools) <= MAX_TOOLS for answer in answers)
            assert all(MANY[(number * 2 + side) % 6] in ids(answer) for side, answer in enumerate(answers))
    conflicts = sum(world.metric("toolbelay_state_conflicts_total", replica=number) for number in range(2))
    assert conflicts > ROUNDS / 2


def test_pins_of_calls_authorized_at_once_are_kept(world: FaultWorld) -> None:
    clients = both(world, "dispatch")
    barrier = threading.Barrier(4)

    def authorize(number: int, session: str) -> pb.AuthorizeToolCallsResponse:
        barrier.wait(30)
        return clients[number % 2].authorize(session, [name_of(MANY[number])])

    with ThreadPoolExecutor(4) as threads:
        for round_ in range(25):
            session = f"d{round_}"
            for first in (0, 2):
                clients[0].select(session, candidates=MANY[:4], turn_id=str(first))
            answers = list(threads.map(authorize, range(4), [session] * 4))
            assert all(a.decisions[0].verdict == pb.VERDICT_ALLOWED for a in answers)
            assert pins(clients[1], session) == set(MANY[:4])


def test_one_turn_sent_twice_at_once_spends_its_budget_once(world: FaultWorld) -> None:
    """Row 25, at once and again later, on both replicas."""
    clients = both(world, "twice")
    barrier = threading.Barrier(4)

    def again(number: int, session: str) -> pb.SelectToolsResponse:
        barrier.wait(30)
        return clients[number % 2].select(session, candidates=MANY[10:], turn_id="one", query="q")

    with ThreadPoolExecutor(4) as threads:
        for round_ in range(30):
            session = f"twice-{round_}"
            seed = clients[0].select(session, candidates=MANY[:2])
            assert len(seed.tools) == 2
            answers = list(threads.map(again, range(4), [session] * 4))
            assert {a.receipt.turn for a in answers} == {2}
            assert sum(not a.receipt.replayed for a in answers) == 1
            late = clients[1].select(session, candidates=MANY[20:], turn_id="one", query="q")
            assert late.receipt.replayed
            stored = clients[0].session(session)
            assert len(stored.tools) == 2 + GROWTH
            assert stored.turn == 2
            assert ids(late) == [t.tool_id for t in stored.tools]


def test_other_content_under_a_turn_id_is_a_turn_of_its_own(world: FaultWorld) -> None:
    client = world.client("reuse")
    client.select("r", candidates=MANY[:2], turn_id="x", query="one")
    other = client.select("r", candidates=MANY[:2], turn_id="x", query="two")
    assert (other.receipt.turn, other.receipt.replayed) == (2, False)
    assert world.metric("toolbelay_turn_keys_reused_total") == 1


def test_late_older_turns_undo_nothing(world: FaultWorld) -> None:
    """Row 25: turn 3 arrives before turn 2, which a client sent earlier and another replica serves."""
    first, second = both(world, "late")
    first.select("l", candidates=MANY[:4], turn_id="1")
    first.select("l", candidates=MANY[:4], turn_id="2", called_tools=["t00"])
    second.select("l", candidates=MANY[:4], turn_id="3", called_tools=["t00", "t01"])
    late = first.select("l", candidates=MANY[:4], turn_id="2", called_tools=["t00"])
    assert late.receipt.replayed
    older = second.select("l", candidates=MANY[:4], turn_id="1b", called_tools=[])
    assert pins(first, "l") == {MANY[0], MANY[1]}
    assert {MANY[0], MANY[1]} <= set(ids(late)) & set(ids(older))


class Noise:
    """Calls with random short deadlines, in threads. `ended`: how they failed."""

    def __init__(self, world: FaultWorld) -> None:
        self._world = world
        self.over = threading.Event()
        self.ended: list[str] = []

    def make(self, seed: int) -> None:
        chance, client = random.Random(seed), self._world.client(f"noise-{seed}")
        while not self.over.is_set():
            try:
                client.select(
                    f"n{chance.randrange(4)}",
                    candidates=chance.sample(MANY[20:], 6),
                    called_tools=[name_of(chance.choice(MANY[20:]))],
                    timeout=chance.uniform(0.001, 0.04),
                )
            except grpc.RpcError as error:
                self.ended.append(code_of(error))


def code_of(error: Any) -> str:
    """A raised RpcError is a Call too."""
    return str(error.code().name)


def control_turns(world: FaultWorld, number: int, tools: Sequence[str]) -> None:
    """A session of its own that must see its two tools and nothing else."""
    client = world.client(f"control-{number}")
    for again in range(60):
        answer = client.select("c", candidates=tools, called_tools=list(map(name_of, tools)), timeout=10)
        assert ids(answer) == tools
        if again % 20 == 0:
            assert [t.tool_id for t in client.session("c").tools] == tools
        decided = client.authorize("c", [name_of(tools[0]), "t39"])
        if decided.state_checked:
            assert [d.tool_id for d in decided.decisions] == [tools[0], ""]


def test_cancelled_calls_mix_up_no_reply(world: FaultWorld) -> None:
    """On a pool of two delayed connections, beside sessions that must not notice."""
    expected = {number: [MANY[number * 2], MANY[number * 2 + 1]] for number in range(CONTROLS)}
    for number, tools in expected.items():
        control_turns(world, number, tools)
    noise = Noise(world)
    world.wire.delay(0.004)
    with ThreadPoolExecutor(CONTROLS + 4) as threads, closing_of(world):
        noises = [threads.submit(noise.make, seed) for seed in range(4)]
        controls = [threads.submit(control_turns, world, *item) for item in expected.items()]
        try:
            for task in controls:
                task.result()
        finally:
            noise.over.set()
        for task in noises:
            task.result()
    assert "DEADLINE_EXCEEDED" in noise.ended
    for number, tools in expected.items():
        assert pins(world.client(f"control-{number}"), "c") == set(tools)


def test_no_connection_is_lost_to_failed_calls(world: FaultWorld) -> None:
    """Row 45: after thousands of calls of which many end early the pool still holds two connections a replica."""
    client = world.client("leak")

    def call(number: int) -> tuple[bool, str]:
        short = number % 3 == 0
        try:
            client.select(f"k{number % 16}", candidates=TOOLS[:2], timeout=0.003 if short else 10)
        except grpc.RpcError as error:
            return short, code_of(error)
        return short, "OK"

    with ThreadPoolExecutor(16) as threads:
        ended = set(threads.map(call, range(1500)))
    assert (True, "DEADLINE_EXCEEDED") in ended
    assert {code for short, code in ended if not short} == {"OK"}
    answer = client.select("k-last", candidates=MANY[:2])
    assert answer.receipt.outcome == pb.OUTCOME_SEEDED
    clients = world.redis.command("CLIENT", "LIST", "TYPE", "NORMAL")
    assert isinstance(clients, bytes)
    assert len(clients.splitlines()) <= 2 * 2 + 1  # two of each replica, and who asks
