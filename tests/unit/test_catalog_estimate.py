"""Token estimates: by bytes, and by a tokenizer."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from toolbelay.catalog.estimate import ByteEstimator, TokenizerEstimator
from toolbelay.catalog.formats import WireFormat, render
from toolbelay.catalog.model import Tool
from toolbelay.catalog.surface import Digester, Surface

TOOLS = [
    Tool(
        f"a/t{n}", "a", f"t{n}", f"t{n}", b'""' if n % 2 else b'"does \\u00e9 things"', b'{"type":"object"}', bytes(32)
    )
    for n in range(5)
]


@pytest.fixture(scope="module")
def tokenizer_file() -> Path:
    spec = importlib.util.find_spec("wordllama")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"


@pytest.mark.parametrize("wire_format", WireFormat)
def test_the_catalogs_weight_is_that_of_its_renderings(wire_format: WireFormat) -> None:
    estimator = ByteEstimator()
    rendered = [render(tool, wire_format) for tool in TOOLS]
    assert estimator.catalog_weight(TOOLS, wire_format) == sum(map(estimator.weight, rendered))
    assert estimator.tokens(9) == 3


def test_a_tokenizer_counts_what_it_is_given(tokenizer_file: Path) -> None:
    estimator = TokenizerEstimator.from_file(tokenizer_file)
    one = render(TOOLS[0], WireFormat.MCP)
    assert 5 < estimator.weight(one) < len(one)
    assert estimator.catalog_weight(TOOLS, WireFormat.MCP) == sum(
        estimator.weight(render(t, WireFormat.MCP)) for t in TOOLS
    )


def test_a_surface_made_by_difference_weighs_as_one_made_anew(tokenizer_file: Path) -> None:
    for estimator in (ByteEstimator(), TokenizerEstimator.from_file(tokenizer_file)):
        digest = Digester(b"k" * 32)
        before = {t.tool_id: t for t in TOOLS[:4]}
        after = {t.tool_id: t for t in TOOLS[1:]}
        by_difference = Surface.of(before.values(), digest, estimator).without({"a/t0", "a/t4"}, before, after)
        anew = Surface.of(after.values(), digest, estimator)
        for wire_format in WireFormat:
            assert by_difference.whole_tokens(wire_format) == anew.whole_tokens(wire_format) > 0


def test_a_file_that_is_no_tokenizer_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(ValueError, match=r"TOKENIZER_FILE .*t\.json is not a tokenizer"):
        TokenizerEstimator.from_file(tmp_path / "t.json")
