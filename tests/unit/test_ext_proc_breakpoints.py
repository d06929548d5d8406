"""Anthropic's cache breakpoints on tools."""

from __future__ import annotations

from toolbelay.ext_proc.breakpoints import place_breakpoints

A, B, C = b'{"name":"a"}', b'{ "name" : "b" }', b'{"name":"c","input_schema":{"type":"object"}}'
MARK, HOUR = b'{"type":"ephemeral"}', b'{"type":"ephemeral","ttl":"1h"}'


def marked(text: bytes, mark: bytes = MARK) -> bytes:
    end = text.rindex(b"}")
    return text[:end].rstrip() + b',"cache_control":' + mark + text[len(text[:end].rstrip()) :]


def deferred(text: bytes) -> bytes:
    return text[:-1] + b',"defer_loading":true}'


def test_without_marks_nothing_changes() -> None:
    assert place_breakpoints([A, B], [A, B, C]) == [A, B, C]
    assert place_breakpoints([], [b"not json"]) == [b"not json"]


def test_the_mark_goes_to_the_last_tool_of_the_answer() -> None:
    assert place_breakpoints([A, marked(B)], [A, marked(B)]) == [A, marked(B)]
    assert place_breakpoints([A, marked(B)], [A, marked(B), C]) == [A, B, marked(C)]


def test_a_dropped_tools_mark_is_not_lost() -> None:
    assert place_breakpoints([A, B, marked(C)], [A, B]) == [A, marked(B)]
    assert place_breakpoints([marked(A), B, marked(C)], [B]) == [marked(B)]


def test_a_mark_moves_with_its_exact_bytes_and_once() -> None:
    given = [A, marked(B, HOUR)]
    assert place_breakpoints(given, [marked(B, HOUR), A, C]) == [B, A, marked(C, HOUR)]


def nested(name: str, mark: bytes | None = None) -> bytes:
    own = b',"cache_control":' + mark if mark else b""
    return b'{"type":"function","function":{"name":"%b"%b}}' % (name.encode(), own)


def test_openais_shape_has_them_beside_or_inside_the_function() -> None:
    """Gateways that translate to Anthropic's API take marks in either place."""
    beside = marked(nested("a"))
    assert place_breakpoints([beside], [beside, nested("b")]) == [nested("a"), marked(nested("b"))]
    inside = nested("a", HOUR)
    assert place_breakpoints([inside], [inside]) == [inside]
    assert place_breakpoints([inside], [inside, nested("b")]) == [nested("a"), marked(nested("b"), HOUR)]
    assert place_breakpoints([nested("b"), inside], [nested("b")]) == [marked(nested("b"), HOUR)]


def test_it_never_stands_on_a_deferred_tool() -> None:
    late = deferred(C)
    assert place_breakpoints([marked(A), late], [marked(A), B, late]) == [A, marked(B), late]
    assert place_breakpoints([marked(A)], [late]) == [late]
    assert place_breakpoints([marked(A)], []) == []


def test_earlier_marks_stay_and_longer_lived_ones_come_first() -> None:
    given = [marked(A, HOUR), B, marked(C)]
    assert place_breakpoints(given, given) == given
    assert place_breakpoints(given, [marked(C), marked(A, HOUR), B]) == [C, marked(A, HOUR), marked(B)]


def test_an_earlier_mark_of_a_dropped_tool_goes_to_the_kept_one_before() -> None:
    given = [A, marked(B, HOUR), marked(C)]
    assert place_breakpoints(given, [A, marked(C)]) == [marked(A, HOUR), marked(C)]


def test_null_is_no_mark_and_gives_way() -> None:
    null = b'{"name":"b","cache_control":null}'
    assert place_breakpoints([marked(A), null], [marked(A), null]) == [
        A,
        b'{"name":"b","cache_control":{"type":"ephemeral"}}',
    ]


def test_a_breakpoint_at_the_stable_prefix() -> None:
    assert place_breakpoints([], [A, B, C], stable_prefix=2) == [A, marked(B), C]
    assert place_breakpoints([marked(A)], [marked(A), B, C], stable_prefix=2) == [A, marked(B), marked(C)]
    assert place_breakpoints([marked(A)], [marked(A), B], stable_prefix=2) == [A, marked(B)]
    assert place_breakpoints([], [A, deferred(C)], stable_prefix=2) == [marked(A), deferred(C)]
    assert place_breakpoints([], [A, B], stable_prefix=1, elsewhere=4) == [A, B]
