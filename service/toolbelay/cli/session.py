"""`toolbelay session show / end`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from toolbelay.cli.options import caller_options, json_option, route_option

if TYPE_CHECKING:
    from toolbelay.v1 import selection_pb2


@click.group()
def session() -> None:
    """Show or end one's own session."""


@session.command()
@click.argument("session_id", metavar="ID")
@route_option
@json_option
@caller_options
def show(*, session_id: str, route: str, as_json: bool, **caller: Any) -> None:
    """Show the stored tools of session ID, in order. Renews nothing."""
    from toolbelay.cli.rpc import Caller, call, selection, service
    from toolbelay.v1 import selection_pb2

    request = selection_pb2.GetSessionRequest(route=route, session_id=session_id)
    with service(Caller(**caller)) as (channel, metadata):
        answer: selection_pb2.GetSessionResponse = call(selection(channel).GetSession, request, metadata)
    if as_json:
        _print_json(answer)
    elif not answer.turn:
        click.echo(f"no session {session_id!r} of this caller on this route")
    else:
        _print_table(answer)


@session.command()
@click.argument("session_id", metavar="ID")
@route_option
@caller_options
def end(*, session_id: str, route: str, **caller: Any) -> None:
    """Forget session ID. Ending it again does no harm."""
    from toolbelay.cli.rpc import Caller, call, selection, service
    from toolbelay.v1 import selection_pb2

    request = selection_pb2.EndSessionRequest(route=route, session_id=session_id)
    with service(Caller(**caller)) as (channel, metadata):
        call(selection(channel).EndSession, request, metadata)
    click.echo("ended")


def _print_table(answer: selection_pb2.GetSessionResponse) -> None:
    from toolbelay.cli.console import output, plain_table

    table = plain_table(">#", "tool", "pin", ">first seen", ">last called")
    for number, tool in enumerate(answer.tools, start=1):
        called = f"turn {tool.last_called_turn}" if tool.last_called_turn else ""
        table.add_row(
            str(number), tool.tool_id, "pinned" if tool.pinned else "", f"turn {tool.first_seen_turn}", called
        )
    console = output()
    console.print(table)
    expires = answer.expires_at.ToDatetime().isoformat(timespec="seconds")
    console.print(f"turn {answer.turn}, revision {answer.revision}, expires {expires}Z", style="bold")


def _print_json(answer: selection_pb2.GetSessionResponse) -> None:
    from toolbelay.cli.console import print_json

    times = {
        name: getattr(answer, name).ToJsonString() if answer.HasField(name) else None
        for name in ("created_at", "last_seen_at", "expires_at")
    }
    tools = [
        {
            "tool_id": tool.tool_id,
            "pinned": tool.pinned,
            "first_seen_turn": tool.first_seen_turn,
            "last_called_turn": tool.last_called_turn,
        }
        for tool in answer.tools
    ]
    print_json({"turn": answer.turn, "revision": answer.revision, "tools": tools, **times})
