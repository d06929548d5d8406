"""Options of ranking that a route may set."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RankingOptions(BaseModel):
    """The `ranking:` block of a route."""

    model_config = ConfigDict(extra="forbid", frozen=True)
