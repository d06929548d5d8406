"""Exposed names hold their promises for any catalog."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from toolbelay.catalog.names import assign_exposed_names, is_legal

PARTS = st.text("ab._- é/", min_size=1, max_size=4) | st.integers(60, 70).map(lambda n: "x" * n)
TOOLSETS = st.text("ab._-", min_size=1, max_size=3)
TOOLS = st.lists(st.tuples(TOOLSETS, PARTS), max_size=30).map(
    lambda pairs: [(f"{toolset}/{name}", toolset, name) for toolset, name in dict.fromkeys(pairs)]
)


@given(st.lists(TOOLS, min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_legal_unique_stable_and_independent_of_order(
    applies: list[list[tuple[str, str, str]]], rng: random.Random
) -> None:
    reserved: dict[str, str] = {}
    for tools in applies:
        given_names = assign_exposed_names(tools, reserved)
        shuffled = list(tools)
        rng.shuffle(shuffled)
        assert assign_exposed_names(shuffled, dict(sorted(reserved.items()))) == given_names
        assert set(given_names) == {tool_id for tool_id, _, _ in tools}
        for tool_id, exposed in given_names.items():
            assert is_legal(exposed)
            assert reserved.setdefault(exposed, tool_id) == tool_id
    by_id: dict[str, str] = {}
    for exposed, tool_id in reserved.items():
        assert by_id.setdefault(tool_id, exposed) == exposed


@given(TOOLS, st.data())
@settings(max_examples=100, deadline=None)
def test_hostile_reservations_never_collide(tools: list[tuple[str, str, str]], data: st.DataObject) -> None:
    first = assign_exposed_names(tools, {})
    stolen = data.draw(st.sets(st.sampled_from(sorted(first.values()))) if first else st.just(set()))
    reserved = dict.fromkeys(stolen, "evil/tool")
    again = assign_exposed_names(tools, reserved)
    assert not set(again.values()) & stolen
    assert len(set(again.values())) == len(again)
