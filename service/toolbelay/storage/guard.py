"""What a migration calls before it would destroy rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

FORCE = "force"


class MigrationError(Exception):
    """A migration that was not done. Nothing was changed; the message says why and what to do."""


def refuse_to_destroy(*tables: str) -> None:
    """Raise MigrationError when one of `tables` holds rows, unless the operator forces it."""
    if context.config.attributes.get(FORCE):
        return
    connection = op.get_bind()
    filled = []
    for table in tables:
        rows = connection.scalar(sa.select(sa.func.count()).select_from(sa.table(table)))
        if rows:
            filled.append(f"{table} ({rows} rows)")
    if filled:
        raise MigrationError(f"this downgrade would destroy {', '.join(filled)}; use --force if that is meant")
