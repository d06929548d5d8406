"""The messages of a turn, in the domain's own terms."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from toolbelay.catalog.formats import WireFormat
from toolbelay.catalog.surface import Rendered
from toolbelay.planner.model import Counts, Outcome, Reason, Scored


class ChoiceMode(StrEnum):
    """Modes of tool_choice; names as in the API."""

    AUTO = "AUTO"
    NONE = "NONE"
    REQUIRED = "REQUIRED"
    NAMED = "NAMED"
    ALLOWED = "ALLOWED"


class ToolChoice(Struct, frozen=True, gc=False):
    """Which tools the model may or must call. `names`: exposed names; one with NAMED."""

    mode: ChoiceMode = ChoiceMode.AUTO
    names: tuple[str, ...] = ()
    required: bool = False


AUTO = ToolChoice()


class Target(Struct, frozen=True, gc=False):
    """What the model request can carry. `max_tools` 0 = the format's own limit."""

    format: WireFormat = WireFormat.OPENAI_CHAT
    model: str = ""
    capabilities: frozenset[str] = frozenset()
    max_tools: int = 0
    supports_tools: bool = True


class SelectRequest(Struct, frozen=True, gc=False):
    """One turn, bounds already checked."""

    route: str = ""
    session_id: str = ""
    turn_id: str = ""
    query: str = ""
    called_tools: tuple[str, ...] = ()
    offered_tools: tuple[bytes, ...] = ()
    candidates: tuple[Scored, ...] = ()
    target: Target = Target()
    choice: ToolChoice = AUTO
    min_generation: int = 0


CALLER_OWNED = "CALLER_OWNED"


class SelectedItem(Struct, frozen=True, gc=False):
    """One item of the answer. `shown`: what turns share of it; `origin`: a name of the API's enum."""

    shown: Rendered
    origin: str
    pinned: bool = False
    score: float = 0.0

    @property
    def tool_id(self) -> str:
        return self.shown.tool_id

    @property
    def name(self) -> str:
        return self.shown.name

    @property
    def fingerprint(self) -> str:
        return self.shown.fingerprint

    @property
    def definition(self) -> bytes:
        return self.shown.definition

    @property
    def digest(self) -> bytes:
        return self.shown.digest


class SelectAnswer(Struct, frozen=True, gc=False):
    """What a turn answers."""

    items: tuple[SelectedItem, ...]
    choice: ToolChoice
    outcome: Outcome
    reason: Reason | None
    counts: Counts
    turn: int
    revision: int
    generation: int
    strategy: str
    advertised_tokens: int
    whole_catalog_tokens: int
    replayed: bool
    caller_owned: int
    called_ignored: int
    candidates_ignored: int
    offered_dropped: int
    surface_digest: bytes
    stable_prefix: int
