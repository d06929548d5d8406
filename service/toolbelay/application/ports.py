"""What the use cases need from outside, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from toolbelay.application.rank import Indexes
from toolbelay.authority.principal import Principal
from toolbelay.catalog.freshness import Freshness
from toolbelay.catalog.model import Tool
from toolbelay.catalog.surface import Digester
from toolbelay.sessions.port import SessionStore

Action = Literal["advertise", "call"]


class View(Protocol):
    """One caller's permissions in one context."""

    @property
    def memory(self) -> object:
        """Stands for everything that the permissions depend on but the tools."""

    def permits(self, tool: Tool, action: Action = "advertise") -> bool:
        """Whether policy permits the action on the tool; evaluates it when it is not known yet."""

    async def prepare(self, tools: Sequence[Tool], action: Action = "advertise") -> None:
        """Learn about many tools without holding the event loop."""

    def knows_catalog(self, tools: Mapping[str, Tool], action: Action = "advertise") -> bool:
        """Whether all of the catalog is known, so that `prepare_catalog` has nothing to learn."""

    async def prepare_catalog(self, tools: Mapping[str, Tool], action: Action = "advertise") -> None:
        """Learn about a snapshot's whole catalog."""


class Decisions(Protocol):
    """Policy decisions, remembered."""

    def view(self, policies: Any, principal: Principal, route: str, model: str, mode: str) -> View:
        """The caller's permissions in a context."""


class Events(Protocol):
    """What is counted and logged, content-free."""

    def turn(self, outcome: str, reason: str = "") -> None: ...
    def replayed(self) -> None: ...
    def turn_key_reused(self) -> None: ...
    def removed(self, kind: str, count: int) -> None: ...
    def ranking_fallback(self, wanted: str, used: str) -> None: ...
    def state_conflict(self) -> None: ...
    def state_retry(self) -> None: ...
    def state_damaged(self) -> None: ...
    def tool_call(self, verdict: str, reason: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside of the use cases. `turn_secret` keys the turn keys."""

    freshness: Freshness[Any]
    store: SessionStore
    decisions: Decisions
    indexes: Indexes
    events: Events
    digest: Digester
    turn_secret: bytes
