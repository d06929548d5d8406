"""What the pages show is what happens: their examples run, in a fresh folder, against the real service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_examples import ROOT, blocks_of, run_page

pytestmark = pytest.mark.e2e

PAGES = ("README.md", "docs/turn.md", "docs/policies.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_show_what_happens(page: str, tmp_path: Path) -> None:
    examples = list(run_page((ROOT / page).read_text(), tmp_path))
    assert len(examples) > 5
    differing = [
        f"{example.shown.strip()}\n--- {page} says\n{example.claimed}--- it printed\n{example.happened}"
        for example in examples
        if not example.holds
    ]
    assert not differing, "\n".join((*differing, f"`python -m tests.support.doc_examples {page}` writes what happens"))


def test_the_readme_runs_its_gateway_example() -> None:
    """The Python example stays short enough to read: about twenty lines."""
    (example,) = [block for block in blocks_of((ROOT / "README.md").read_text()) if block.language == "python"]
    lines = [line for line in example.text.splitlines() if line.strip()]
    assert len(lines) <= 20
