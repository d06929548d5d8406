"""Words that a toolset's tools share, pure.

Many servers begin each description with the same sentence ("This tool belongs to the … system, which
allows …"). Such words say which toolset is meant, and nothing about which of its tools.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from toolbelay.ranking.documents import Document
from toolbelay.ranking.stop_words import STOP_WORDS
from toolbelay.ranking.text import pieces, tokens

MIN_TOOLS = 4  # in a smaller toolset a common word is no habit
EMBEDDED_CHARACTERS = 200  # a mean over a page of text is near everything
SHARED_BY = 0.8  # of the toolset's descriptions


def shared_words(documents: Sequence[Document]) -> Mapping[str, frozenset[str]]:
    """Toolset → the words of its descriptions that at least four fifths of its tools have."""
    toolsets: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        toolsets[document.toolset].append(document)
    found = {}
    for toolset, members in toolsets.items():
        if len(members) < MIN_TOOLS:
            continue
        holders = Counter(word for d in members for word in set(d.description))
        shared = frozenset(w for w, n in holders.items() if n >= SHARED_BY * len(members)) - STOP_WORDS
        if shared:
            found[toolset] = shared
    return found


def own_text(document: Document, shared: frozenset[str]) -> str:
    """The document's name and the beginning of its description, without the words that its toolset shares."""
    name, _, description = document.summary.partition(". ")
    if shared:
        description = " ".join(t for t in tokens(description) if not shared.issuperset(pieces(t)))
    return f"{name}. {description[:EMBEDDED_CHARACTERS]}"
