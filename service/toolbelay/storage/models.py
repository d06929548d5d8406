"""Tables. Every row belongs to a tenant; every key is compared as bytes on both databases."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# PostgreSQL's "C" collation and SQLite's default BINARY both compare bytes, as Python compares code points.
KeyText = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite numbers rows by itself only in a column of type INTEGER.
RowNumber = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """Names of constraints are fixed, so that a later migration can name them on both databases."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        }
    )


class TenantRow(Base):
    """A tenant. Its row is locked first by every change, so changes of a tenant come one after another."""

    __tablename__ = "tenants"

    id: Mapped[int] = mapped_column(RowNumber, Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(KeyText, unique=True)
    generation: Mapped[int] = mapped_column(BigInteger)
    session_epoch: Mapped[int] = mapped_column(BigInteger)
    # A difference to an older generation than this is not known; the reader then loads everything.
    difference_floor: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class ToolRow(Base):
    """A tool of the catalog, definition in the exact bytes given."""

    __tablename__ = "tools"
    __table_args__ = (Index("ix_tools_difference", "tenant_id", "changed_in", "tool_id"),)

    tenant_id: Mapped[int] = mapped_column(RowNumber, ForeignKey("tenants.id"), primary_key=True)
    tool_id: Mapped[str] = mapped_column(KeyText, primary_key=True)
    toolset: Mapped[str] = mapped_column(KeyText)
    name: Mapped[str] = mapped_column(KeyText)
    exposed_name: Mapped[str] = mapped_column(KeyText)
    description: Mapped[bytes] = mapped_column(LargeBinary)
    input_schema: Mapped[bytes] = mapped_column(LargeBinary)
    fingerprint: Mapped[bytes] = mapped_column(LargeBinary)
    tags: Mapped[str] = mapped_column(Text)  # JSON array, sorted
    requires: Mapped[str] = mapped_column(Text)  # JSON array, sorted
    read_only: Mapped[bool] = mapped_column(Boolean)
    destructive: Mapped[bool] = mapped_column(Boolean)
    idempotent: Mapped[bool] = mapped_column(Boolean)
    open_world: Mapped[bool] = mapped_column(Boolean)
    changed_in: Mapped[int] = mapped_column(BigInteger)  # generation


class RemovedToolRow(Base):
    """That a tool was removed, for loads by difference. The oldest are dropped beyond a bound."""

    __tablename__ = "removed_tools"
    __table_args__ = (Index("ix_removed_tools_tenant_id_removed_in", "tenant_id", "removed_in"),)

    tenant_id: Mapped[int] = mapped_column(RowNumber, ForeignKey("tenants.id"), primary_key=True)
    tool_id: Mapped[str] = mapped_column(KeyText, primary_key=True)
    removed_in: Mapped[int] = mapped_column(BigInteger)  # generation


class ExposedNameRow(Base):
    """A name reserved for a tool id for ever, also after the tool is removed."""

    __tablename__ = "exposed_names"
    __table_args__ = (UniqueConstraint("tenant_id", "tool_id"),)

    tenant_id: Mapped[int] = mapped_column(RowNumber, ForeignKey("tenants.id"), primary_key=True)
    exposed_name: Mapped[str] = mapped_column(KeyText, primary_key=True)
    tool_id: Mapped[str] = mapped_column(KeyText)


class PolicyRow(Base):
    """A Cedar file."""

    __tablename__ = "policies"

    tenant_id: Mapped[int] = mapped_column(RowNumber, ForeignKey("tenants.id"), primary_key=True)
    name: Mapped[str] = mapped_column(KeyText, primary_key=True)
    text: Mapped[str] = mapped_column(Text)


class RouteConfigRow(Base):
    """A route: the JSON object of the keys that were given."""

    __tablename__ = "routes"

    tenant_id: Mapped[int] = mapped_column(RowNumber, ForeignKey("tenants.id"), primary_key=True)
    name: Mapped[str] = mapped_column(KeyText, primary_key=True)
    json: Mapped[str] = mapped_column(Text)


class AuditRow(Base):
    """Who did what, when, and the generation after it."""

    __tablename__ = "audit_log"
    __table_args__ = (Index("ix_audit_log_tenant_id_id", "tenant_id", "id"),)

    id: Mapped[int] = mapped_column(RowNumber, Identity(), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(RowNumber, ForeignKey("tenants.id"))
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    who: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text)
    generation: Mapped[int] = mapped_column(BigInteger)
    summary: Mapped[str] = mapped_column(Text)  # JSON object, no definitions and no policy text
