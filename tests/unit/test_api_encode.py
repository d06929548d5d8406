"""The hand-written encoding equals protobuf's own."""

from __future__ import annotations

import math
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from toolbelay.api.encode import ORIGINS, ItemEncoder
from toolbelay.application.turn import SelectedItem
from toolbelay.catalog.surface import Rendered
from toolbelay.v1 import selection_pb2 as pb

ITEMS = st.builds(
    SelectedItem,
    shown=st.builds(
        Rendered,
        tool_id=st.text(max_size=20),
        name=st.text(max_size=300),
        fingerprint=st.sampled_from(["", "ab" * 32]),
        definition=st.binary(max_size=400),
        digest=st.just(b""),
    ),
    origin=st.sampled_from(sorted(ORIGINS.keys() - {"UNSPECIFIED"})),
    pinned=st.booleans(),
    score=st.floats(allow_nan=False).filter(lambda score: math.copysign(1, score) == 1 or score != 0),
)


def _message(item: SelectedItem, *, omit: bool) -> pb.SelectedTool:
    return pb.SelectedTool(
        tool_id=item.tool_id,
        name=item.name,
        fingerprint=item.fingerprint,
        definition=b"" if omit else item.definition,
        origin=ORIGINS[item.origin],
        pinned=item.pinned,
        score=item.score,
    )


@given(st.lists(ITEMS, max_size=4), st.booleans())
def test_bytes_equal_protobufs(items: list[SelectedItem], omit: bool) -> None:
    encoder = ItemEncoder()
    ours = b"".join(encoder.encode((*items, *items), (lambda _: True) if omit else None))
    theirs = pb.SelectToolsResponse(tools=[_message(item, omit=omit) for item in (*items, *items)])
    assert ours == theirs.SerializeToString()


def test_what_is_remembered_stays_under_its_bound_and_never_answers_for_another_item() -> None:
    encoder = ItemEncoder(max_bytes=10_000)
    for number in range(200):
        item = SelectedItem(Rendered("a/b", "b", "ab" * 32, b"x" * 500 + str(number).encode(), b""), "RETAINED")
        encoded = pb.SelectToolsResponse.FromString(b"".join(encoder.encode([item])))
        assert encoded.tools[0].definition == item.definition
    assert 0 < len(encoder) < 20
    assert (encoder.hits, encoder.misses) == (0, 200)


def test_small_items_take_no_more_memory_than_the_bound() -> None:
    most = 1_000_000
    encoder = ItemEncoder(max_bytes=most)
    tracemalloc.start()
    try:
        for number in range(8_000):
            own = Rendered("", f"mine{number}", f"{number:064x}", b"%d" % number, number.to_bytes(8))
            encoder.encode([SelectedItem(own, "CALLER_OWNED")])
        assert tracemalloc.get_traced_memory()[0] < 1.5 * most
    finally:
        tracemalloc.stop()
