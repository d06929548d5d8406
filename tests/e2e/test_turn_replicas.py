"""Equal bytes from every replica, whatever the hash seed, the rows' order, or a restart (row 18)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.service import Service
from tests.support.world import Player, World, chat, letter, letters_of, outcome

MakeWorld = Callable[..., World]


@pytest.fixture(scope="module")
def replicas(turn_service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """Two more replicas on the same stores, each with a hash seed of its own."""
    environment = turn_service.environment
    folder: Path = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:
        started = []
        for seed in ("1", "4242"):
            replica = Service(
                environment["TOOLBELAY_DATABASE_URL"],
                environment["TOOLBELAY_REDIS_URL"],
                folder,
                PYTHONHASHSEED=seed,
            )
            stack.callback(replica.close)
            started.append(replica.start())
        yield started


def test_replicas_answer_one_session_with_equal_bytes(world: MakeWorld, replicas: list[Service]) -> None:
    place = world(seed_tools=5, core_tools=["crm/y", "crm/x"], max_tools=10)
    players = [place.client, *[Player(replica, "alice", place.tenant) for replica in replicas]]
    first = players[0].turn(ranked=dict.fromkeys("fedcba", 1.0), called="qp")
    assert letters_of(first) == "yxqpabcde"
    for player in players:
        again = player.turn(ranked=dict.fromkeys("abcdef", 1.0), called="qp")
        assert outcome(again) == ("UPDATED" if player is players[0] else "REUSED")
        assert again.stable_prefix >= len(first.tools)
        assert [t.definition for t in again.tools][:9] == [t.definition for t in first.tools]
    fresh = [player.turn(f"s{n}", ranked=dict.fromkeys("fedcba", 1.0), called="qp") for n, player in enumerate(players)]
    assert len({a.receipt.surface_digest for a in fresh}) == 1
    assert fresh[0].receipt.surface_digest == first.receipt.surface_digest


def test_rewritten_rows_move_nothing(world: MakeWorld, replicas: list[Service]) -> None:
    place = world(letters="abcdef", seed_tools=6, mode="filter")
    offered = [chat(x) for x in "abcdef"]
    first = place.client.turn(ranked=dict.fromkeys("abcdef", 1.0), offered=offered)
    place.put(*[letter(x, tags=["rewritten"]) for x in "fbeadc"])
    for replica in replicas:
        player = Player(replica, "alice", place.tenant)
        again = player.turn(offered=offered[::-1])
        assert (outcome(again), again.receipt.surface_digest) == ("REUSED", first.receipt.surface_digest)
        assert again.receipt.generation == place.generation


def test_a_restart_loses_nothing(world: MakeWorld, replicas: list[Service]) -> None:
    place = world(seed_tools=4)
    replica = replicas[0]
    player = Player(replica, "alice", place.tenant)
    first = player.turn(ranked="dacb", called="z")
    replica.kill()
    replica.start()
    again = player.turn(called="z")
    assert (outcome(again), again.stable_prefix) == ("REUSED", 5)
    assert [t.definition for t in again.tools] == [t.definition for t in first.tools]


def test_replicas_see_a_policy_change_when_it_is_acknowledged(world: MakeWorld, replicas: list[Service]) -> None:
    place = world(seed_tools=4)
    players = [place.client, *[Player(replica, "alice", place.tenant) for replica in replicas]]
    players[0].turn(ranked="abcd")
    for denied in ("b", "", "ac", ""):
        place.forbid(denied)
        for n, player in enumerate(players):
            answer = player.turn("" if n else "s", ranked="abcd")
            assert answer.receipt.generation == place.generation
            assert not set(denied) & set(letters_of(answer))
