"""`toolbelay explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from toolbelay.cli.options import address_option, json_option, route_option

if TYPE_CHECKING:
    from toolbelay.v1 import admin_pb2


@click.command()
@click.argument("tool_id", metavar="TOOLSET/NAME")
@click.option("--sub", required=True, metavar="S", help="Whose access to explain: the token's subject.")
@click.option("--role", "roles", multiple=True, metavar="R", help="Role of that subject; repeatable.")
@click.option("--scope", "scopes", multiple=True, metavar="X", help="Scope of that subject; repeatable.")
@click.option("--issuer", default="", help="Token issuer; default: the service's own.")
@route_option
@click.option("--model", default="", help="Model of the policy context.")
@click.option("--tenant", metavar="T", help="With a development key: the tenant.")
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False), help="File with an admin's bearer token.")
@address_option
@json_option
def explain(
    *,
    tool_id: str,
    sub: str,
    roles: tuple[str, ...],
    scopes: tuple[str, ...],
    issuer: str,
    route: str,
    model: str,
    tenant: str | None,
    token_file: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Say whether a subject may be advertised, and may call, a tool, and which policies decide.

    Needs a token with the role toolbelay.admin (a development key mints one by itself). Audited.

    \b
    Example:
      toolbelay explain github/delete_repository --sub alice --role support
    """  # noqa: D301 - click wants the character
    from toolbelay.cli.rpc import Caller, admin, call, service
    from toolbelay.v1 import admin_pb2

    request = admin_pb2.ExplainDecisionRequest(
        subject=sub, issuer=issuer, roles=roles, scopes=scopes, tool_id=tool_id, route=route, model=model
    )
    caller = Caller(address=address, token_file=token_file, tenant=tenant, admin=True)
    with service(caller) as (channel, metadata):
        answer: admin_pb2.ExplainDecisionResponse = call(admin(channel).ExplainDecision, request, metadata)
    if as_json:
        _print_json(answer)
    else:
        _print_table(tool_id, answer)


def _print_table(tool_id: str, answer: admin_pb2.ExplainDecisionResponse) -> None:
    from toolbelay.cli.console import output, plain_table

    console = output()
    if not answer.in_catalog:
        console.print(f"{tool_id} is not in the catalog (generation {answer.generation})", markup=False)
        return
    table = plain_table("action", "decision", "policies", "errors")
    for action, decision in (("advertise", answer.advertise), ("call", answer.call)):
        shown = "[green]permitted[/]" if decision.allowed else "[red]denied[/]"
        why = ", ".join(decision.policies) or ("" if decision.allowed else "no policy permits it")
        table.add_row(action, shown, why, "; ".join(decision.errors))
    console.print(table)
    console.print(f"generation {answer.generation}", style="bold")


def _print_json(answer: admin_pb2.ExplainDecisionResponse) -> None:
    from toolbelay.cli.console import print_json

    def shown(decision: admin_pb2.ActionDecision) -> dict[str, Any]:
        return {"allowed": decision.allowed, "policies": [*decision.policies], "errors": [*decision.errors]}

    print_json(
        {
            "in_catalog": answer.in_catalog,
            "advertise": shown(answer.advertise),
            "call": shown(answer.call),
            "generation": answer.generation,
        }
    )
