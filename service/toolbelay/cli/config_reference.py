"""The text of `docs/configuration.md`: written from the settings themselves, so that it cannot be wrong."""

from __future__ import annotations

from toolbelay.settings import client_table, settings_table

_TEXT = """\
# Configuration

This page is generated: `toolbelay config reference > docs/configuration.md`. A test compares the two.

Everything is an environment variable. A variable that begins with `TOOLBELAY_` and is not in these tables is
refused at start, with the nearest name. Lists are JSON (a single value may stand alone). Secrets are never printed
or logged. `toolbelay config check` looks at all of them and connects to what they name, without serving.

A service needs at least `TOOLBELAY_DATABASE_URL`, `TOOLBELAY_REDIS_URL`, `TOOLBELAY_STATE_SECRET`,
`TOOLBELAY_JWT_ISSUER`, `TOOLBELAY_JWT_AUDIENCE` and exactly one of the three key sources;
`toolbelay serve --dev` makes all of these by itself, in `.toolbelay/`.

## The service

{settings}
## Client commands

{client}
Without any setting that names a deployment (`DATABASE_URL`, `REDIS_URL`, `STATE_SECRET`, `JWT_…`), commands run in a
folder where `toolbelay serve --dev` has been use its `.toolbelay/`.
"""


def reference() -> str:
    """The whole page, Markdown."""
    return _TEXT.format(settings=settings_table(), client=client_table())
