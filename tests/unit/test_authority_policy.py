"""Policy files: every fault with its place, and decisions that name the policies behind them."""

from __future__ import annotations

import json

import cedarpy
import pytest

from toolbelay.authority.compiled import CompiledPolicies, PolicyContext
from toolbelay.authority.entities import tool_entity, user_entity
from toolbelay.authority.policy import PolicyError, parse_policies, schema, split_statements, validate_policies
from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool
from toolbelay.storage.port import PolicyFile

ALL = "permit (principal, action, resource);"
CONTEXT = PolicyContext("default", "gpt-5", "add")
ODD = [
    'a"b',
    "a\\b",
    'x"); permit(principal,action,resource); //',
    'User::"alice"',
    "file:///a::b",
    "😀",
    "line\nbreak",
    "",
    "nul\0",
    "*",
    "alice",
]


def who(subject: str = "alice", *roles: str) -> Principal:
    return Principal("acme", "idp", subject, frozenset(roles))


def tool(tool_id: str = "crm/get", *tags: str) -> Tool:
    toolset, name = tool_id.split("/", 1)
    return Tool(tool_id, toolset, name, "x", b'""', b"{}", b"", frozenset(tags))


def faults(*texts: str) -> list[str]:
    return [str(fault) for fault in validate_policies([PolicyFile(f"{i}.cedar", text) for i, text in enumerate(texts)])]


def compiled(*texts: str) -> CompiledPolicies:
    return CompiledPolicies.compile([PolicyFile(f"{i}.cedar", text) for i, text in enumerate(texts)])


def test_the_designs_example_is_valid() -> None:
    text = """
permit (principal in Role::"support", action in [Action::"advertise", Action::"call"], resource in Toolset::"crm");
permit (principal, action == Action::"advertise", resource) when { resource.readOnly && resource.tags.contains("public") };
forbid (principal, action, resource == Tool::"github/delete_repository") unless { principal in Role::"admin" };
"""
    assert faults(text) == []
    policies = compiled(text)
    assert policies.decide(who("a", "support"), "call", tool("crm/get"), CONTEXT).allowed
    assert not policies.decide(who("a"), "call", tool("crm/get"), CONTEXT).allowed


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (f'{ALL}\n\n// note; "\npermit (principal, action resource);\n{ALL}', "0.cedar:4", "syntax"),
        (f"{ALL}\npermit (principal, action, resource)", "0.cedar:2", "syntax"),
        (f'{ALL}\n\npermit (principal, action, resource) when {{ principal.dept == "x" }};', "0.cedar:3", "dept"),
        (f'{ALL}\npermit (principal, action == Action::"delete", resource);', "0.cedar:2", "delete"),
        ('permit (principal in Group::"x", action, resource);', "0.cedar:1", "Group"),
        ('permit (principal in Toolset::"x", action, resource);', "0.cedar:1", "applicable"),
        (f"{ALL}\npermit (principal, action, resource in ?resource);", "0.cedar:2", "template"),
        (f'@id("a")\n{ALL}\n// c\n@id("a")\n{ALL}', "0.cedar:4", "0.cedar:1"),
        (f'@id("")\n{ALL}', "0.cedar:1", "@id"),
        (f'@id("7") {ALL}', "0.cedar:1", "@id"),
        (f'@id("a\\nb") {ALL}', "0.cedar:1", "@id"),
        (f'@id("{"x" * 129}") {ALL}', "0.cedar:1", "@id"),
        ('permit (principal, action, resource) when { resource.tags == "x" };', "0.cedar:1", "type"),
        (
            "permit (principal, action, resource) when {" + "(true && " * 120 + "true" + ")" * 120 + "};",
            "0.cedar:1",
            "100",
        ),
        ('permit (principal, action, resource) when { "open };', "0.cedar:1", "syntax"),
        ("\ud800", "0.cedar", "surrogate"),
        ("permit", "0.cedar:1", "syntax"),
        ("/* c */ " + ALL, "0.cedar:1", "syntax"),
    ],
)
def test_a_fault_is_told_with_its_line(text: str, place: str, words: str) -> None:
    found = faults(text)
    assert found
    assert any(fault.startswith(f"{place}: ") and words in fault for fault in found), found
    with pytest.raises(PolicyError, match=r"0\.cedar"):
        compiled(text)


def test_all_faults_of_all_files_are_told() -> None:
    found = faults("permit (", f"{ALL} permit (principal, action, resource) when {{ principal.x == 1 }};", ALL, "x;")
    assert {fault.split(":")[0] for fault in found} == {"0.cedar", "1.cedar", "3.cedar"}


def test_ids_are_unique_over_all_files() -> None:
    found = faults(f'@id("a") {ALL}', f'\n@id("a") {ALL}')
    assert found == ['1.cedar:2: @id("a") is already at 0.cedar:1']


def test_two_files_of_one_name_and_oversize_are_refused() -> None:
    same = [PolicyFile("a", ALL), PolicyFile("a", ALL)]
    assert "two policy files" in str(validate_policies(same)[0])
    assert "bytes" in faults("//" + "x" * (4 * 1024 * 1024))[0]


@pytest.mark.parametrize("texts", [(), ("",), ("// nothing; yet\n",)])
def test_an_empty_set_is_valid_and_permits_nothing(texts: tuple[str, ...]) -> None:
    assert faults(*texts) == []
    policies = compiled(*texts)
    assert len(policies) == 0
    decision = policies.decide(who("a", "toolbelay.admin"), "advertise", tool(), CONTEXT)
    assert (decision.allowed, decision.policies, decision.errors) == (False, (), ())


def test_statements_end_at_semicolons_outside_strings_and_comments() -> None:
    text = '// a; "b\r@id("x;//y") permit (\n  principal, action, resource) when { resource.name == "\\";" };//;\n\nforbid ();'
    assert [(statement.line, statement.text.split("(")[0]) for statement in split_statements(text)] == [
        (1, "@id"),
        (4, "forbid "),
    ]


def test_policies_are_named_by_file_and_id_or_place() -> None:
    files = [PolicyFile("b.cedar", f'{ALL}\n@id("wide")\n{ALL}'), PolicyFile("a.cedar", f"\n{ALL}")]
    assert [(policy.name, policy.line) for policy in parse_policies(files)] == [
        ("a.cedar#1", 2),
        ("b.cedar#1", 1),
        ("b.cedar#wide", 2),
    ]
    decision = CompiledPolicies.compile(files).decide(who(), "call", tool(), CONTEXT)
    assert decision.allowed
    assert decision.policies == ("a.cedar#1", "b.cedar#1", "b.cedar#wide")


@pytest.mark.parametrize(
    "failing",
    [
        "forbid (principal, action, resource) when { 9223372036854775807 + (if resource.readOnly then 0 else 1) > 0 };",
        'forbid (principal, action, resource) when { User::"somebody-else".tenant == "acme" };',
        'permit (principal, action, resource) when { Tool::"crm/other".readOnly };',
    ],
)
def test_an_error_in_any_policy_denies(failing: str) -> None:
    assert faults(ALL, failing) == []
    decision = compiled(ALL, failing).decide(who(), "advertise", tool(), CONTEXT)
    assert not decision.allowed
    assert len(decision.errors) == 1
    assert "1.cedar#1" in decision.errors[0]


@pytest.mark.parametrize("subject", ODD)
def test_an_odd_subject_authorizes_only_itself(subject: str) -> None:
    policies = compiled(
        f"permit (principal == User::{json.dumps(subject, ensure_ascii=False).replace(chr(92) + 'u0000', chr(92) + '0')}, action, resource);"
    )
    for other in ODD:
        assert policies.decide(who(other), "call", tool(), CONTEXT).allowed is (other == subject)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_tool_name_authorizes_only_itself(name: str) -> None:
    quoted = json.dumps(f"t/{name}", ensure_ascii=False).replace("\\u0000", "\\0")
    policies = compiled(f"permit (principal, action, resource == Tool::{quoted});")
    asked = [tool(f"t/{other}") for other in ODD]
    decisions = policies.decisions(who(), "call", asked, CONTEXT)
    assert [decision.allowed for decision in decisions] == [other == name for other in ODD]


def test_one_tool_that_cedar_cannot_take_denies_itself_alone() -> None:
    asked = [tool("crm/a"), tool("crm/\ud800"), tool("crm/b")]
    decisions = compiled(ALL).decisions(who(), "call", asked, CONTEXT)
    assert [(decision.allowed, decision.evaluated) for decision in decisions] == [
        (True, True),
        (False, False),
        (True, True),
    ]
    for subject in (who("\ud800"), who("a", "\ud800")):
        assert not compiled(ALL).decide(subject, "call", tool(), CONTEXT).allowed


def test_entities_fit_the_shipped_schema() -> None:
    made = [user_entity(who("a", "r")), tool_entity(tool("crm/get", "t"))]
    assert len(cedarpy.Entities.from_json_str(json.dumps(made), schema())) >= 2


def test_a_forbid_wins_over_permits_and_is_named() -> None:
    policies = compiled(ALL, '@id("no") forbid (principal, action == Action::"call", resource);')
    assert policies.decide(who(), "advertise", tool(), CONTEXT).allowed
    denied = policies.decide(who(), "call", tool(), CONTEXT)
    assert (denied.allowed, denied.policies) == (False, ("1.cedar#no",))


def test_the_identity_tells_sets_apart_by_content() -> None:
    same = [compiled(ALL, "").identity, compiled(ALL, "").identity]
    assert same[0] == same[1]
    others = {compiled(ALL).identity, compiled("", ALL).identity, compiled(ALL + " ").identity, same[0]}
    assert len(others) == 4
