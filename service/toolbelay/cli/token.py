"""`toolbelay token mint`."""

from __future__ import annotations

import click

from toolbelay.cli.options import json_option, tenant_option


@click.group()
def token() -> None:
    """Mint a development token."""


@token.command()
@click.option("--sub", required=True, metavar="S", help="Subject: who the caller is.")
@tenant_option
@click.option("--role", "roles", multiple=True, metavar="R", help="Role; repeatable.")
@click.option("--scope", "scopes", multiple=True, metavar="X", help="Scope; repeatable.")
@click.option("--session", metavar="ID", help="Bind the token to this session.")
@click.option("--ttl", default=3600, show_default=True, type=click.IntRange(1, 2_592_000), help="Seconds it is valid.")
@click.option("--key", "key_file", type=click.Path(exists=True, dir_okay=False), help="Ed25519 key (PEM) to sign with.")
@json_option
def mint(
    *,
    sub: str,
    tenant: str | None,
    roles: tuple[str, ...],
    scopes: tuple[str, ...],
    session: str | None,
    ttl: int,
    key_file: str | None,
    as_json: bool,
) -> None:
    """Print a token signed with the development key, or with TOOLBELAY_JWT_HS256_SECRET.

    \b
    Examples:
      toolbelay token mint --sub alice --role support
      export TOOLBELAY_TOKEN=$(toolbelay token mint --sub ops --role toolbelay.admin --ttl 600)
    """  # noqa: D301 - click wants the character
    from toolbelay.cli import dev_state
    from toolbelay.cli.console import print_json
    from toolbelay.cli.minted import mint_token, tenant_of

    settings = dev_state.settings_of()
    minted = mint_token(
        settings,
        subject=sub,
        tenant=tenant,
        roles=roles,
        scopes=scopes,
        session=session,
        ttl_seconds=ttl,
        key_file=key_file,
    )
    if as_json:
        print_json({"token": minted, "tenant": tenant_of(settings, tenant), "ttl_seconds": ttl})
    else:
        click.echo(minted)
