"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

address_option = click.option(
    "--address", metavar="HOST:PORT", help="The service; default TOOLBELAY_ADDRESS, else where it listens."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
tenant_option = click.option("--tenant", metavar="T", help='Tenant; default TOOLBELAY_DEFAULT_TENANT, else "default".')
route_option = click.option("--route", default="", metavar="NAME", help='Route; default: the route "default".')


def caller_options(function: F) -> F:
    """Who calls: a token file, TOOLBELAY_TOKEN, or a token minted with the development key."""
    for option in (
        click.option("--token-file", type=click.Path(exists=True, dir_okay=False), help="File with a bearer token."),
        click.option("--sub", metavar="S", help='With a development key: the subject; default "dev".'),
        click.option("--role", "roles", multiple=True, metavar="R", help="With a development key: a role; repeatable."),
        click.option("--tenant", metavar="T", help="With a development key: the tenant."),
        address_option,
    ):
        function = option(function)
    return function
