"""`toolbelay select`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from toolbelay.cli.options import caller_options, json_option, route_option

if TYPE_CHECKING:
    from toolbelay.v1 import selection_pb2

FORMATS: Final = {
    "openai-chat": "WIRE_FORMAT_OPENAI_CHAT",
    "openai-responses": "WIRE_FORMAT_OPENAI_RESPONSES",
    "anthropic": "WIRE_FORMAT_ANTHROPIC_MESSAGES",
    "mcp": "WIRE_FORMAT_MCP",
}

_NO_TOOLS: Final = (
    "No tools. What no policy permits is denied: give a role with --role, or ask"
    " `toolbelay explain TOOLSET/NAME --sub S --role R` why."
)


@click.command()
@click.argument("text", default="")
@click.option("--session", "session_id", default="", metavar="ID", help="Session; without one the turn is stateless.")
@click.option("--turn", "turn_id", default="", metavar="ID", help="Idempotency key of the turn.")
@click.option("--called", multiple=True, metavar="NAME", help="A tool that the assistant called; repeatable.")
@click.option("--candidate", "candidates", multiple=True, metavar="ID=SCORE", help='For strategy "caller"; repeatable.')
@route_option
@click.option("--model", default="", help="Model name, for policies that look at it.")
@click.option("--format", "wire_format", type=click.Choice(list(FORMATS)), default="openai-chat", show_default=True)
@click.option("--max-tools", default=0, type=click.IntRange(0), help="Most tools that the request may carry.")
@json_option
@caller_options
def select(
    *,
    text: str,
    session_id: str,
    turn_id: str,
    called: tuple[str, ...],
    candidates: tuple[str, ...],
    route: str,
    model: str,
    wire_format: str,
    max_tools: int,
    as_json: bool,
    **caller: Any,
) -> None:
    """Ask the service which tools to put into the request of one turn; TEXT is the user's message.

    \b
    Examples:
      toolbelay select "find the open invoices" --session s1
      toolbelay select "and pay the first" --session s1 --called list_invoices
      toolbelay select "hi" --json --format anthropic | jq .tools
    """  # noqa: D301 - click wants the character
    from toolbelay.cli.console import print_json
    from toolbelay.cli.rpc import Caller, call, selection, service
    from toolbelay.v1 import selection_pb2

    request = selection_pb2.SelectToolsRequest(
        route=route,
        session_id=session_id,
        turn_id=turn_id,
        query=text,
        called_tools=called,
        candidates=[_candidate(item) for item in candidates],
        target=selection_pb2.Target(format=FORMATS[wire_format], model=model, max_tools=max_tools),
    )
    with service(Caller(**caller)) as (channel, metadata):
        answer: selection_pb2.SelectToolsResponse = call(selection(channel).SelectTools, request, metadata)
    if as_json:
        print_json(answer_as_json(answer))
    else:
        show(answer)


def answer_as_json(answer: selection_pb2.SelectToolsResponse) -> dict[str, Any]:
    """The answer for programs: enum names, definitions as JSON values, digests as hex."""
    from google.protobuf.json_format import MessageToDict

    whole = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    whole["tools"] = [
        {
            "tool_id": tool.tool_id,
            "name": tool.name,
            "fingerprint": tool.fingerprint,
            "origin": _origin(tool.origin),
            "pinned": tool.pinned,
            "score": tool.score,
            "definition": json.loads(tool.definition) if tool.definition else None,
        }
        for tool in answer.tools
    ]
    receipt = whole.setdefault("receipt", {})
    receipt["surface_digest"] = answer.receipt.surface_digest.hex()
    for name, value in receipt.items():
        if isinstance(value, str) and value.isdigit() and name != "surface_digest":
            receipt[name] = int(value)  # JSON has no trouble with these; protobuf writes 64-bit numbers as text
    estimate = receipt.get("estimate", {})
    receipt["estimate"] = {name: int(value) for name, value in estimate.items()}
    for name, prefix in (("outcome", "OUTCOME_"), ("reason", "REASON_")):
        receipt[name] = str(receipt.get(name, "")).removeprefix(prefix)
    return whole


def show(answer: selection_pb2.SelectToolsResponse) -> None:
    """The answer for a person."""
    from toolbelay.cli.console import output, plain_table
    from toolbelay.v1 import selection_pb2

    table = plain_table(">#", "tool", "name", "origin", "pin", ">score")
    for number, tool in enumerate(answer.tools, start=1):
        pin = "pinned" if tool.pinned else ""
        score = f"{tool.score:.3f}" if tool.score else ""
        table.add_row(str(number), tool.tool_id or "(caller's)", tool.name, _origin(tool.origin), pin, score)
    console = output()
    console.print(table)
    console.print(receipt_line(answer), style="bold", markup=False)
    if not answer.tools and answer.receipt.reason != selection_pb2.REASON_TARGET_WITHOUT_TOOLS:
        click.echo(_NO_TOOLS, err=True)


def receipt_line(answer: selection_pb2.SelectToolsResponse) -> str:
    """The receipt in one line."""
    from toolbelay.v1 import selection_pb2

    receipt = answer.receipt
    outcome = selection_pb2.Outcome.Name(receipt.outcome).removeprefix("OUTCOME_")
    reason = selection_pb2.Reason.Name(receipt.reason).removeprefix("REASON_")
    parts = [outcome if reason == "UNSPECIFIED" else f"{outcome} ({reason})"]
    parts += [f"{n} {word}" for n, word in ((receipt.retained, "retained"), (receipt.added, "added")) if n or word]
    for count, word in (
        (receipt.pinned, "pinned"),
        (receipt.evicted, "evicted"),
        (receipt.removed_unauthorized, "no longer permitted"),
        (receipt.removed_unavailable, "gone from the catalog"),
        (receipt.removed_changed, "changed"),
        (receipt.hidden, "hidden"),
        (receipt.called_ignored, "called names ignored"),
        (receipt.candidates_ignored, "candidates ignored"),
    ):
        if count:
            parts.append(f"{count} {word}")
    parts.append(f"stable prefix {answer.stable_prefix}")
    if receipt.turn:
        parts.append(f"turn {receipt.turn}" + (" (replayed)" if receipt.replayed else ""))
    parts.append(f"generation {receipt.generation}")
    estimate = receipt.estimate
    parts.append(f"~{estimate.advertised:,} tokens of {estimate.whole_catalog:,}")
    return ", ".join(parts)


def _origin(origin: int) -> str:
    from toolbelay.v1 import selection_pb2

    return str(selection_pb2.Origin.Name(origin)).removeprefix("ORIGIN_")


def _candidate(text: str) -> selection_pb2.RankedCandidate:
    from toolbelay.v1 import selection_pb2

    tool_id, equals, score = text.rpartition("=")
    try:
        return selection_pb2.RankedCandidate(tool_id=tool_id if equals else text, score=float(score) if equals else 1.0)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not toolset/name=score", param_hint="--candidate") from None
