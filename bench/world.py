"""Catalogs, policies and queries of any size, the same each time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

VERBS = [
    "create",
    "update",
    "delete",
    "list",
    "search",
    "fetch",
    "send",
    "archive",
    "approve",
    "cancel",
    "export",
    "import",
    "assign",
    "merge",
    "close",
]
OBJECTS = [
    "invoice",
    "customer",
    "ticket",
    "repository",
    "branch",
    "message",
    "calendar",
    "event",
    "contract",
    "shipment",
    "order",
    "payment",
    "refund",
    "report",
    "dashboard",
    "metric",
    "alert",
    "incident",
    "deployment",
    "cluster",
    "volume",
    "snapshot",
    "backup",
    "user",
    "group",
    "role",
    "permission",
    "document",
    "page",
    "comment",
    "attachment",
    "folder",
    "lead",
    "campaign",
    "audience",
    "survey",
    "candidate",
    "interview",
    "payslip",
    "vacation",
    "expense",
    "budget",
    "asset",
]
QUALIFIERS = [
    "draft",
    "open",
    "overdue",
    "shared",
    "internal",
    "external",
    "recurring",
    "regional",
    "archived",
    "pending",
    "public",
    "private",
]
PLACES = [
    "crm",
    "billing",
    "helpdesk",
    "git",
    "chat",
    "hr",
    "warehouse",
    "cloud",
    "wiki",
    "marketing",
    "finance",
    "monitoring",
]
NEEDS = [
    "the id of",
    "the name of",
    "the owner of",
    "a filter over",
    "the due date of",
    "free text about",
    "the priority of",
]
TAGS = ("finance", "support", "engineering", "people", "operations")
TOOLS_IN_SET = 40
ROLE_SETS = (("staff", "sales"), ("staff", "support"), ("staff", "engineer", "oncall"), ("staff", "hr"))


def catalog(size: int) -> list[dict[str, Any]]:
    """Lines of tools/*.jsonl: definitions of about 700 bytes in toolsets of 40; every tool has the tag `common`."""
    chance = random.Random(size)
    return [_tool(number, chance) for number in range(size)]


def _tool(number: int, chance: random.Random) -> dict[str, Any]:
    verb, thing = VERBS[number % len(VERBS)], OBJECTS[(number // len(VERBS)) % len(OBJECTS)]
    toolset = number // TOOLS_IN_SET
    others = chance.sample(OBJECTS, 4)
    about = f"{verb.title()} a {chance.choice(QUALIFIERS)} {thing}, with its {others[0]} and {others[1]}"
    return {
        "toolset": f"{PLACES[toolset % len(PLACES)]}_{toolset}",
        "name": f"{verb}_{thing}_{number}",
        "description": f"{about}. Needs the {others[2]}; answers with the {thing} as it stands afterwards.",
        "input_schema": {
            "type": "object",
            "properties": {
                f"{other}_{part}": {"type": kind, "description": f"{chance.choice(NEEDS)} the {other}"}
                for other, part, kind in zip(
                    (thing, *others), ("id", "name", "filter", "limit", "note"),
                    ("string", "string", "object", "integer", "string"), strict=True,
                )
            },
            "required": [f"{thing}_id"],
        },
        "tags": ["common", TAGS[toolset % len(TAGS)]],
        "annotations": {"readOnlyHint": verb in ("list", "search", "fetch"), "destructiveHint": verb == "delete"},
    }  # fmt: skip


def tool_id(tool: dict[str, Any]) -> str:
    return f"{tool['toolset']}/{tool['name']}"


def queries(seed: int) -> Iterator[str]:
    """Requests as people write them, none twice."""
    chance = random.Random(seed)
    while True:
        things = chance.sample(OBJECTS, 2)
        yield (
            f"Please {chance.choice(VERBS)} the {chance.choice(QUALIFIERS)} {things[0]} number {chance.getrandbits(40)}"
            f" in {chance.choice(PLACES)} and tell {chance.choice(('Anna', 'Bo', 'Chen'))} about its {things[1]}"
        )


def policies(count: int, tools: list[dict[str, Any]], *, single: bool = False) -> dict[str, str]:
    """`count` policies by toolset and tag that leave staff everything; `single`: every third names one tool."""
    chance = random.Random(count)
    toolsets = sorted({t["toolset"] for t in tools})
    roles = sorted({role for roles in ROLE_SETS for role in roles} - {"staff"})
    lines = ['permit (principal in Role::"staff", action, resource) when { resource.tags.contains("common") };']
    while len(lines) < count:
        role, at = chance.choice(roles), len(lines)
        if single and at % 3 == 0:
            what = f'resource == Tool::"{tool_id(chance.choice(tools))}"'
            lines.append(f'permit (principal in Role::"{role}", action, {what});')
        elif at % 10 == 9:
            forbidden = f'resource in Toolset::"{chance.choice(toolsets)}"'
            lines.append(f'forbid (principal, action, {forbidden}) when {{ resource.tags.contains("frozen{at}") }};')
        elif at % 2:
            lines.append(
                f'permit (principal in Role::"{role}", action, resource in Toolset::"{chance.choice(toolsets)}");'
            )
        else:
            lines.append(
                f'permit (principal in Role::"{role}", action == Action::"advertise", resource)'
                f' when {{ resource.tags.contains("{chance.choice(TAGS)}") && resource.readOnly }};'
            )
    return {"bench.cedar": "\n".join(lines)}


def routes() -> dict[str, Any]:
    """One route for each strategy that is measured; `wide` seeds its session to the brim."""
    full = {"seed_tools": 16}
    return {
        "default": {"strategy": "hybrid", **full},
        "keyword": {"strategy": "keyword", **full},
        "caller": {"strategy": "caller", **full},
        "crowded": {"strategy": "caller", **full},
        "growing": {"strategy": "caller", "seed_tools": 8},
    }
