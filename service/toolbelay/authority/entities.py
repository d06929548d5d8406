"""Principals and tools as Cedar entities: structured ids and JSON values, never policy text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import cedarpy

from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool

Action = Literal["advertise", "call"]


def uid(kind: str, identity: str) -> dict[str, str]:
    """Give an entity id in Cedar's structured form: any string is an id, and only its own."""
    return {"type": kind, "id": identity}


def entities(principal: Principal, tools: Sequence[Tool]) -> cedarpy.Entities:
    """Make the entities of one request: the caller and the tools asked about.

    Raises ValueError for strings that Cedar does not take (lone surrogates).
    """
    # Without the schema: the shapes below are fixed, a test holds them against it, and checking costs a quarter more.
    return cedarpy.Entities.from_json_str(json.dumps([user_entity(principal), *map(tool_entity, tools)]))


def user_entity(principal: Principal) -> dict[str, Any]:
    """Give the entity User::"<subject>"."""
    return {
        "uid": uid("User", principal.subject),
        "attrs": {
            "tenant": principal.tenant,
            "issuer": principal.issuer,
            "subject": principal.subject,
            "roles": list(principal.roles),
            "scopes": list(principal.scopes),
        },
        "parents": [uid("Role", role) for role in principal.roles],
    }


def tool_entity(tool: Tool) -> dict[str, Any]:
    """Give the entity Tool::"<toolset>/<name>"."""
    return {
        "uid": uid("Tool", tool.tool_id),
        "attrs": {
            "name": tool.name,
            "toolset": tool.toolset,
            "tags": list(tool.tags),
            "readOnly": tool.hints.read_only,
            "destructive": tool.hints.destructive,
            "idempotent": tool.hints.idempotent,
            "openWorld": tool.hints.open_world,
        },
        "parents": [uid("Toolset", tool.toolset)],
    }


def requests(principal: Principal, action: Action, tools: Sequence[Tool], context: str) -> list[dict[str, Any]]:
    """Make one authorization request per tool. `context`: a JSON object."""
    caller, verb = uid("User", principal.subject), uid("Action", action)
    return [
        {"principal": caller, "action": verb, "resource": uid("Tool", tool.tool_id), "context": context}
        for tool in tools
    ]
