"""The searchable form of one catalog: immutable, built off the event loop, swapped in whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolbelay.catalog.model import Tool
from toolbelay.ranking.documents import Document, document
from toolbelay.ranking.lexical import LexicalIndex, lexical_index
from toolbelay.ranking.supply import Supply, supply
from toolbelay.ranking.toolset_words import own_text, shared_words

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Row i of everything is tool i, in the order of tool ids' bytes: equal catalogs give equal corpora."""

    documents: tuple[Document, ...]
    row_of: Mapping[str, int]  # tool id → row
    toolset_of: npt.NDArray[np.int32]  # row → toolset number
    toolset_numbers: Mapping[str, int]
    members: tuple[Rows, ...]  # toolset number → its rows, ascending
    lexical: LexicalIndex
    supplies: tuple[Supply | None, ...]  # toolset number → table over its members
    own_texts: tuple[str, ...]  # for embedding: without the words that a toolset shares

    def __len__(self) -> int:
        return len(self.documents)


def build_corpus(tools: Mapping[str, Tool], held: Corpus | None) -> Corpus:
    """The corpus of `tools`; texts of tools that `held` has unchanged are not read again. Pure."""
    documents = tuple(_document(tools[tool_id], held) for tool_id in sorted(tools, key=_bytes))
    toolset_numbers = {name: n for n, name in enumerate(sorted({d.toolset for d in documents}))}
    toolset_of = np.array([toolset_numbers[d.toolset] for d in documents], np.int32)
    order = np.argsort(toolset_of, kind="stable")
    sizes = np.bincount(toolset_of, minlength=len(toolset_numbers)) if documents else np.zeros(0, np.intp)
    members = tuple(np.split(order, np.cumsum(sizes)[:-1])) if documents else ()
    shared = shared_words(documents)
    lexical = lexical_index(documents, shared)
    nothing: frozenset[str] = frozenset()
    return Corpus(
        documents=documents,
        row_of={d.tool_id: row for row, d in enumerate(documents)},
        toolset_of=toolset_of,
        toolset_numbers=toolset_numbers,
        members=members,
        lexical=lexical,
        supplies=tuple(
            supply([documents[row] for row in rows], shared.get(name, nothing), lexical.information)
            for name, rows in zip(toolset_numbers, members, strict=True)
        ),
        own_texts=tuple(own_text(d, shared.get(d.toolset, nothing)) for d in documents),
    )


def _document(tool: Tool, held: Corpus | None) -> Document:
    row = held.row_of.get(tool.tool_id) if held is not None else None
    if held is None or row is None:
        return document(tool)
    known = held.documents[row]
    return known if known.fingerprint == tool.fingerprint and known.tags == tool.tags else document(tool)


def _bytes(tool_id: str) -> bytes:
    return tool_id.encode("utf-8", "surrogatepass")
