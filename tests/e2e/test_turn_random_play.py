"""Random sessions over gRPC against the rules written slowly: whatever order things happen in, the answer is the rules'."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tests.support.service import PERMIT_ALL
from tests.support.slow_planner import RequiredError, SlowPlan, slow_plan
from tests.support.turns import Table
from tests.support.world import Player, World, chat, choice, letter, letters_of, origins_of, outcome, target
from toolbelay.planner.model import SessionState, Standing, StoredTool
from toolbelay.v1 import selection_pb2 as pb

LETTERS = "abcdefghijklmnop"
VISION = "mnop"  # tools that require a capability
TURNS = 120


class Game:
    """A tenant, and what the rules say of it."""

    def __init__(self, dice: random.Random, world: Callable[..., World]) -> None:
        self.dice = dice
        self.options: dict[str, Any] = {"max_tools": 8, "seed_tools": 4, "top_k": 6}
        tools = [letter(x, requires=["vision"] if x in VISION else []) for x in LETTERS]
        self.place = world(tools=tools, **self.options)
        self.alice: Player = self.place.client
        self.table = Table(LETTERS)
        self.denied = ""
        self.gone = ""
        self.versions = dict.fromkeys(LETTERS, 0)
        self.spent: dict[str, tuple[int, int]] = {}
        self.number = 0

    def change_something(self) -> None:
        kind = self.dice.choice(["policy", "definition", "remove", "return", "route", "route"])
        if kind == "policy":
            self.denied = "".join(self.dice.sample(LETTERS, self.dice.randint(0, 4)))
            rules = [f'forbid (principal, action, resource == Tool::"crm/{x}");' for x in self.denied]
            self.place.permit("\n".join([PERMIT_ALL, *rules]))
        elif kind == "definition":
            name = self.dice.choice([x for x in LETTERS if x not in self.gone])
            self.versions[name] += 1
            self.place.put(self.line(name))
        elif kind == "remove" and len(self.gone) < 4:
            name = self.dice.choice([x for x in LETTERS if x not in self.gone])
            self.gone += name
            self.place.remove(name)
        elif kind == "return" and self.gone:
            name, self.gone = self.gone[0], self.gone[1:]
            self.place.put(self.line(name))
        elif kind == "route":
            max_tools = self.dice.randint(2, 9)
            self.options = {
                "max_tools": max_tools,
                "seed_tools": min(4, max_tools),
                "top_k": self.dice.choice([3, 6, 8]),
                "max_new_tools_per_turn": self.dice.choice([0, 1, min(2, max_tools)]),
                "core_tools": [f"crm/{x}" for x in self.dice.sample(LETTERS, self.dice.randint(0, 2))],
                "required_tools": [f"crm/{x}" for x in self.dice.sample("abc", self.dice.choice([0, 0, 1]))],
                "pin_called_tools": self.dice.random() < 0.9,
            }
            self.place.route(on_no_match="all", **self.options)

    def line(self, name: str) -> dict[str, Any]:
        return letter(name, self.versions[name], requires=["vision"] if name in VISION else [])

    def play(self, turn: int) -> None:
        dice = self.dice
        ranked = "".join(dice.sample(LETTERS, dice.choice([0, 4, 8])))
        called = "".join(dice.choices(LETTERS, k=dice.choice([0, 0, 1, 2])))
        own = "".join(dice.sample(LETTERS, dice.choice([0, 0, 0, 1])))
        vision = dice.random() < 0.7
        cap = dice.choice([0, 0, 0, 5, 3])
        named = dice.choice([None, None, None, None, dice.choice(LETTERS)])
        fields: dict[str, Any] = {
            "offered": [chat(x, description="mine") for x in own],
            "target": target(capabilities=["vision"] if vision else [], max_tools=cap),
            "turn_id": f"turn {turn}" if dice.random() < 0.5 else "",
        }
        if named:
            fields["tool_choice"] = choice("NAMED", named)
        self.standings(own, vision=vision)
        for attempt in range(1 + (dice.random() < 0.3)):
            if attempt:
                ranked = "".join(dice.sample(LETTERS, 6))
            self.one(ranked, called, own, cap, named, fields)

    def one(self, ranked: str, called: str, own: str, cap: int, named: str | None, fields: dict[str, Any]) -> None:
        turn_id = fields["turn_id"]
        again = self.spent.get(turn_id) if turn_id else None
        expected: SlowPlan | None = None
        error = ""
        given = self.input(ranked, called, own, cap, named, again)
        try:
            expected = slow_plan(given)
        except RequiredError as refused:
            error = str(refused)
        if error or (named and named not in own and not self.table.eligible(named)):
            with pytest.raises(grpc.RpcError) as caught:
                self.alice.turn(ranked=ranked, called=called, **fields)
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            if self.number:
                self.number = max(self.number, given.turn)
                if turn_id:
                    self.spent.setdefault(turn_id, (given.turn, 0))
            return
        assert expected is not None
        answer = self.alice.turn(ranked=ranked, called=called, **fields)
        self.compare(answer, expected, own, given.turn, replayed=again is not None)
        if turn_id:
            grown = sum(o == "ADDED_RELEVANT" for _, o, _ in expected.answer)
            spent = 0xFFFF if expected.outcome in ("SEEDED", "RESET") else given.spent + grown
            self.spent[turn_id] = (given.turn, spent)
        self.number = max(self.number, given.turn)
        self.table.state = self.stored(expected)

    def input(
        self, ranked: str, called: str, own: str, cap: int, named: str | None, again: tuple[int, int] | None
    ) -> Any:
        options = self.options
        max_tools = options["max_tools"]
        self.table.bound(
            max_tools=max_tools,
            capacity=max(min(max_tools, (cap or 128) - len(own)), 0),
            seed_tools=options["seed_tools"],
            top_k=options["top_k"],
            max_new_tools_per_turn=options.get("max_new_tools_per_turn", min(2, max_tools)),
            pin_called_tools=options.get("pin_called_tools", True),
        )
        self.table.core = tuple(t.removeprefix("crm/") for t in options.get("core_tools", []))
        self.table.required = tuple(t.removeprefix("crm/") for t in options.get("required_tools", []))
        self.table.number = self.number
        return self.table.input(
            ranked or None,
            "".join(x for x in called if x not in own),
            again=again,
            named=named if named and named not in own else None,
            fill=tuple(LETTERS),
        )

    def standings(self, own: str, *, vision: bool) -> None:
        fresh = Table(LETTERS)
        self.table.facts = fresh.facts
        for name, version in self.versions.items():
            if version:
                self.table.changed(name, version)
        self.table.stands(Standing.SHADOWED, own)
        if not vision:
            self.table.stands(Standing.NOT_CARRIED, VISION)
        self.table.stands(Standing.DENIED, self.denied)
        self.table.gone(self.gone)

    def stored(self, expected: SlowPlan) -> SessionState:
        """The state that the rules give; recency by its order."""
        order = {t: at for at, t in enumerate(expected.recency)}
        tools = tuple(
            # Calls happened in or before this turn; only their order counts.
            StoredTool(t, self.table.facts[t].fingerprint, pinned, seen, 1 if pinned else 0, order.get(t, 0))
            for t, pinned, seen in expected.stored
        )
        return SessionState(seeded=expected.seeded, tools=tools)

    def compare(
        self, answer: pb.SelectToolsResponse, expected: SlowPlan, own: str, turn: int, *, replayed: bool
    ) -> None:
        catalog = "".join(t for t, _, _ in expected.answer)
        assert letters_of(answer) == "".join(f"[{x}]" for x in own) + catalog
        assert origins_of(answer)[len(own) :] == [o for _, o, _ in expected.answer]
        assert [t.pinned for t in answer.tools][len(own) :] == [p for _, _, p in expected.answer]
        receipt = answer.receipt
        assert (receipt.turn, receipt.replayed) == (turn, replayed)
        assert (receipt.evicted, receipt.hidden) == (expected.evicted, expected.hidden)
        wanted = {expected.outcome} | ({"REUSED"} if expected.outcome == "UPDATED" else set())
        assert outcome(answer) in wanted
        shown = self.alice.session("s")
        stored = [(t.tool_id.removeprefix("crm/"), t.pinned, t.first_seen_turn) for t in shown.tools]
        assert stored == expected.stored


@pytest.mark.parametrize("seed", range(6))
def test_a_random_session_is_the_rules_own(world: Callable[..., World], seed: int) -> None:
    dice = random.Random(seed)
    game = Game(dice, world)
    for turn in range(TURNS):
        if dice.random() < 0.12:
            game.change_something()
        game.play(turn)
