"""${message}"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from toolbelay.storage.guard import refuse_to_destroy
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    refuse_to_destroy()  # name the tables whose rows the lines below would lose
    ${downgrades if downgrades else "pass"}
