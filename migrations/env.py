"""Alembic's entry point. `toolbelay.storage.migrate` hands in a connection that holds the migration lock.

Nothing is read from the environment: the same database migrates the same way whatever the settings are.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy.engine import Connection

from toolbelay.storage.models import Base


def run() -> None:
    connection = context.config.attributes.get("connection")
    if not isinstance(connection, Connection):
        raise SystemExit("migrations run through `toolbelay db …`, which takes the lock that several replicas need")
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",  # SQLite alters a table by rebuilding it
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
