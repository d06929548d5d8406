"""Turns told again, and turns at once (rules 9 and 10)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.support.world import Player, World, chat, choice, letters_of, outcome, reason, target
from toolbelay.v1 import selection_pb2 as pb

MakeWorld = Callable[..., World]


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls from as many threads behind one barrier."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait(10)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_a_replay_returns_the_same_set_and_number_row_25(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    first = alice.turn(ranked="ab", called="x", turn_id="1")
    assert not first.receipt.replayed
    again = alice.turn(ranked="ab", called="x", turn_id="1")
    assert again.receipt.replayed
    assert (letters_of(again), again.receipt.turn, outcome(again)) == ("xab", 1, "REUSED")
    assert again.receipt.revision == first.receipt.revision
    assert alice.turn(turn_id="2").receipt.turn == 2


def test_a_replay_with_other_candidates_spends_no_second_budget(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    alice.turn(ranked="ab", turn_id="1")
    assert letters_of(alice.turn(ranked="cdef", turn_id="1")) == "ab"
    assert letters_of(alice.turn(ranked="c", turn_id="2")) == "abc"
    answer = alice.turn(ranked="defg", turn_id="2")
    assert (letters_of(answer), answer.receipt.turn, answer.receipt.replayed) == ("abcd", 2, True)
    assert letters_of(alice.turn(ranked="ghij", turn_id="2")) == "abcd"


def content(**more: Any) -> dict[str, Any]:
    return {"query": "q", "called": ["a"], "offered": [chat("own")], **more}


@pytest.mark.parametrize(
    "other",
    [
        {"query": "r"},
        {"called": ["a", "a"]},
        {"called": ["b"]},
        {"offered": [chat("own2")]},
        {"offered": []},
        {"tool_choice": choice("REQUIRED")},
        {"target": target("MCP")},
        {"target": target(model="m")},
        {"target": target(max_tools=9)},
        {"target": target(capabilities=["vision"])},
    ],
)
def test_one_turn_id_with_other_content_is_a_new_turn(world: MakeWorld, other: dict[str, Any]) -> None:
    alice = world(seed_tools=2).client
    alice.turn(ranked="ab", turn_id="1", **content())
    again = alice.turn(ranked="cd", turn_id="1", **content())
    assert (again.receipt.replayed, again.receipt.turn) == (True, 1)
    new = alice.turn(ranked="cd", turn_id="1", **content(**other))
    assert (new.receipt.replayed, new.receipt.turn) == (False, 2)
    assert "cd" in letters_of(new)


def test_offered_bytes_are_no_part_of_the_key_but_names_are(world: MakeWorld) -> None:
    alice = world(seed_tools=1).client
    alice.turn(ranked="a", turn_id="1", offered=[chat("own", 1)])
    answer = alice.turn(ranked="b", turn_id="1", offered=[chat("own", 2)])
    assert (answer.receipt.replayed, letters_of(answer)) == (True, "[own]a")
    assert answer.tools[0].definition == chat("own", 2)


def test_an_old_turn_told_late_cannot_undo_newer_pins_row_25(world: MakeWorld) -> None:
    alice = world(max_tools=3, seed_tools=1).client
    alice.turn(called="a", ranked="z", turn_id="1")
    alice.turn(called="b", turn_id="2")
    alice.turn(called="c", turn_id="3")
    before = alice.session("s")
    for turn_id, called in (("2", "b"), ("1", "a"), ("3", "c")):
        again = alice.turn(called=called, ranked="z" if turn_id == "1" else "", turn_id=turn_id)
        assert again.receipt.replayed
        assert alice.session("s").tools == before.tools
    alice.turn(called="d")
    assert sorted(alice.pins()) == ["b", "c", "d"]


def test_a_replay_is_authorized_anew(world: MakeWorld) -> None:
    place = world(seed_tools=3)
    place.client.turn(ranked="abc", turn_id="1")
    place.forbid("b")
    answer = place.client.turn(ranked="abc", turn_id="1")
    assert (letters_of(answer), answer.receipt.replayed, answer.receipt.removed_unauthorized) == ("ac", True, 1)


def test_the_last_eight_keys_are_known(world: MakeWorld) -> None:
    alice = world(seed_tools=1).client
    for n in range(1, 10):
        alice.turn(ranked="a", turn_id=str(n))
    assert alice.turn(ranked="a", turn_id="2").receipt.replayed
    oldest = alice.turn(ranked="a", turn_id="1")
    assert (oldest.receipt.replayed, oldest.receipt.turn) == (False, 10)


def test_a_replay_never_reseats_and_a_cold_turn_does(world: MakeWorld) -> None:
    alice = world(seed_tools=2, reseat_when_cold=True, prompt_cache_ttl_seconds=1).client
    alice.turn(ranked="abcd")
    alice.turn(called="b", turn_id="2", ranked="cd")
    threading.Event().wait(1.1)  # what is awaited is the server's clock, which nothing announces
    replay = alice.turn(called="b", turn_id="2", ranked="xyz")
    assert (letters_of(replay), outcome(replay)) == ("abcd", "REUSED")
    threading.Event().wait(1.1)
    reseat = alice.turn(ranked="xyz", turn_id="3")
    assert (letters_of(reseat), outcome(reseat), reason(reseat)) == ("bxy", "RESET", "COLD")
    again = alice.turn(ranked="uvw", turn_id="3")
    assert (letters_of(again), again.receipt.replayed) == ("bxy", True)


def test_tries_of_one_turn_at_once_spend_one_budget(world: MakeWorld) -> None:
    alice = world(seed_tools=2).client
    alice.turn(ranked="ab")
    rankings = ["cd", "ef", "gh", "ij", "kl", "mn"]
    answers = at_once(*[partial(alice.turn, ranked=r, called="x", turn_id="t") for r in rankings])
    assert {a.receipt.turn for a in answers} == {2}
    assert sum(not a.receipt.replayed for a in answers) == 1
    stored = alice.stored()
    assert (stored[:2], len(stored), "x" in stored) == ("ab", 5, True)
    assert alice.session("s").turn == 2


def test_tries_of_the_first_turn_at_once_seed_once(world: MakeWorld) -> None:
    alice = world(seed_tools=3).client
    rankings = ["abc", "def", "ghi", "jkl"]
    answers = at_once(*[partial(alice.turn, ranked=r, turn_id="t") for r in rankings])
    assert len(alice.stored()) == 3
    assert alice.stored() in rankings
    assert {letters_of(a) for a in answers} == {alice.stored()}
    assert sum(not a.receipt.replayed for a in answers) == 1


def test_turns_at_once_lose_no_pin_and_break_no_bound(world: MakeWorld) -> None:
    alice = world(max_tools=12, seed_tools=4).client
    alice.turn(ranked="abcd")
    called = "mnopqrst"
    answers = at_once(*[partial(alice.turn, ranked="efgh", called=x) for x in called])
    assert set(called) <= set(alice.pins())
    assert len(alice.stored()) <= 12
    assert all(len(a.tools) <= 12 for a in answers)
    assert sorted(a.receipt.turn for a in answers) == list(range(2, 10))
    assert set(called) <= set(letters_of(alice.turn()))


def test_more_calls_at_once_than_places_keep_the_bound(world: MakeWorld) -> None:
    alice = world(max_tools=4, seed_tools=4).client
    alice.turn(ranked="abcd")
    answers = at_once(*[partial(alice.turn, ranked="efgh", called=x) for x in "mnopqrst"])
    assert all(len(a.tools) <= 4 for a in answers)
    assert len(alice.stored()) == 4
    assert set(alice.pins()) <= set("mnopqrst")
    assert len(alice.pins()) == 4


def test_first_turns_at_once_lose_no_pin(world: MakeWorld) -> None:
    alice = world(max_tools=12, seed_tools=2).client
    at_once(*[partial(alice.turn, ranked="ab", called=x) for x in "mnop"])
    assert set("mnop") <= set(alice.pins())
    assert alice.stored().count("a") == 1


def test_turns_and_authorized_calls_at_once_lose_no_pin(world: MakeWorld) -> None:
    alice = world(max_tools=10, seed_tools=6).client
    alice.turn(ranked="abcdef")
    calls: list[Callable[[], Any]] = [partial(alice.authorize, "s", [x]) for x in "abc"]
    calls += [partial(alice.turn, called=x) for x in "xyz"]
    at_once(*calls)
    assert set(alice.pins()) == set("abcxyz")


def test_revocation_during_turns_at_once(world: MakeWorld) -> None:
    place = world(max_tools=10, seed_tools=6)
    alice = place.client
    alice.turn(ranked="abcdef")
    done = threading.Event()
    seen: list[pb.SelectToolsResponse] = []

    def play(player: Player) -> None:
        while not done.is_set():
            seen.append(player.turn(ranked="bcgh", called="b"))

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(play, alice) for _ in range(3)]
        place.forbid("bg")
        after = place.generation
        for _ in range(5):
            answer = alice.turn(ranked="bcgh", called="b")
            assert answer.receipt.generation >= after
            assert not set("bg") & set(letters_of(answer))
        done.set()
        for job in running:
            job.result()
    late = [a for a in seen if a.receipt.generation >= after]
    assert late
    assert all(not set("bg") & set(letters_of(a)) for a in late)
    assert not set("bg") & set(alice.stored())
