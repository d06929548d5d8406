"""What ranking reads of a tool: bounded text by field, pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from toolbelay.catalog.model import Tool
from toolbelay.ranking.text import split_identifier, words

MAX_FIELD_CHARACTERS = 8 * 1024
MAX_PARAMETERS = 256
MAX_PARAMETER_DEPTH = 6
# What a tool does is said first; pages of instructions to the model follow, in the words of everything.
DESCRIPTION_WORDS = 64
# How often a field's words count. One document of repeated words is BM25F with one length norm.
NAME_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Document:
    """A tool's text, folded into words by field."""

    tool_id: str
    toolset: str
    exposed_name: str
    fingerprint: bytes
    tags: frozenset[str]
    name: tuple[str, ...]
    toolset_words: tuple[str, ...]
    description: tuple[str, ...]
    parameters: tuple[str, ...]
    summary: str  # name and description as prose, for vectors and for a model to read


def document(tool: Tool) -> Document:
    """Never raises: what cannot be read is left out."""
    description = _string(tool.description)[:MAX_FIELD_CHARACTERS]
    return Document(
        tool_id=tool.tool_id,
        toolset=tool.toolset,
        exposed_name=tool.exposed_name,
        fingerprint=tool.fingerprint,
        tags=tool.tags,
        name=tuple(words(tool.name)),
        toolset_words=tuple(words(tool.toolset)),
        description=tuple(words(description)[:DESCRIPTION_WORDS]),
        parameters=tuple(words(" ".join(_parameter_texts(tool.input_schema))[:MAX_FIELD_CHARACTERS]))
        + tuple(word for tag in sorted(tool.tags) for word in words(tag)),
        summary=f"{' '.join(split_identifier(tool.name))}. {description}",
    )


def _string(raw: bytes) -> str:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


def _parameter_texts(raw: bytes) -> Iterator[str]:
    try:
        schema = json.loads(raw)
    except (ValueError, RecursionError):
        return
    waiting = [(schema, 0)]
    seen = 0
    while waiting and seen < MAX_PARAMETERS:
        node, depth = waiting.pop(0)
        if not isinstance(node, dict) or depth > MAX_PARAMETER_DEPTH:
            continue
        properties = node.get("properties")
        for name, value in properties.items() if isinstance(properties, dict) else ():
            seen += 1
            yield name
            if isinstance(value, dict):
                if isinstance(value.get("description"), str):
                    yield value["description"]
                choices = value.get("enum")
                if isinstance(choices, list):
                    yield from (choice for choice in choices[:32] if isinstance(choice, str))
                waiting.append((value, depth + 1))
        items = node.get("items")
        if isinstance(items, dict):
            waiting.append((items, depth + 1))
