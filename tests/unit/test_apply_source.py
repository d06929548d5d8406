"""Configuration folders, bundles and `routes.yaml`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolbelay.application import apply_bundle, config_source
from toolbelay.application.apply_bundle import (
    BundleBuilder,
    ConfigBundle,
    ConfigKind,
    ConfigRefusedError,
    SourceFile,
)
from toolbelay.application.apply_config import read_bundle
from toolbelay.application.apply_routes import read_routes, route_tool_ids
from toolbelay.application.config_source import read_config
from toolbelay.catalog.definitions import Fault


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def faults_of(work: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(ConfigRefusedError) as refused:
        work()
    return [(fault.where, fault.message) for fault in refused.value.faults]


def routes_faults(text: str | bytes) -> list[tuple[str, str]]:
    content = text if isinstance(text, bytes) else text.encode()
    return [(fault.where, fault.message) for fault in read_routes(SourceFile("routes.yaml", content)).faults]


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    files = {
        "tools/b.jsonl": b"2",
        "tools/a.jsonl": b"1",
        "tools/.hidden": b"",
        "tools/README.md": b"",
        "policies/p.cedar": b"p",
        "routes.yaml": b"r",
    }
    found = read_config(write(tmp_path, files))
    assert found.tools == (SourceFile("a.jsonl", b"1"), SourceFile("b.jsonl", b"2"))
    assert found.policies == (SourceFile("p.cedar", b"p"),)
    assert found.routes == SourceFile("routes.yaml", b"r")
    assert found.warnings == ("tools/README.md is ignored: only *.jsonl is read here",)


def test_a_kind_without_its_folder_is_no_part(tmp_path: Path) -> None:
    found = read_config(write(tmp_path, {"routes.yaml": b"routes: {}"}))
    assert (found.tools, found.policies) == (None, None)
    (tmp_path / "policies").mkdir()
    assert read_config(tmp_path).policies == ()


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults_of(lambda: read_config(tmp_path / "gone")) == [(str(tmp_path / "gone"), "is not a folder")]
    assert "has none of" in faults_of(lambda: read_config(tmp_path))[0][1]
    write(
        tmp_path,
        {"tools/big.jsonl": b"x" * 40, "policies/big.cedar": b"x" * 11, "routes.yml": b"", "tools/d.jsonl/x": b""},
    )
    os.mkfifo(tmp_path / "tools" / "pipe.jsonl")
    (tmp_path / "tools" / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "tools" / "line\nbreak.jsonl").write_bytes(b"")
    monkeypatch.setattr(config_source, "MAX_POLICY", 10)
    monkeypatch.setattr(config_source, "MAX_BUNDLE", 30)
    assert faults_of(lambda: read_config(tmp_path)) == [
        ("tools/big.jsonl", "is more than the limit of 30 bytes"),
        ("tools/d.jsonl", "is not a regular file"),
        ("tools/dangling.jsonl", "cannot be read: No such file or directory"),
        ("tools/line\nbreak.jsonl", "a file's name must be a base name without control characters"),
        ("tools/pipe.jsonl", "is not a regular file"),
        ("policies/big.cedar", "is more than the limit of 10 bytes"),
        ("routes.yml", "is not read; name it routes.yaml"),
    ]


def test_chunks_of_a_tools_file_join(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = BundleBuilder()
    builder.add(ConfigKind.TOOL, "a.jsonl", b"1\n")
    builder.add(ConfigKind.POLICY, "p.cedar", b"p")
    builder.add(ConfigKind.TOOL, "a.jsonl", b"2\n")
    assert builder.build() == ConfigBundle((SourceFile("a.jsonl", b"1\n2\n"),), (SourceFile("p.cedar", b"p"),), None)
    assert faults_of(lambda: builder.add(ConfigKind.POLICY, "p.cedar", b"q")) == [("p.cedar", "given twice")]
    builder.add(ConfigKind.ROUTE, "routes.yaml", b"r")
    assert builder.build().routes == SourceFile("routes.yaml", b"r")
    assert "more than 1 files" in faults_of(lambda: builder.add(ConfigKind.ROUTE, "more.yaml", b"r"))[0][1]
    monkeypatch.setattr(apply_bundle, "MAX_BUNDLE", 100)
    assert "limit of 100 bytes" in faults_of(lambda: builder.add(ConfigKind.TOOL, "a.jsonl", b"x" * 100))[0][1]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0", "a\u202eb", "x" * 129, "\ud800"])
def test_a_chunk_needs_a_base_name(name: str) -> None:
    with pytest.raises(ConfigRefusedError):
        BundleBuilder().add(ConfigKind.POLICY, name, b"")


def test_the_message_of_many_faults_is_short_and_holds_the_first() -> None:
    error = ConfigRefusedError([Fault(f"tools/a.jsonl:{i}", "", "x" * 300) for i in range(500)])
    assert len(error.message.encode()) < 3000
    assert "500 faults" in error.message
    assert "tools/a.jsonl:0" in error.message
    assert len(error.faults) == 500
    assert error.field == "config"


def test_beyond_a_thousand_faults_are_counted() -> None:
    bundle = ConfigBundle(tools=(SourceFile("a.jsonl", b"{\n" * 1500),))
    found = faults_of(lambda: read_bundle(bundle))
    assert len(found) == 1001
    assert found[-1] == ("", "and 500 further faults")


def test_routes_are_stored_as_given_in_one_form() -> None:
    one = read_routes(SourceFile("r", b"routes:\n  a: {top_k: 4, sticky: {max_tools: 8}}\n  b:\n"))
    other = read_routes(SourceFile("r", b'routes: {b: {}, a: {"sticky": {"max_tools": 8}, "top_k": 4}}'))
    assert one.routes == other.routes
    assert json.loads(one.routes["a"].json) == {"top_k": 4, "sticky": {"max_tools": 8}}
    assert one.routes["b"].json == "{}"


def test_anchors_and_merges_may_be_used() -> None:
    text = b"routes:\n  a: &a {top_k: 4, core_tools: [x/y]}\n  b: {<<: *a, top_k: 5, required_tools: [x/z]}\n"
    found = read_routes(SourceFile("r", text))
    assert found.faults == []
    assert json.loads(found.routes["b"].json) == {"top_k": 5, "core_tools": ["x/y"], "required_tools": ["x/z"]}
    assert found.routes["b"].tool_ids == {"x/y", "x/z"} == route_tool_ids(found.routes["b"].json)


def test_a_pasted_plugin_block_is_taken_with_a_warning() -> None:
    found = read_routes(SourceFile("r", b"routes: {a: {enabled: true, tools_db_path: /x.json, top_k: 3}}"))
    assert found.faults == []
    assert len(found.warnings) == 1
    assert "tools_db_path" in found.warnings[0]
    assert "tools_db_path" not in found.routes["a"].json


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("", "routes.yaml:1", "must be a mapping with the key `routes`"),
        ("[]", "routes.yaml:1", "must be a mapping with the key `routes`"),
        ("routes: []", "routes.yaml:1", "must be a mapping of route names"),
        ("routes: {}\nroute: {}", "routes.yaml:2", "unknown key 'route': routes stand below `routes`"),
        ("routes:\n  a: {}\n  a: {}", "routes.yaml:3", "the key 'a' is given twice"),
        ("routes:\n  a:\n    top_k: 1\n    top_k: 2", "routes.yaml:4", "the key 'top_k' is given twice"),
        ("routes:\n  a: {top_k: 0}", "routes.yaml:2", "route a: top_k:"),
        ("routes:\n  a: {topk: 1}", "routes.yaml:2", "route a: topk: unknown key; did you mean top_k?"),
        ("routes:\n  a:\n    mode: add\n    top_k: 0", "routes.yaml:4", "route a: top_k: "),
        (
            "routes:\n  a:\n    top_k: 3\n    max_tools: 9",
            "routes.yaml:4",
            "max_tools: unknown key; did you mean sticky.max_tools?",
        ),
        (
            "routes:\n  a:\n    sticky:\n      max_tool: 9",
            "routes.yaml:4",
            "sticky.max_tool: unknown key; did you mean sticky.max_tools?",
        ),
        (
            "routes:\n  a:\n    sticky:\n      top_k: 9",
            "routes.yaml:4",
            "sticky.top_k: unknown key; did you mean top_k?",
        ),
        ("routes:\n  a:\n    vector_wieght: 9", "routes.yaml:3", "unknown key; did you mean ranking.vector_weight?"),
        ("routes:\n  a:\n    xyzzy: 9", "routes.yaml:3", "xyzzy: unknown key; docs/routes.md lists the keys"),
        ("routes:\n  a:\n    a.b: c\n", "routes.yaml:3", "a.b: unknown key"),
        (
            "routes:\n  a:\n    sticky:\n      max_tools: 3\n    seed_tools: 9",
            "routes.yaml:5",
            "seed_tools must not exceed",
        ),
        ("routes:\n  a:\n    core_tools:\n    - x/y\n    - 7", "routes.yaml:5", "core_tools.1: "),
        ("routes:\n  a:\n    core_tools:\n    - x/y\n    - z", "routes.yaml:3", "'z' is not a tool id"),
        ("x: &x {top_k: 0}\nroutes: {a: *x}", "routes.yaml:1", "unknown key 'x'"),
        ("routes:\n  a: &x\n    mode: add\n    top_k: 0\n  b: *x", "routes.yaml:4", "route a: top_k: "),
        (
            "routes:\n  b: {seed_tools: 1}\n  a:\n    <<: {top_k: 0,\n         mode: add}",
            "routes.yaml:4",
            "route a: top_k: ",
        ),
        ("routes:\n  a: 1", "routes.yaml:2", "must be a mapping"),
        ("routes:\n  1: {}", "routes.yaml:2", "put it in quotes"),
        ("routes:\n  ? [a]\n  : {}", "routes.yaml:2", "a key must be text"),
        ('routes:\n  "a\\u202eb": {}', "routes.yaml:2", "printable"),
        (f"routes:\n  {'x' * 129}: {{}}", "routes.yaml:2", "1 to 128 bytes"),
        ("routes:\n  a: !!python/object:os.system {}", "routes.yaml:2", "not valid YAML"),
        ("routes:\n  a: {core_tools: !!set {x/y}}", "routes.yaml:2", "route a"),
        ("routes:\n  a: {core_tools: [!!binary eC95]}", "routes.yaml:2", "route a"),
        ('routes:\n  a: {core_tools: ["x/\\0"]}', "routes.yaml:2", "NUL"),
        ("routes: {\n\n}}", "routes.yaml:3", "not valid YAML"),
        ("routes: &r {a: *r}", "routes.yaml:1", "nested more than 32 levels"),
        ("routes: " + "[" * 50_000, "routes.yaml:1", "nest"),
        ("a: &a [1]\nroutes: [" + "*a," * 300 + "]", "routes.yaml:2", "more than 256 aliases"),
        ("routes: " + "{a: " * 40 + "1" + "}" * 40, "routes.yaml:1", "nested more than 32 levels"),
        ("routes: {a: {top_k: " + "9" * 5000 + "}}", "routes.yaml", "not valid YAML"),
        ("routes: {}\n--- {}", "routes.yaml:2", "not valid YAML"),
        ("x" * 2_000_000, "routes.yaml", "limit of 1048576 bytes"),
    ],
)
def test_bad_routes_are_told_with_their_line(text: str, where: str, message: str) -> None:
    ((found, told), *_) = routes_faults(text)
    assert found == where
    assert message in told
    assert len(told) < 500


def test_of_many_faults_the_first_have_their_own_lines() -> None:
    text = "routes:\n  a:\n" + "".join(f"    key{n}: 0\n" for n in range(40_000))
    found = routes_faults(text)
    assert found[:2] == [
        (f"routes.yaml:{n + 3}", f"route a: key{n}: unknown key; docs/routes.md lists the keys") for n in (0, 1)
    ]
    assert found[-1] == ("routes.yaml:2", "route a: key39999: unknown key")


def test_laughs_do_not_multiply() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    ((_, told),) = routes_faults("\n".join([*levels, "routes: {}"]))
    assert "more than 100000 nodes" in told


def test_text_that_is_not_utf8_is_told() -> None:
    assert routes_faults(b"routes: \xff") == [("routes.yaml", "not UTF-8 at byte 8")]
    assert routes_faults(b"routes: \0")[0][1].startswith("not valid YAML")


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text("routes:{}[]&*!- \n\"'|>?%@#a1.~<", max_size=80).map(str.encode)))
def test_no_text_breaks_the_reader(content: bytes) -> None:
    found = read_routes(SourceFile("routes.yaml", content))
    assert found.faults or all(json.loads(route.json) is not None for route in found.routes.values())
