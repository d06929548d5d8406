"""Tenants, catalog, policies, routes and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from toolbelay.storage.guard import refuse_to_destroy

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", _NUMBER, sa.Identity(), nullable=False),
        sa.Column("name", _KEY, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("session_epoch", sa.BigInteger(), nullable=False),
        sa.Column("difference_floor", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    op.create_table(
        "tools",
        sa.Column("tenant_id", _NUMBER, nullable=False),
        sa.Column("tool_id", _KEY, nullable=False),
        sa.Column("toolset", _KEY, nullable=False),
        sa.Column("name", _KEY, nullable=False),
        sa.Column("exposed_name", _KEY, nullable=False),
        sa.Column("description", sa.LargeBinary(), nullable=False),
        sa.Column("input_schema", sa.LargeBinary(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("requires", sa.Text(), nullable=False),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("destructive", sa.Boolean(), nullable=False),
        sa.Column("idempotent", sa.Boolean(), nullable=False),
        sa.Column("open_world", sa.Boolean(), nullable=False),
        sa.Column("changed_in", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_tools_tenants"),
        sa.PrimaryKeyConstraint("tenant_id", "tool_id", name="pk_tools"),
    )
    op.create_index("ix_tools_difference", "tools", ["tenant_id", "changed_in", "tool_id"])
    op.create_table(
        "removed_tools",
        sa.Column("tenant_id", _NUMBER, nullable=False),
        sa.Column("tool_id", _KEY, nullable=False),
        sa.Column("removed_in", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_removed_tools_tenants"),
        sa.PrimaryKeyConstraint("tenant_id", "tool_id", name="pk_removed_tools"),
    )
    op.create_index("ix_removed_tools_tenant_id_removed_in", "removed_tools", ["tenant_id", "removed_in"])
    op.create_table(
        "exposed_names",
        sa.Column("tenant_id", _NUMBER, nullable=False),
        sa.Column("exposed_name", _KEY, nullable=False),
        sa.Column("tool_id", _KEY, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_exposed_names_tenants"),
        sa.PrimaryKeyConstraint("tenant_id", "exposed_name", name="pk_exposed_names"),
        sa.UniqueConstraint("tenant_id", "tool_id", name="uq_exposed_names_tenant_id_tool_id"),
    )
    op.create_table(
        "policies",
        sa.Column("tenant_id", _NUMBER, nullable=False),
        sa.Column("name", _KEY, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_policies_tenants"),
        sa.PrimaryKeyConstraint("tenant_id", "name", name="pk_policies"),
    )
    op.create_table(
        "routes",
        sa.Column("tenant_id", _NUMBER, nullable=False),
        sa.Column("name", _KEY, nullable=False),
        sa.Column("json", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_routes_tenants"),
        sa.PrimaryKeyConstraint("tenant_id", "name", name="pk_routes"),
    )
    op.create_table(
        "audit_log",
        sa.Column("id", _NUMBER, sa.Identity(), nullable=False),
        sa.Column("tenant_id", _NUMBER, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_audit_log_tenants"),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_tenant_id_id", "audit_log", ["tenant_id", "id"])


def downgrade() -> None:
    refuse_to_destroy("tenants", "audit_log", "routes", "policies", "exposed_names", "removed_tools", "tools")
    for table in ("audit_log", "routes", "policies", "exposed_names", "removed_tools", "tools", "tenants"):
        op.drop_table(table)
