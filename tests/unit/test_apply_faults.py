"""An apply that is refused tells everything that is wrong, whatever kind it is of."""

from __future__ import annotations

import pytest

from toolbelay.application.apply_bundle import ConfigBundle, ConfigRefusedError, SourceFile
from toolbelay.application.apply_config import read_bundle
from toolbelay.application.apply_named import MAX_NAMED, MAX_TOLD, missing_tools, named_tools


def test_faults_of_tools_policies_and_routes_are_listed_together() -> None:
    bundle = ConfigBundle(
        tools=(SourceFile("t.jsonl", b'{"toolset": "caller", "name": "x", "description": "", "input_schema": {}}\n'),),
        policies=(SourceFile("p.cedar", b"permit (principal, action"),),
        routes=SourceFile("routes.yaml", b"routes:\n  default:\n    nonsense: 1\n"),
    )
    with pytest.raises(ConfigRefusedError) as refused:
        read_bundle(bundle)
    places = {fault.where.split(":")[0] for fault in refused.value.faults}
    assert {"tools/t.jsonl", "policies/p.cedar"} < places
    assert any("nonsense" in fault.message for fault in refused.value.faults)


NAMING = """
permit (principal in Role::"crm", action, resource in Toolset::"cmr");

forbid (principal == User::"x", action == Action::"call", resource == Tool::"find_customer")
unless { resource in [Toolset::"crm", Toolset::"caller"] || resource.toolset == "mial" };
permit (principal, action, resource == Tool::"crm/find") when { resource == Tool::"caller/x" };
"""


def test_what_policies_name_and_the_catalog_lacks() -> None:
    named = named_tools({"a.cedar": NAMING, "broken.cedar": "permit ("})
    assert [(item.where, item.name) for item in named] == [
        ("policies/a.cedar:2", "cmr"),
        ("policies/a.cedar:4", "crm"),
        ("policies/a.cedar:4", "mial"),
        ("policies/a.cedar:4", "find_customer"),
        ("policies/a.cedar:6", "crm/find"),
    ]
    assert list(missing_tools(named, {"crm/find"}, {"crm"})) == [
        'policies/a.cedar:2: the catalog has no tool of Toolset::"cmr"',
        'policies/a.cedar:4: the catalog has no tool of Toolset::"mial"',
        'policies/a.cedar:4: Tool::"find_customer" is not in the catalog; a tool is named Tool::"toolset/name"',
    ]


def test_warnings_of_policies_are_bounded() -> None:
    text = "".join(f'forbid (principal, action, resource == Tool::"a/{n}");\n' for n in range(MAX_NAMED + 9))
    named = named_tools({"a.cedar": text})
    assert len(named) == MAX_NAMED
    told = list(missing_tools(named, (), ()))
    assert len(told) == MAX_TOLD + 1
    assert told[-1].startswith(f"policies name {MAX_NAMED - MAX_TOLD} more")
    (odd,) = missing_tools(
        named_tools({"a.cedar": r'permit (principal, action, resource == Tool::"a/\n\u{202e}");'}), (), ()
    )
    assert r'Tool::"a/\n\u202e"' in odd
