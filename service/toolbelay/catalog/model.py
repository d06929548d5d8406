"""A tool of a tenant's catalog."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolHints:
    """MCP's annotation hints with the defaults of the MCP specification (ToolAnnotations)."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `tool_id` = `toolset/name` is its only identity for policy, state and pins."""

    tool_id: str
    toolset: str  # [A-Za-z0-9._-]{1,64}
    name: str  # 1..191 bytes
    exposed_name: str  # [A-Za-z0-9_-]{1,64}, reserved for this tool id
    description: bytes  # the JSON string as given, quotes included; b'""' where there is none
    input_schema: bytes  # the JSON object as given
    fingerprint: bytes  # SHA-256 of exposed name, description and schema, canonical form
    tags: frozenset[str] = frozenset()
    hints: ToolHints = ToolHints()
    requires: frozenset[str] = frozenset()
