"""Exposed names: legal, unique, given once."""

from __future__ import annotations

from toolbelay.catalog.names import assign_exposed_names, is_legal


def assign(*ids: str, reserved: dict[str, str] | None = None) -> dict[str, str]:
    return assign_exposed_names([(i, *i.split("/", 1)) for i in ids], reserved or {})  # type: ignore[misc]


def test_a_legal_free_name_is_kept() -> None:
    assert assign("crm/get_account", "x/" + "n" * 64) == {"crm/get_account": "get_account", "x/" + "n" * 64: "n" * 64}


def test_names_that_providers_refuse_are_qualified_and_cleaned() -> None:
    assert assign("gcal/calendar.read", "u.x/user-profile/update", "fs/Create CIFS Share") == {
        "gcal/calendar.read": "gcal_calendar_read",
        "u.x/user-profile/update": "u_x_user-profile_update",
        "fs/Create CIFS Share": "fs_Create_CIFS_Share",
    }


def test_long_names_are_cut_and_hashed() -> None:
    given = assign("a/" + "n" * 76, "a/" + "n" * 130)
    assert all(is_legal(name) and len(name) == 64 for name in given.values())
    assert len(set(given.values())) == 2


def test_a_clash_never_changes_the_first_servers_name() -> None:
    first = assign("a/search")
    reserved = {name: tool_id for tool_id, name in first.items()}
    assert assign("b/search", "a/search", reserved=reserved) == {"a/search": "search", "b/search": "b_search"}
    assert assign("b/search", reserved=reserved) == {"b/search": "b_search"}


def test_a_removed_tool_keeps_its_name_reserved_and_gets_it_back() -> None:
    reserved = {"search": "a/search", "b_search": "b/search"}
    assert assign("c/search", "a/search", "b/search", reserved=reserved) == {
        "a/search": "search",
        "b/search": "b_search",
        "c/search": "c_search",
    }


def test_a_taken_qualified_name_gets_a_hash() -> None:
    given = assign("a/search", "a_/x", "b/search", "b.c/d.e", "b_c/d.e")
    assert given["b.c/d.e"] == "b_c_d_e"
    assert given["b_c/d.e"].startswith("b_c_d_e_")
    assert is_legal(given["b_c/d.e"])


def test_names_without_a_legal_character() -> None:
    given = assign("s/日本", "s/中国", "s/😀")
    assert min(given.values()) == "s__"
    assert all(map(is_legal, given.values()))
    assert len(set(given.values())) == 3


def test_names_are_ascii_whatever_the_script() -> None:
    assert is_legal("a" * 64)
    assert not any(map(is_legal, ["", "a" * 65, "é", "a.b", "a b", "a\n", "\u0661", "\uff41"]))
