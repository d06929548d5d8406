"""The figures that selection must reach, on the benchmark's copy of public sessions and questions."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from bench.quality import ANEW, DATA, ROUTES, Bench, page_parts, perturbed, ratel, refreshed
from toolbelay.application.replay import Measures, RecordedSession, RecordedTurn
from toolbelay.catalog.routes import parse_route

pytestmark = pytest.mark.slow


@functools.cache
def _bench() -> Bench:
    return Bench(DATA / "bfcl")


@pytest.fixture
async def bench() -> Bench:
    made = _bench()
    return made if made.index.ready else await made.ready()


async def test_the_profile_keeps_recall_and_prefix(bench: Bench) -> None:
    profile = await bench.play({"profile": "agentic"})
    anew = await bench.play(ROUTES[ANEW])
    assert profile.call_recall >= 0.94
    assert profile.unchanged >= 0.72
    assert profile.effective_tokens <= 0.55 * anew.effective_tokens


async def test_each_half_of_the_sessions_reaches_the_figures(bench: Bench) -> None:
    for half in (bench.sessions[::2], bench.sessions[1::2]):
        profile: Measures = await bench.play({"profile": "agentic"}, half)
        assert profile.call_recall >= 0.93
        assert profile.unchanged >= 0.67
        assert (await bench.play({}, half)).call_recall >= 0.71


async def test_the_defaults(bench: Bench) -> None:
    assert (await bench.play({})).call_recall >= 0.74


async def test_catalogs_changed_in_ways_that_hardly_matter(bench: Bench) -> None:
    for tools in perturbed(bench).values():
        other = await bench.over(tools).ready()
        profile = await other.play({"profile": "agentic"})
        assert profile.call_recall >= 0.93
        assert profile.unchanged >= 0.68
        assert (await other.play({})).call_recall >= 0.70


async def test_single_questions_are_answered_at_least_as_well_as_by_the_strongest_peer(bench: Bench) -> None:
    peer = await ratel(bench.catalog, bench.questions)
    ours = await bench.ask("hybrid")
    assert ours.top1 >= peer.top1
    assert ours.at5 >= peer.at5
    assert ours.at5 >= 0.90


async def test_a_first_turn_of_the_profile_answers_single_questions(bench: Bench) -> None:
    mcp = await Bench(DATA / "mcp").ready()
    for data, least in ((bench, 0.89), (mcp, 0.86)):
        asked = [RecordedSession("q", (RecordedTurn(q.text, q.calls[:1]),)) for q in data.questions]
        assert (await data.play({"profile": "agentic"}, asked)).call_recall >= least


async def test_real_mcp_servers() -> None:
    mcp = await Bench(DATA / "mcp").ready()
    hit = await mcp.ask("hybrid")
    assert hit.at5 >= 0.85
    assert hit.at10 >= 0.9


@pytest.mark.parametrize(
    "options", [{}, {"sticky": {"max_tools": 20}}, {"ranking": {"admission": "each"}}, {"top_k": 5}]
)
def test_explicit_keys_win_over_the_profile(options: dict[str, Any]) -> None:
    route, faults, _ = parse_route("r", {"profile": "agentic", **options})
    assert route is not None, faults
    sticky = options.get("sticky", {})
    assert route.sticky.max_tools == sticky.get("max_tools", 64)
    assert route.ranking.admission == options.get("ranking", {}).get("admission", "toolsets")
    assert route.top_k == options.get("top_k", 64)
    assert route.seed_tools == min(32, route.sticky.max_tools)
    assert route.sticky.max_new_tools_per_turn == min(28, route.sticky.max_tools)


def test_the_defaults_are_the_designs() -> None:
    route, _, _ = parse_route("r", {})
    assert route is not None
    assert (route.sticky.max_tools, route.sticky.max_new_tools_per_turn, route.top_k, route.seed_tools) == (16, 2, 8, 8)
    assert route.ranking.admission == "each"


def test_the_page_has_a_place_for_each_figure() -> None:
    with pytest.raises(SystemExit):
        refreshed("no place", {"sessions": "x"})
    assert (
        refreshed("<!-- figures: a -->\nold\n<!-- end -->", {"a": "new"})
        == "<!-- figures: a -->\n\nnew\n\n<!-- end -->"
    )
    assert callable(page_parts)
