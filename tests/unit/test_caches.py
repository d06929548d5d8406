"""Each cache: what it depends on and changes misses, it stays within its bound, and it counts.

Those of ranking are in `test_ranking_stored`. The envelope of decisions (`test_authority_eligibility`), facts
(`test_application_scene`) and tokens under a changed key set (`test_authority_tokens`) have further tests of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.servers import RedisServer
from tests.support.service import Service, migrated
from tests.unit.test_application_scene import View, scene, snapshot
from toolbelay.api.encode import ItemEncoder
from toolbelay.application import quiet
from toolbelay.application.answer import planned_items
from toolbelay.application.quiet import QuietTurns, is_quiet, without_scores
from toolbelay.application.runtime import build
from toolbelay.application.scene import ITEMS, Scene
from toolbelay.application.turn import SelectedItem, Target
from toolbelay.authority.compiled import CompiledPolicies
from toolbelay.authority.eligibility import Eligibility
from toolbelay.authority.principal import Principal
from toolbelay.authority.tokens import TokenCache
from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.model import Tool
from toolbelay.catalog.offered import READINGS, parse_offered
from toolbelay.catalog.routes import Route
from toolbelay.catalog.surface import RENDERINGS, Digester, Rendered, Surface
from toolbelay.memo import BytesMemo, LruTally, Tally
from toolbelay.planner.model import Bounds, Fact, SessionState, Standing, StoredTool, TurnInput
from toolbelay.planner.plan import plan_turn
from toolbelay.ranking.corpus import build_corpus
from toolbelay.ranking.eligible import EligibleRows
from toolbelay.ranking.vector_table import VECTORS, VectorTable
from toolbelay.ranking.vectors import StaticEmbedder
from toolbelay.sessions.envelope import TailMemo, encode_tail
from toolbelay.sessions.keys import REMEMBERED_KEYS, KeyMaker
from toolbelay.sessions.port import SessionRef
from toolbelay.settings import load
from toolbelay.storage.port import PolicyFile
from toolbelay.telemetry.metrics import Metrics

ANN = Principal("acme", "idp", "ann", frozenset({"support"}), frozenset())
DIGEST = Digester(b"secret")


def tool(name: str, description: str = "", fingerprint: bytes = bytes(32)) -> Tool:
    return Tool(f"crm/{name}", "crm", name, name, f'"{description}"'.encode(), b"{}", fingerprint)


def catalog(*tools: Tool) -> Mapping[str, Tool]:
    return {one.tool_id: one for one in tools}


def test_verified_tokens_by_digest_key_set_and_time() -> None:
    cache = TokenCache(capacity=2)
    cache.put(b"one", ANN, until=100, version=1)
    assert cache.get(b"one", 1, 99) is ANN
    assert cache.get(b"two", 1, 99) is None
    assert cache.get(b"one", 1, 100) is None  # its time is over
    cache.put(b"one", ANN, until=100, version=1)
    assert cache.get(b"one", 2, 99) is None  # the key set has changed
    for name in (b"a", b"b", b"c"):
        cache.put(name, ANN, until=100, version=2)
    assert (len(cache), cache.hits, cache.misses) == (2, 1, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"principal": replace(ANN, roles=frozenset({"sales"}))},
        {"principal": replace(ANN, tenant="other")},
        {"route": "other"},
        {"policies": CompiledPolicies.compile([PolicyFile("p", "permit (principal, action, resource);")])},
    ],
)
def test_decisions_by_policies_caller_and_context(change: dict[str, object]) -> None:
    text = 'permit (principal in Role::"support", action, resource) when { context.route == "a" };'
    asked = {"policies": CompiledPolicies.compile([PolicyFile("p", text)]), "principal": ANN, "route": "a"}
    memory = Eligibility()

    def look(**given: object) -> object:
        return memory.view(given["policies"], given["principal"], given["route"], "m", "add").memory  # type: ignore[arg-type]

    first = look(**asked)
    assert look(**asked) is first
    assert look(**{**asked, **change}) is not first
    assert (memory.hits, memory.misses) == (1, 2)


def test_decisions_of_an_equal_principal_are_found_again_and_of_many_bounded() -> None:
    memory = Eligibility(max_views=4)
    policies = CompiledPolicies.compile([PolicyFile("p", 'permit (principal == User::"x", action, resource);')])
    for number in range(40):
        for _ in range(2):
            memory.view(policies, replace(ANN, roles=frozenset({f"r{number}"})), "a", "m", "add")
    assert len(memory) <= 4


def test_renderings_by_tool_and_format() -> None:
    before = RENDERINGS.hits, RENDERINGS.misses
    old, new = tool("a", "old"), tool("a", "new", b"x" * 32)
    surface = Surface.of([old, tool("b")], DIGEST)
    chat = surface.rendered(old, WireFormat.OPENAI_CHAT)
    assert surface.rendered(old, WireFormat.OPENAI_CHAT) is chat
    assert surface.rendered(old, WireFormat.MCP).definition != chat.definition
    newer = surface.without(["crm/a"], catalog(old), catalog(new))
    assert b"new" in newer.rendered(new, WireFormat.OPENAI_CHAT).definition
    assert (RENDERINGS.hits - before[0], RENDERINGS.misses - before[1]) == (1, 3)
    assert len(surface) == 2


def settled(stage: Scene, state: SessionState, matches: tuple[str, ...] = ()) -> TurnInput:
    facts = {t.tool_id: Fact(Standing.ELIGIBLE, t.fingerprint) for t in state.tools}
    return TurnInput(state, facts, turn=9, bounds=Bounds(max_tools=2, capacity=2))


def quiet_state(stage: Scene) -> SessionState:
    """A session of two tools whose last answer showed just them."""
    stored = tuple(StoredTool(f"crm/t0000{n}", bytes(32), n == 0, 1, n and 0, 0) for n in (0, 2))
    state = SessionState(seeded=True, tools=stored)
    items = planned_items(plan_turn(settled(stage, state)), stage, DIGEST)
    return structs.replace(state, last_answer=tuple(item.digest for item in items))


def test_quiet_turns_by_state_calls_route_target_caller_and_generation() -> None:
    held, view = snapshot(4), View()
    stage = scene(held, view)
    state = quiet_state(stage)
    plan = plan_turn(settled(stage, state))
    items = planned_items(plan, stage, DIGEST)
    assert is_quiet(plan, state, items)
    turns = QuietTurns()
    turns.remember(stage, (), without_scores(plan), items)
    found = turns.recall(scene_of_same(stage), state, (), 9)
    assert found is not None
    assert (found.items, found.plan.state) == (items, state)
    assert turns.recall(stage, structs.replace(state), (), 9) is None  # equal, but not the state that was seen
    assert turns.recall(stage, state, ("t00000",), 9) is None
    assert turns.recall(Scene(held, Route(), stage.target, stage.offer, view), state, (), 9) is None
    assert turns.recall(scene(held, view, Target(max_tools=1)), state, (), 9) is None
    assert turns.recall(scene(held, View()), state, (), 9) is None
    assert turns.recall(scene(snapshot(4), view), state, (), 9) is None


def scene_of_same(stage: Scene) -> Scene:
    return Scene(stage.snapshot, stage.route, stage.target, stage.offer, stage._view)


def test_quiet_turns_know_no_turn_before_their_latest_call_and_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "MAX_TURNS", 3)
    stage = scene(snapshot(4), View())
    state = quiet_state(stage)
    late = structs.replace(
        state, tools=tuple(structs.replace(t, called_turn=5) if t.pinned else t for t in state.tools)
    )
    plan = plan_turn(settled(stage, late))
    items = planned_items(plan, stage, DIGEST)
    turns = QuietTurns()
    turns.remember(stage, (), plan, items)
    assert turns.recall(stage, late, (), 5) is not None
    assert turns.recall(stage, late, (), 4) is None
    for number in range(10):
        turns.remember(stage, (str(number),), plan, items)
    assert len(turns) == 3


def test_a_state_that_shows_otherwise_than_its_last_answer_is_not_quiet() -> None:
    stage = scene(snapshot(4), View())
    state = quiet_state(stage)
    stale = structs.replace(state, last_answer=(b"8 bytes.", *state.last_answer[1:]))
    plan = plan_turn(settled(stage, stale))
    assert not is_quiet(plan, stale, planned_items(plan, stage, DIGEST))


def test_items_by_snapshot_format_and_pin() -> None:
    before = ITEMS.hits, ITEMS.misses
    held, view = snapshot(4), View()
    stage = scene(held, view)
    plan = without_scores(plan_turn(settled(stage, quiet_state(stage))))
    first, second = (planned_items(plan, scene(held, view), DIGEST) for _ in range(2))
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert [item.pinned for item in first] == [True, False]
    loose = structs.replace(plan, tools=tuple(structs.replace(planned, pinned=False) for planned in plan.tools))
    assert [item.pinned for item in planned_items(loose, stage, DIGEST)] == [False, False]
    other = planned_items(plan, scene(held, view, Target(format=WireFormat.MCP)), DIGEST)
    assert other[0].definition != first[0].definition
    newer = planned_items(plan, scene(snapshot(4), view), DIGEST)
    assert newer[0] is not first[0]
    assert ITEMS.hits - before[0] >= 4
    assert ITEMS.misses - before[1] >= 7


@pytest.mark.parametrize("field", ["tool_id", "name", "fingerprint", "definition"])
def test_encoded_items_by_all_that_is_encoded(field: str) -> None:
    encoder = ItemEncoder()
    shown = Rendered("a/b", "b", "ab" * 32, b"{}", b"")
    item = SelectedItem(shown, "RETAINED")
    other = SelectedItem(structs.replace(shown, **{field: b"{1}" if field == "definition" else "other"}), "RETAINED")
    assert encoder.encode([item]) == encoder.encode([item])
    assert encoder.encode([other]) != encoder.encode([item])
    assert (encoder.hits, encoder.misses, len(encoder)) == (2, 2, 2)


def test_session_states_by_every_byte_of_the_tail() -> None:
    memo = TailMemo(max_entries=4, max_bytes=10_000)
    state = SessionState(seeded=True, tools=(StoredTool("a/b", bytes(32), False, 1),))
    tail, _ = encode_tail(state)
    assert memo(tail) is memo(bytes(bytearray(tail)))
    other, _ = encode_tail(structs.replace(state, ranked_turns=1))
    assert memo(other).ranked_turns == 1
    for number in range(10):
        memo(encode_tail(structs.replace(state, ranked_turns=number + 2))[0])
    assert (memo.states.hits, memo.states.misses, len(memo.states)) == (1, 12, 4)


@pytest.mark.parametrize("field", ["tenant", "issuer", "subject", "route", "session_id"])
def test_session_keys_by_every_part_of_the_name_and_by_secret(field: str) -> None:
    keys = KeyMaker(bytes(32))
    ref = SessionRef("t", "i", "s", "r", "x")
    assert keys.session(ref) is keys.session(structs.replace(ref))
    assert keys.session(structs.replace(ref, **{field: "other"})) != keys.session(ref)
    assert KeyMaker(b"1" * 32).session(ref) != keys.session(ref)
    assert keys.cache.misses == len(keys.cache) == 2
    assert REMEMBERED_KEYS < 10_000


def test_vectors_by_text() -> None:
    before = VECTORS.hits, VECTORS.misses
    table = VectorTable(StaticEmbedder())
    first = table.local_rows(build_corpus(catalog(tool("a", "send mail"), tool("b", "plot a chart")), None))
    changed = table.local_rows(build_corpus(catalog(tool("a", "bake bread"), tool("b", "plot a chart")), None))
    assert first is not None
    assert changed is not None
    assert (first.vectors[0] != changed.vectors[0]).any()
    assert (first.vectors[1] == changed.vectors[1]).all()
    assert (VECTORS.hits - before[0], VECTORS.misses - before[1]) == (1, 3)
    assert len(table) == 2  # what the catalog lost is forgotten


def test_rows_by_catalog_and_caller() -> None:
    corpus = build_corpus(catalog(tool("a"), tool("b")), None)
    asked: list[str] = []

    def eligible(tool_id: str) -> bool:
        asked.append(tool_id)
        return tool_id == "crm/a"

    memory: dict[str, object] = {}
    for _ in range(3):
        assert EligibleRows(corpus, eligible, memory)(0)
        assert not EligibleRows(corpus, eligible, memory)(1)
    assert asked == ["crm/a", "crm/b"]
    fresh = build_corpus(catalog(tool("b"), tool("c")), None)
    assert not EligibleRows(fresh, eligible, memory)(0)
    assert not EligibleRows(corpus, lambda _: False, {})(0)


def test_offered_items_by_bytes_and_format() -> None:
    before = READINGS.hits, READINGS.misses
    raw = b'{"type":"function","function":{"name":"of_test_caches"}}'
    for _ in range(2):
        assert parse_offered([raw], WireFormat.OPENAI_CHAT)[0].name == "of_test_caches"
    parse_offered([raw + b" "], WireFormat.OPENAI_CHAT)
    assert (READINGS.hits - before[0], READINGS.misses - before[1]) == (1, 2)


def test_a_memo_is_bounded_in_entries_and_bytes_and_counts() -> None:
    few: BytesMemo[int] = BytesMemo(max_entries=2, max_bytes=100)
    small: BytesMemo[int] = BytesMemo(max_entries=100, max_bytes=10)
    for number in range(20):
        for memo in (few, small):
            memo.put(b"key%02d" % number, number)
    assert (len(few), len(small), small.held_bytes) == (2, 2, 10)
    assert (few.get(b"key19"), few.get(b"key00")) == (19, None)
    assert (few.hits, few.misses) == (1, 1)


def test_a_tally_counts_the_parts_that_are_there() -> None:
    class Part(dict[str, int]):
        pass

    tally = Tally()
    part = tally.count(Part(a=1))
    tally.count(Part(b=2))  # nobody holds it
    assert len(tally) == 1
    part["c"] = 3
    assert len(tally) == 2


def test_an_lru_tally_adds_functions_up() -> None:
    keys = KeyMaker(bytes(32))
    keys.session(SessionRef("t", "i", "s", "r", "x"))
    both = LruTally(keys._session, KeyMaker(b"1" * 32)._session)
    assert (len(both), both.hits, both.misses) == (1, 0, 1)


async def test_a_worker_publishes_every_cache(redis_server: RedisServer, tmp_path: Path) -> None:
    url = await asyncio.to_thread(migrated, f"sqlite+aiosqlite:///{tmp_path}/db")
    metrics = Metrics()
    runtime = await build(load(Service(url, redis_server.url, tmp_path).environment), metrics)
    try:
        assert runtime.servicers
        metrics.sample()
        published = {
            sample.labels["cache"]
            for family in metrics.registry.collect()
            if family.name == "toolbelay_cache_entries"
            for sample in family.samples
        }
    finally:
        await runtime.close()
    assert published == {
        "tokens", "eligibility", "facts", "quiet_turns", "items", "renderings", "encoded_items", "session_states",
        "session_keys", "offered_items", "provider_quirks", "vectors", "words",
        "query_texts", "query_tokens", "stored_rows", "found_rows",
    }  # fmt: skip
