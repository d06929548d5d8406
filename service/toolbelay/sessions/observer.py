"""What the store reports about itself, for metrics and logs. Every word is from a bounded set; none holds content."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from toolbelay.sessions.breaker import Phase


class StoreEvent(StrEnum):
    """Things that happen beside a call's result."""

    SCRIPT_RELOADED = "script_reloaded"  # the server had forgotten a script (NOSCRIPT)
    REDIRECTED = "redirected"  # a Cluster slot is somewhere else (MOVED, ASK, TRYAGAIN)
    RETRIED = "retried"  # a refused command was tried again on a new connection (READONLY)
    DAMAGED = "damaged"  # a session's value could not be read
    ADOPTED = "adopted"  # a session moved from the previous STATE_SECRET to the present one
    EVICTED = "evicted"  # a principal's quota cost an older session
    MERGE_REFUSED = "merge_refused"  # too many merged tools wait in a session; one was not kept
    DIGESTS_DROPPED = "digests_dropped"  # a state was so large that the last answer's digests were left out
    FOREIGN_GENERATION = "foreign_generation"  # something that is no number stood under a generation key


class StoreObserver(Protocol):
    """Called synchronously on the hot path: must be quick and must not raise."""

    def failed(self, cause: str) -> None:
        """A call ended in StateUnavailableError of this cause."""

    def happened(self, event: StoreEvent, count: int = 1) -> None:
        """Something worth counting."""

    def breaker_changed(self, phase: Phase) -> None:
        """The breaker of a server opened, let a probe through, or closed."""


class Unobserved:
    """Reports nothing."""

    def failed(self, cause: str) -> None: ...

    def happened(self, event: StoreEvent, count: int = 1) -> None: ...

    def breaker_changed(self, phase: Phase) -> None: ...
