"""A tenant of a running service, small enough to think in: tools are single letters of the toolset `crm`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.support.service import PERMIT_ALL, Client, Service, token, tool
from toolbelay.v1 import selection_pb2 as pb

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def schema(version: int = 0) -> dict[str, Any]:
    """A schema that differs by version."""
    properties = {"value": {"type": "string"}} | ({f"v{version}": {"type": "string"}} if version else {})
    return {"type": "object", "properties": properties}


def letter(name: str, version: int = 0, **more: Any) -> dict[str, Any]:
    """The line of tools/*.jsonl of `crm/<name>`."""
    return tool(f"crm/{name}", f"tool {name}", schema(version), **more)


class World:
    """One tenant. `route` keys go to the default route; its strategy is "caller" unless given."""

    def __init__(
        self,
        service: Service,
        tenant: str,
        *,
        letters: str = LETTERS,
        tools: Sequence[Mapping[str, Any]] | None = None,
        policies: Mapping[str, str] | None = None,
        routes: Mapping[str, Any] | None = None,
        **route: Any,
    ) -> None:
        self.service, self.tenant = service, tenant
        self.tools = {t["name"]: dict(t) for t in (tools or [letter(x) for x in letters])}
        self.policies = {"all.cedar": PERMIT_ALL} if policies is None else dict(policies)
        self.routes = routes or {"default": caller_route(**route)}
        self.generation = service.apply(
            self.tools.values(), self.policies, self.routes, tenant=tenant, prune=True
        ).generation
        self.client = self.as_("alice")

    def as_(self, subject: str, **more: Any) -> Player:
        """A principal of this tenant."""
        return Player(self.service, subject, self.tenant, **more)

    def permit(self, policy: str) -> None:
        """Replace the whole policy set."""
        self.generation = self.service.apply(policies={"all.cedar": policy}, tenant=self.tenant, prune=True).generation

    def forbid(self, letters: str) -> None:
        """Permit everything but these tools."""
        rules = [f'forbid (principal, action, resource == Tool::"crm/{x}");' for x in letters]
        self.permit("\n".join([PERMIT_ALL, *rules]))

    def route(self, **route: Any) -> None:
        """Replace the default route."""
        self.generation = self.service.apply(routes={"default": caller_route(**route)}, tenant=self.tenant).generation

    def put(self, *tools: Mapping[str, Any]) -> None:
        """Add or change tools."""
        self.tools.update({t["name"]: dict(t) for t in tools})
        self.generation = self.service.apply(tools, tenant=self.tenant).generation

    def remove(self, letters: str) -> None:
        """Take tools out of the catalog."""
        for name in letters:
            del self.tools[name]
        self.generation = self.service.apply(self.tools.values(), tenant=self.tenant, prune=True).generation


def caller_route(**route: Any) -> dict[str, Any]:
    """A route of strategy "caller"; keys of `sticky` may be given flat."""
    sticky_keys = {
        "enabled", "max_tools", "max_new_tools_per_turn", "pin_called_tools", "when_full", "stale_after_turns",
        "reseat_when_cold", "prompt_cache_ttl_seconds", "ttl_seconds",
    }  # fmt: skip
    sticky = {k: v for k, v in route.items() if k in sticky_keys}
    rest = {k: v for k, v in route.items() if k not in sticky_keys}
    return {"strategy": "caller", **rest, **({"sticky": sticky} if sticky else {})}


class Player(Client):
    """A client that speaks in letters."""

    def __init__(self, service: Service, subject: str, tenant: str, **more: Any) -> None:
        super().__init__(service.channel, token(subject, tenant, **more))

    def turn(
        self, session: str = "s", ranked: str | Mapping[str, float] = "", called: Iterable[str] = "", **fields: Any
    ) -> pb.SelectToolsResponse:
        """One turn: candidates best first, exposed names called."""
        if isinstance(ranked, str):
            ranked = {x: float(len(ranked) - i) for i, x in enumerate(ranked)}
        answer = self.select(
            session, candidates={f"crm/{x}": s for x, s in ranked.items()}, called_tools=list(called), **fields
        )
        check(answer)
        return answer

    def stored(self, session: str = "s", route: str = "") -> str:
        """Letters of the stored set, in order."""
        return "".join(short(t.tool_id) for t in self.session(session, route).tools)

    def pins(self, session: str = "s", route: str = "") -> str:
        """Letters of the pinned tools, in the stored order."""
        return "".join(short(t.tool_id) for t in self.session(session, route).tools if t.pinned)

    def verdicts(self, session: str, names: Iterable[str], **more: Any) -> list[str]:
        """Short names of verdict or denial, in order."""
        answer = self.authorize(session, list(names), **more)
        return [
            pb.DenialReason.Name(d.reason).removeprefix("DENIAL_REASON_")
            if d.reason
            else pb.Verdict.Name(d.verdict).removeprefix("VERDICT_")
            for d in answer.decisions
        ]


def short(tool_id: str) -> str:
    """The letter of a tool id."""
    return tool_id.removeprefix("crm/")


def letters_of(answer: pb.SelectToolsResponse) -> str:
    """The answer in letters; a caller-owned tool is its name in brackets."""
    return "".join(short(t.tool_id) if t.tool_id else f"[{t.name}]" for t in answer.tools)


def outcome(answer: pb.SelectToolsResponse) -> str:
    return pb.Outcome.Name(answer.receipt.outcome).removeprefix("OUTCOME_")


def reason(answer: pb.SelectToolsResponse) -> str:
    return pb.Reason.Name(answer.receipt.reason).removeprefix("REASON_")


def origins_of(answer: pb.SelectToolsResponse) -> list[str]:
    return [pb.Origin.Name(t.origin).removeprefix("ORIGIN_") for t in answer.tools]


def choice_of(answer: pb.SelectToolsResponse) -> tuple[str, list[str], bool]:
    """(mode, names, required)."""
    choice = answer.tool_choice
    return pb.ToolChoice.Mode.Name(choice.mode).removeprefix("MODE_"), list(choice.names), choice.required


def choice(mode: str, *names: str, required: bool = False) -> pb.ToolChoice:
    return pb.ToolChoice(mode=f"MODE_{mode}", names=names, required=required)


def target(format: str = "OPENAI_CHAT", **more: Any) -> pb.Target:  # noqa: A002 - the field's name
    return pb.Target(format=f"WIRE_FORMAT_{format}", **more)


def check(answer: pb.SelectToolsResponse) -> None:
    """What holds of every answer."""
    receipt, names = answer.receipt, [t.name for t in answer.tools if t.name]
    assert len(set(names)) == len(names), names
    assert receipt.retained + receipt.added + receipt.caller_owned == len(answer.tools)
    assert receipt.pinned == sum(t.pinned for t in answer.tools)
    assert answer.stable_prefix <= len(answer.tools)
    assert len(receipt.surface_digest) == 8
    own = [not t.tool_id for t in answer.tools]
    assert own == sorted(own, reverse=True), "caller-owned tools come first"


def chat(name: str, version: int = 0, description: str | None = None, **more: Any) -> bytes:
    """A tool as a caller offers it in OpenAI Chat's format; equal to `letter(name, version)` unless told."""
    function = {
        "name": name,
        "description": f"tool {name}" if description is None else description,
        "parameters": schema(version),
    }
    return json.dumps({"type": "function", "function": function, **more}).encode()


class Refusal:
    """What a refused call said."""

    fields: Sequence[str] = ()
    message = ""
    metadata: Mapping[str, str] = {}


@contextmanager
def refused(code: str, reason: str, field: str | None = None) -> Iterator[Refusal]:
    """The call inside ends with this code and reason (and field)."""
    said = Refusal()
    with pytest.raises(grpc.RpcError) as caught:
        yield said
    call: Any = caught.value
    status = rpc_status.from_call(call)
    assert status is not None, call
    info, violations = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(violations)
    said.message, said.metadata = status.message, dict(info.metadata)
    said.fields = [v.field for v in violations.field_violations]
    assert info.domain == "toolbelay", status
    assert (call.code().name, info.reason) == (code, reason), said.message
    if field is not None:
        assert said.fields == [field], said.message
