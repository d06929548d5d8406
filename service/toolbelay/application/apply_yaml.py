"""YAML into plain values, with bounds: size, depth, aliases, duplicate keys."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_DEPTH = 32
MAX_ALIASES = 256
MAX_NODES = 100_000  # after aliases are followed


class YamlError(Exception):
    """Why a text is refused. `line` counts from 1; `None` = unknown."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def load_yaml(text: str) -> tuple[object, yaml.Node | None]:
    """(value, node) of a single document. Raises YamlError."""
    try:
        _check_events(text)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, None
            _Walk().visit(node, 0)
            return loader.construct_document(node), node
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(_one_line(error), mark.line + 1 if mark else None) from None
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:
        raise YamlError(f"not valid YAML: {str(error).splitlines()[0][:200]}") from None


def _check_events(text: str) -> None:
    """Depth and aliases, before anything recursive sees the text."""
    depth = aliases = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise YamlError(f"nested more than {MAX_DEPTH} levels", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            if aliases > MAX_ALIASES:
                raise YamlError(f"more than {MAX_ALIASES} aliases", line)


class _Walk:
    """Follows aliases as construction would, counting nodes and looking for keys given twice."""

    def __init__(self) -> None:
        self._nodes = 0

    def visit(self, node: yaml.Node, depth: int) -> None:
        self._nodes += 1
        line = node.start_mark.line + 1
        if depth > MAX_DEPTH:
            raise YamlError(f"nested more than {MAX_DEPTH} levels, or an alias to itself", line)
        if self._nodes > MAX_NODES:
            raise YamlError(f"more than {MAX_NODES} nodes, aliases followed", line)
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            for key, value in node.value:
                self.visit(key, depth + 1)
                self.visit(value, depth + 1)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self.visit(item, depth + 1)


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise YamlError("a key must be text", line)
        if key.value in seen:
            raise YamlError(f"the key {key.value[:128]!r} is given twice", line)
        seen.add(key.value)


def _one_line(error: yaml.MarkedYAMLError) -> str:
    parts = [part.strip() for part in (error.context, error.problem) if part]
    return f"not valid YAML: {', '.join(parts)}"[:300]
