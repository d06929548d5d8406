"""Names in Redis, and the scripts' declared contracts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolbelay.sessions import lua
from toolbelay.sessions.keys import KeyMaker, generation_key, slot_of
from toolbelay.sessions.port import SessionRef

SECRET = b"a-state-secret-of-thirty-two-bytes"
texts = st.text(st.sampled_from("a1:{}é"), max_size=4)
refs = st.builds(SessionRef, texts, texts, texts, texts, texts)


@settings(max_examples=300, deadline=None)
@given(refs, refs)
def test_two_sessions_share_no_name(one: SessionRef, other: SessionRef) -> None:
    keys = KeyMaker(SECRET)
    assert (keys.session(one) == keys.session(other)) == (one == other)
    same_principal = one.tenant == other.tenant and one.issuer == other.issuer and one.subject == other.subject
    assert (keys.session(one).index == keys.session(other).index) == same_principal


@settings(max_examples=50, deadline=None)
@given(refs)
def test_a_sessions_keys_share_a_slot(ref: SessionRef) -> None:
    keys = KeyMaker(SECRET).session(ref)
    assert slot_of(keys.session) == slot_of(keys.index)
    assert keys.session == keys.index.removesuffix(b"idx") + b"s:" + keys.member
    assert KeyMaker(SECRET).index(ref.tenant, ref.issuer, ref.subject) == keys.index


@pytest.mark.parametrize(
    ("key", "slot"), [(b"foo", 12182), (b"tb:{p1}:s:a", 11819), (b"{user1000}.following", 3443), (b"foo{}{bar}", 8363)]
)
def test_slots_are_redis_own(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        KeyMaker(b"short")


def test_the_generation_key_depends_on_the_tenant_alone() -> None:
    assert generation_key("acme") == generation_key("acme")
    assert generation_key("acme") != generation_key("acme2")
    assert b"acme" not in generation_key("acme")


@pytest.mark.parametrize("script", lua.ALL, ids=lambda script: script.name)
def test_a_wrong_shape_of_a_call_fails(script: lua.Script) -> None:
    keys, args = (b"k",) * len(script.keys), (b"a",) * len(script.args)
    assert script.by_hash(keys, args).startswith(b"*%d\r\n$7\r\nEVALSHA\r\n" % (3 + len(keys) + len(args)))
    with pytest.raises(lua.ScriptContractError):
        script.by_hash((*keys, b"k"), args)
    if not script.variadic:
        with pytest.raises(lua.ScriptContractError):
            script.by_source(keys, (*args, b"a"))


def test_a_wrong_declaration_fails_at_load() -> None:
    with pytest.raises(lua.ScriptContractError, match="header declares"):
        lua.load("peek", keys=1, args=1)
    with pytest.raises(lua.ScriptContractError, match="lacks"):
        lua.parse_header("none", "return 1")
