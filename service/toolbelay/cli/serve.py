"""`toolbelay serve`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace

import click

from toolbelay.cli import dev_state
from toolbelay.cli.exits import CommandError
from toolbelay.cli.invoked import invoked_as
from toolbelay.settings import Settings, load
from toolbelay.settings_check import parse_address, require_serving


@click.command()
@click.option("--dev", is_flag=True, help="Bring Valkey, SQLite, secret and signing key along, in .toolbelay/.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that share the listener.")
@click.option("--listen", metavar="HOST:PORT", help="Overrides TOOLBELAY_LISTEN.")
@click.option("--ext-proc", metavar="HOST:PORT", help="Also run Envoy's external processor there.")
def serve(*, dev: bool, workers: int | None, listen: str | None, ext_proc: str | None) -> None:
    """Run the service until SIGTERM or Ctrl-C; running calls finish first.

    \b
    Examples:
      toolbelay serve --dev                 everything included, loopback only
      toolbelay serve --dev --listen 127.0.0.1:6000
      toolbelay config check && toolbelay serve --workers 4
    """  # noqa: D301 - click wants the character
    given = {name: value for name, value in os.environ.items() if name.startswith("TOOLBELAY_")}
    options = {"LISTEN": listen, "WORKERS": workers, "EXT_PROC_LISTEN": ext_proc}
    given |= {f"TOOLBELAY_{name}": str(value) for name, value in options.items() if value is not None}
    if dev:
        _serve_dev(given)
    else:
        _serve(load(given))


def _serve(settings: Settings) -> None:
    if settings.workers > 1:
        from toolbelay.api.workers import Supervisor

        Supervisor(settings).run()
    else:
        from toolbelay.api.serve import run

        run(settings)


def _serve_dev(given: dict[str, str]) -> None:
    from toolbelay.cli.embedded_valkey import EmbeddedValkey

    load(given)  # faults of what was given, before anything is made
    state = dev_state.here()
    environment = dev_state.prepare(state, given)
    with ExitStack() as stack:
        stack.callback(os.close, dev_state.lock(state))
        if "TOOLBELAY_REDIS_URL" not in environment:
            path = dev_state.socket_path(state)
            valkey = stack.enter_context(EmbeddedValkey(path, state.folder / "valkey.log"))
            environment["TOOLBELAY_REDIS_URL"] = valkey.url
        environment["TOOLBELAY_LISTEN"] = _with_port(load(environment).listen)
        settings = load(environment)
        require_serving(settings)
        _require_loopback(settings)
        _migrate(settings)
        dev_state.publish(state, environment)
        _say_how_to_go_on(settings)
        _serve(settings)


def _with_port(listen: str) -> str:
    """Port 0 as a free port, so that client commands can be told which. Raises ListenError when a port is in use."""
    from toolbelay.api.workers import hold_port

    address = parse_address(listen)
    if address.path:
        return listen
    with hold_port(address) as held:
        return replace(address, port=held.getsockname()[1]).target


def _require_loopback(settings: Settings) -> None:
    for text in filter(None, (settings.listen, settings.ext_proc_listen, settings.metrics_listen)):
        if not parse_address(text).loopback:
            raise CommandError(f"--dev listens on loopback only, not on {text}; leave --dev out for anything else")


def _migrate(settings: Settings) -> None:
    from toolbelay.storage import migrate

    migrate.upgrade(settings.database_url.get_secret_value())


def _say_how_to_go_on(settings: Settings) -> None:
    address, toolbelay = parse_address(settings.listen), invoked_as()
    click.echo(
        f"Development service on {address.target} (catalog, policies and keys stay in {dev_state.FOLDER}/;\n"
        "sessions end with it). In another terminal, in this folder:\n"
        f"  {toolbelay} apply DIR      puts tools/*.jsonl, policies/*.cedar and routes.yaml into force\n"
        f'  {toolbelay} select "find the open invoices" --session s1 --role support\n'
        f"  {toolbelay} token mint --sub alice --role support\n"
        "Ctrl-C ends it.",
        err=True,
    )
