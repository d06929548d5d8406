"""The searchable form of one catalog: immutable, built off the event loop, swapped in whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from toolbelay.catalog.model import Tool
from toolbelay.ranking.documents import Document, document
from toolbelay.ranking.lexical import LexicalIndex
from toolbelay.ranking.postings import postings
from toolbelay.ranking.supply import Supply, supply
from toolbelay.ranking.synonyms import Phrase
from toolbelay.ranking.toolset_words import own_text, shared_words

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Row i of everything is tool i, in the order of tool ids' bytes: equal catalogs give equal corpora.

    `supplies` is a memory for the event loop's thread; the rest never changes.
    """

    documents: tuple[Document, ...]
    row_of: Mapping[str, int]  # tool id → row
    toolset_of: npt.NDArray[np.int32]  # row → toolset number
    toolset_numbers: Mapping[str, int]
    members: tuple[Rows, ...]  # toolset number → its rows, ascending
    place_of: Rows  # row → its place among the members of its toolset
    largest: int  # tools of the largest toolset
    lexical: LexicalIndex
    shared: Mapping[str, frozenset[str]]  # toolset → words that its descriptions share
    by_name: Mapping[str, tuple[tuple[int, Phrase], ...]]  # first word of a toolset's name → toolset, its words
    own_texts: tuple[str, ...]  # for embedding: without those words
    supplies: dict[int, Supply | None] = field(default_factory=dict)  # filled as toolsets are asked for

    def __len__(self) -> int:
        return len(self.documents)

    def supply(self, toolset: int) -> Supply | None:
        """Which of a toolset's members supply which (`supply.py`), in the order of `members`."""
        if toolset not in self.supplies:
            members = [self.documents[row] for row in self.members[toolset]]
            shared = self.shared.get(members[0].toolset, frozenset())
            self.supplies[toolset] = supply(members, shared, self.lexical.information)
        return self.supplies[toolset]


def build_corpus(tools: Mapping[str, Tool], held: Corpus | None) -> Corpus:
    """The corpus of `tools`; texts of tools that `held` has unchanged are not read again. Pure."""
    documents = tuple(_document(tools[tool_id], held) for tool_id in _ordered(tools, held))
    toolset_numbers = {name: n for n, name in enumerate(sorted({d.toolset for d in documents}))}
    toolset_of = np.array([toolset_numbers[d.toolset] for d in documents], np.int32)
    order = np.argsort(toolset_of, kind="stable")
    sizes = np.bincount(toolset_of, minlength=len(toolset_numbers)) if documents else np.zeros(0, np.intp)
    members = tuple(np.split(order, np.cumsum(sizes)[:-1])) if documents else ()
    shared = shared_words(documents)
    same = [_same_row(d, shared, held) for d in documents]
    held_postings = held.lexical.postings if held is not None else None
    return Corpus(
        documents=documents,
        row_of={d.tool_id: row for row, d in enumerate(documents)},
        toolset_of=toolset_of,
        toolset_numbers=toolset_numbers,
        members=members,
        place_of=_places(members, len(documents)),
        largest=int(sizes.max(initial=0)),
        lexical=LexicalIndex(postings(documents, shared, toolset_of, held_postings, same)),
        shared=shared,
        by_name=_by_name(documents, members),
        own_texts=tuple(_own_text(d, shared, held, row) for d, row in zip(documents, same, strict=True)),
    )


def _ordered(tools: Mapping[str, Tool], held: Corpus | None) -> list[str]:
    """Tool ids in the order of their bytes. From the order that `held` has it costs no sort, which nothing interrupts."""
    if held is None:
        return sorted(tools, key=_bytes)
    known = [d.tool_id for d in held.documents if d.tool_id in tools]
    fresh = [tool_id for tool_id in tools if tool_id not in held.row_of]
    return sorted([*known, *sorted(fresh, key=_bytes)], key=_bytes)


def _places(members: Sequence[Rows], size: int) -> Rows:
    places = np.zeros(size, np.intp)
    for rows in members:
        places[rows] = np.arange(len(rows))
    return places


def _by_name(documents: Sequence[Document], members: Sequence[Rows]) -> dict[str, tuple[tuple[int, Phrase], ...]]:
    found: dict[str, list[tuple[int, Phrase]]] = {}
    for toolset, rows in enumerate(members):
        name = documents[rows[0]].toolset_words
        if name:
            found.setdefault(name[0], []).append((toolset, name))
    return {word: tuple(names) for word, names in found.items()}


def _same_row(document: Document, shared: Mapping[str, frozenset[str]], held: Corpus | None) -> int | None:
    """The row that `held` has the document at, if its toolset's shared words are the same there too."""
    row = held.row_of.get(document.tool_id) if held is not None else None
    if held is None or row is None or held.documents[row] is not document:
        return None
    nothing: frozenset[str] = frozenset()
    return row if held.shared.get(document.toolset, nothing) == shared.get(document.toolset, nothing) else None


def _own_text(document: Document, shared: Mapping[str, frozenset[str]], held: Corpus | None, row: int | None) -> str:
    if held is not None and row is not None:
        return held.own_texts[row]
    return own_text(document, shared.get(document.toolset, frozenset()))


def _document(tool: Tool, held: Corpus | None) -> Document:
    row = held.row_of.get(tool.tool_id) if held is not None else None
    if held is None or row is None:
        return document(tool)
    known = held.documents[row]
    return known if known.fingerprint == tool.fingerprint and known.tags == tool.tags else document(tool)


def _bytes(tool_id: str) -> bytes:
    return tool_id.encode("utf-8", "surrogatepass")
