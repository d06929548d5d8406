"""Whole sessions: hundreds of random turns while catalog, policy, bounds, target and route change in between."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from tests.property.test_planner_turns import assert_sound, both
from tests.support.turns import Table
from toolbelay.planner.model import Fact, Plan, Standing, TurnInput
from toolbelay.planner.plan import plan_turn

IDS = "abcdefghijklmnop"
letters = st.text(alphabet=IDS, max_size=5)
few = st.text(alphabet=IDS, max_size=2)


class SessionMachine(RuleBasedStateMachine):
    """One session. Each turn is planned, planned by the slow rules too, and planned again as a replay."""

    @initialize(max_tools=st.integers(2, 10))
    def begin(self, max_tools: int) -> None:
        self.table = Table(IDS, max_tools=max_tools)
        self.spent: dict[int, int] = {}
        self.calls: dict[int, str] = {}
        self.removed: dict[str, Fact] = {}
        self.history = ""
        self.version = 0

    @rule(
        ranked=st.none() | st.permutations(IDS).map("".join), called=letters, whole=st.booleans(), quiet=st.booleans()
    )
    def turn(self, ranked: str | None, called: str, whole: bool, quiet: bool) -> None:
        new = "" if quiet else called
        self.history = (self.history + new)[-40:]
        number = self.table.number + 1
        self.calls[number] = self.history if whole else new
        self.play(self.table.input(ranked, self.calls[number], fill=tuple("abc")))

    @rule(ranked=st.permutations(IDS).map("".join), back=st.integers(0, 3))
    def replay(self, ranked: str, back: int) -> None:
        number = self.table.number - back
        if number in self.spent:
            again = (number, self.spent[number])
            self.play(self.table.input(ranked, self.calls[number], again=again))

    @rule(ranked=st.permutations(IDS).map("".join))
    def cold_turn(self, ranked: str) -> None:
        self.calls[self.table.number + 1] = ""
        self.play(self.table.input(ranked, "", cold=True))

    @rule(ranked=st.permutations(IDS).map("".join), named=st.sampled_from(IDS))
    def named_turn(self, ranked: str, named: str) -> None:
        self.calls[self.table.number + 1] = ""
        self.play(self.table.input(ranked, "", named=named))

    @rule(standing=st.sampled_from(list(Standing)), tools=few)
    def stand(self, standing: Standing, tools: str) -> None:
        self.table.stands(standing, "".join(t for t in tools if t in self.table.facts))

    @rule()
    def permit_all(self) -> None:
        self.table.stands(Standing.ELIGIBLE, "".join(self.table.facts))

    @rule(tools=few)
    def remove(self, tools: str) -> None:
        for tool_id in tools:
            if tool_id in self.table.facts:
                self.removed[tool_id] = self.table.facts.pop(tool_id)

    @rule()
    def bring_back(self) -> None:
        self.table.facts |= self.removed
        self.removed = {}

    @rule(tools=few)
    def change(self, tools: str) -> None:
        self.version += 1
        self.table.changed("".join(t for t in tools if t in self.table.facts), self.version)

    @rule(max_tools=st.integers(1, 10), cap=st.integers(0, 10))
    def bound(self, max_tools: int, cap: int) -> None:
        self.table.bound(
            max_tools=max_tools,
            capacity=max_tools if cap > 6 else min(cap, max_tools),
            seed_tools=min(4, max_tools),
            max_new_tools_per_turn=min(2, max_tools),
        )

    @rule(core=few, required=few)
    def route(self, core: str, required: str) -> None:
        self.table.core, self.table.required = tuple(core), tuple(dict.fromkeys(required[:1]))

    @rule(pins=st.booleans())
    def pinning(self, pins: bool) -> None:
        self.table.bound(pin_called_tools=pins)

    def play(self, given: TurnInput) -> None:
        plan, expected = both(given)
        if plan is None or expected is None:
            return
        assert [(t.tool_id, t.origin.value, t.pinned) for t in plan.tools] == expected.answer
        assert [(t.tool_id, t.pinned, t.first_seen_turn) for t in plan.state.tools] == expected.stored
        assert_sound(given, plan)
        self.pins_are_kept(given, plan)
        self.prefix_is_kept(given, plan)
        self.table.state = plan.state
        self.table.number = max(self.table.number, given.turn)
        self.spent[given.turn] = max(self.spent.get(given.turn, 0), plan.spent)
        again = plan_turn(replace(given, state=plan.state, spent=plan.spent, replayed=True, cold=False))
        assert again.state == plan.state

    def pins_are_kept(self, given: TurnInput, plan: Plan) -> None:
        """No pin leaves but by authority, by the route's wish, or because as many places are called for."""
        if not given.bounds.pin_called_tools:
            assert not any(t.pinned for t in plan.state.tools)
            return
        pinned = {t.tool_id for t in plan.state.tools if t.pinned}
        lost = {
            t.tool_id
            for t in given.state.tools
            if t.pinned and (f := given.facts.get(t.tool_id)) is not None and f.standing is not Standing.DENIED
        } - pinned
        if lost:
            required = {*given.required, *([given.named] if given.named else [])}
            assert len(pinned | required) == given.bounds.max_tools

    def prefix_is_kept(self, given: TurnInput, plan: Plan) -> None:
        """A turn that evicts, hides and loses nothing only appends."""
        counts = plan.counts
        if counts.evicted or counts.hidden or counts.removed_changed or not given.state.seeded or given.cold:
            return
        if counts.removed_unauthorized or counts.removed_unavailable:
            return
        before = [t.tool_id for t in given.state.tools]
        assert [t.tool_id for t in plan.tools][: len(before)] == before


TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)

_PLAY = """
import random, sys
from tests.support.turns import Table, origins
from toolbelay.planner.model import Standing
dice = random.Random(7)
ids = "abcdefghijklmnop"
table = Table(ids, max_tools=7, replace_stale=True)
for number in range(200):
    table.core, table.bounds = tuple(dice.sample(ids, 2)), table.bounds
    table.stands(dice.choice(list(Standing)), "".join(dice.sample(ids, 1)))
    table.stands(Standing.ELIGIBLE, "".join(dice.sample(ids, 3)))
    table.bound(capacity=dice.randint(2, 7))
    ranked = "".join(dice.sample(ids, 8))
    plan = table.turn(ranked, "".join(dice.choices(ids, k=3)), fill=tuple(ids[:4]), cold=dice.random() < 0.1)
    print(origins(plan), plan.state, plan.counts, sorted(plan.relevant))
"""


def test_one_input_gives_one_plan_in_any_process_row_18() -> None:
    outputs = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", _PLAY], env=environment, capture_output=True, check=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000
