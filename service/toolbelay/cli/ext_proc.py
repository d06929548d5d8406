"""`toolbelay ext-proc`."""

from __future__ import annotations

import os

import click

from toolbelay.settings import load


@click.command("ext-proc")
@click.option("--listen", metavar="HOST:PORT", help="Overrides TOOLBELAY_EXT_PROC_LISTEN.")
def ext_proc(*, listen: str | None) -> None:
    """Run Envoy's external processor on the application, without the gRPC API, until SIGTERM or Ctrl-C.

    `toolbelay serve --ext-proc HOST:PORT` runs both in one process. deploy/envoy/envoy.yaml is Envoy's side.

    \b
    Example:
      toolbelay ext-proc --listen 127.0.0.1:50052
    """  # noqa: D301 - click wants the character
    from toolbelay.ext_proc.run import run

    given = {name: value for name, value in os.environ.items() if name.startswith("TOOLBELAY_")}
    if listen is not None:
        given["TOOLBELAY_EXT_PROC_LISTEN"] = listen
    run(load(given))
