"""What the session store reports, as metrics and log lines."""

from __future__ import annotations

from typing import Final

import structlog

from toolbelay.sessions.breaker import Phase
from toolbelay.sessions.observer import StoreEvent
from toolbelay.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)

# What somebody should look at; the others tell of the day's business.
_WARNED: Final = frozenset(
    {StoreEvent.DAMAGED, StoreEvent.MERGE_REFUSED, StoreEvent.DIGESTS_DROPPED, StoreEvent.FOREIGN_GENERATION}
)


class StoreTelemetry:
    """`sessions.observer.StoreObserver` on metrics and logs."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def failed(self, cause: str) -> None:
        """Count a failure. No line each: while Redis is down there are thousands; the breaker's changes tell."""
        self._metrics.redis_failure(cause)

    def happened(self, event: StoreEvent, count: int = 1) -> None:
        """Count and log an event."""
        self._metrics.store_event(event.value, count)
        say = _log.warning if event in _WARNED else _log.info
        say("state_event", kind=event.value, count=count)

    def breaker_changed(self, phase: Phase) -> None:
        """Count and log a change of the breaker."""
        self._metrics.breaker_changed(phase.value)
        _log.warning("redis_breaker", phase=phase.value)
