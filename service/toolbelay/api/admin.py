"""AdminService: thin, one use case a method. The gate has checked the admin role."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

from toolbelay.api import bounds
from toolbelay.api.context import CallContext
from toolbelay.application.apply_bundle import BundleBuilder, ConfigKind
from toolbelay.application.apply_config import ApplyConfig
from toolbelay.application.apply_plan import ApplyOptions
from toolbelay.application.explain import ExplainDecision, ExplainRequest, current_snapshot
from toolbelay.application.ports import Ports
from toolbelay.application.sessions import Sessions
from toolbelay.catalog.model import Tool
from toolbelay.catalog.snapshot import TenantSnapshot
from toolbelay.clock import loop_time
from toolbelay.errors import invalid
from toolbelay.v1 import admin_pb2 as pb

MAX_SUBJECT = 1024
MAX_CHANGES = 10_000
MAX_WARNINGS = 100
READ_SECONDS = 5.0

_KINDS = {
    pb.ApplyChunk.KIND_TOOLS: ConfigKind.TOOL,
    pb.ApplyChunk.KIND_POLICY: ConfigKind.POLICY,
    pb.ApplyChunk.KIND_ROUTES: ConfigKind.ROUTE,
}
_ACTIONS: Mapping[str, Any] = {
    name.removeprefix("ACTION_").lower(): number for name, number in pb.ConfigChange.Action.items()
}


class UseCases(Protocol):
    """What the servicer needs of the runtime."""

    @property
    def apply(self) -> ApplyConfig: ...
    @property
    def explain(self) -> ExplainDecision: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def ports(self) -> Ports: ...
    @property
    def issuer(self) -> str: ...


class AdminServicer:
    """Methods as `api.interceptor.Gate` calls them."""

    def __init__(self, use_cases: UseCases) -> None:
        self._use = use_cases

    async def ApplyConfig(
        self, messages: AsyncIterator[pb.ApplyConfigRequest], call: CallContext
    ) -> pb.ApplyConfigResponse:
        header, bundle = await _read_stream(messages)
        expected = header.expected_generation if header.HasField("expected_generation") else None
        result = await self._use.apply.run(
            call.principal.tenant,
            bundle.build(),
            who=call.principal.subject,
            options=ApplyOptions(prune=header.prune, expected_generation=expected),
            dry_run=header.dry_run,
        )
        return pb.ApplyConfigResponse(
            generation=result.generation,
            changed=result.changed,
            changes=[
                pb.ConfigChange(
                    kind=change.kind,
                    name=change.name,
                    action=_ACTIONS[change.action],
                )
                for change in result.changes[:MAX_CHANGES]
            ],
            warnings=result.warnings[:MAX_WARNINGS],
        )

    async def GetConfig(
        self,
        message: pb.GetConfigRequest,  # noqa: ARG002  # empty today
        call: CallContext,
    ) -> AsyncIterator[pb.GetConfigResponse]:
        deadline = _deadline(call)
        snapshot = await current_snapshot(self._use.ports, call.principal.tenant, deadline)
        for item in _config(snapshot):
            item.generation = snapshot.generation
            yield item

    async def ExplainDecision(
        self, message: pb.ExplainDecisionRequest, call: CallContext
    ) -> pb.ExplainDecisionResponse:
        request = _explain_request(message, self._use.issuer)
        explanation = await self._use.explain(call.principal, request, deadline=call.deadline)
        return pb.ExplainDecisionResponse(
            in_catalog=explanation.in_catalog,
            advertise=_decision(explanation.advertise),
            call=_decision(explanation.call),
            generation=explanation.generation,
        )

    async def EndSessions(self, message: pb.EndSessionsRequest, call: CallContext) -> pb.EndSessionsResponse:
        scope = message.WhichOneof("scope")
        if scope == "principal":
            who = message.principal
            ended = await self._use.sessions.end_principal(
                call.principal,
                bounds.text("principal.issuer", who.issuer, MAX_SUBJECT) or self._use.issuer,
                _subject("principal.subject", who.subject),
                deadline=call.deadline,
            )
        elif scope == "whole_tenant" and message.whole_tenant:
            ended = await self._use.sessions.end_tenant(call.principal)
        else:
            raise invalid("scope", "name a principal, or set whole_tenant")
        return pb.EndSessionsResponse(ended=ended.ended, generation=ended.generation)


async def _read_stream(
    messages: AsyncIterator[pb.ApplyConfigRequest],
) -> tuple[pb.ApplyHeader, BundleBuilder]:
    """Header, chunks, end, in this order; anything else is refused before anything is applied."""
    header: pb.ApplyHeader | None = None
    bundle = BundleBuilder()
    async for message in messages:
        part = message.WhichOneof("part")
        if header is None:
            if part != "header":
                raise invalid("header", "must be the first message")
            header = message.header
        elif part == "chunk":
            kind = _KINDS.get(message.chunk.kind)
            if kind is None:
                raise invalid("chunk.kind", "must be TOOLS, POLICY or ROUTES")
            bundle.add(kind, message.chunk.name, message.chunk.content)
        elif part == "end":
            return header, bundle
        else:
            raise invalid(part, "must not follow the header")
    raise invalid("end", "the stream closed without it; nothing was applied")


def _config(snapshot: TenantSnapshot[Any]) -> Iterator[pb.GetConfigResponse]:
    for tool_id in snapshot.sorted_ids:
        tool = snapshot.tools[tool_id]
        yield pb.GetConfigResponse(
            tool=pb.ConfigTool(
                tool_id=tool_id,
                exposed_name=tool.exposed_name,
                fingerprint=tool.fingerprint.hex(),
                definition=tool_line(tool),
            )
        )
    for file in snapshot.policy_files:
        yield pb.GetConfigResponse(policy=pb.ConfigPolicy(name=file.name, text=file.text))
    for name in sorted(snapshot.routes):
        route = snapshot.routes[name]
        yield pb.GetConfigResponse(route=pb.ConfigRoute(name=name, json=route.model_dump_json()))


def tool_line(tool: Tool) -> bytes:
    """The line of tools/*.jsonl that gives this tool; description and schema in their exact bytes."""
    hints = tool.hints
    rest = {
        "tags": sorted(tool.tags),
        "annotations": {
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        },
        "requires": sorted(tool.requires),
    }
    head = json.dumps({"toolset": tool.toolset, "name": tool.name}, ensure_ascii=False)[:-1].encode()
    tail = json.dumps(rest, ensure_ascii=False)[1:].encode()
    return b"".join(
        (head, b', "description": ', tool.description, b', "input_schema": ', tool.input_schema, b", ", tail)
    )


def _explain_request(message: pb.ExplainDecisionRequest, issuer: str) -> ExplainRequest:
    if len(message.roles) + len(message.scopes) > bounds.MAX_PRINCIPAL_PARTS:
        raise invalid("roles", f"roles and scopes are more than the limit of {bounds.MAX_PRINCIPAL_PARTS}")
    for field, values in (("roles", message.roles), ("scopes", message.scopes)):
        for index, value in enumerate(values):
            bounds.text(f"{field}[{index}]", value, MAX_SUBJECT)
    if not message.tool_id:
        raise invalid("tool_id", "must not be empty")
    return ExplainRequest(
        subject=_subject("subject", message.subject),
        issuer=bounds.text("issuer", message.issuer, MAX_SUBJECT) or issuer,
        roles=frozenset(message.roles),
        scopes=frozenset(message.scopes),
        tool_id=bounds.text("tool_id", message.tool_id, bounds.MAX_TOOL_ID),
        route=bounds.printable("route", message.route),
        model=bounds.printable("model", message.model, bounds.MAX_MODEL),
    )


def _subject(field: str, subject: str) -> str:
    if not subject.strip():
        raise invalid(field, "must not be empty")
    return bounds.text(field, subject, MAX_SUBJECT)


def _decision(decision: Any) -> pb.ActionDecision:
    return pb.ActionDecision(allowed=decision.allowed, policies=decision.policies, errors=decision.errors)


def _deadline(call: CallContext) -> float:
    return min(call.deadline, loop_time() + READ_SECONDS)
