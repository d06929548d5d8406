"""What the use cases report, as metrics and log lines. No line holds content: kinds, reasons and counts."""

from __future__ import annotations

import structlog

from toolbelay.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
# Why a turn was answered with less than its session or its ranker could give.
_DEGRADED = frozenset({"STATE_UNAVAILABLE", "STATE_CONFLICT", "STATE_DAMAGED", "RANKER_FALLBACK"})


class TurnTelemetry:
    """`application.ports.Events` on metrics and logs."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def turn(self, outcome: str, reason: str = "") -> None:
        """A turn was answered."""
        self._metrics.turn(outcome, reason)
        if reason in _DEGRADED:
            _log.info("turn_degraded", outcome=outcome, reason=reason)

    def replayed(self) -> None:
        """A turn had been answered before."""
        self._metrics.replayed()
        _log.info("turn_replayed")

    def turn_key_reused(self) -> None:
        """A turn_id came with other content."""
        self._metrics.turn_key_reused()
        _log.info("turn_key_reused")

    def removed(self, kind: str, count: int) -> None:
        """Stored tools left an answer or the state."""
        self._metrics.removed(kind, count)
        _log.info("tools_removed", kind=kind, count=count)

    def ranking_fallback(self, wanted: str, used: str) -> None:
        """A strategy failed and another one ranked."""
        self._metrics.ranking_fallback(wanted, used)
        _log.warning("ranking_fallback", wanted=wanted, used=used)

    def state_conflict(self) -> None:
        """A save lost to another turn."""
        self._metrics.state_conflict()
        _log.info("state_conflict")

    def state_retry(self) -> None:
        """A turn was planned again."""
        self._metrics.state_retry()
        _log.info("state_retry")

    def state_damaged(self) -> None:
        """A session's value could not be read; it starts fresh."""
        self._metrics.state_damaged()

    def tool_call(self, verdict: str, reason: str = "") -> None:
        """A call of the model was decided."""
        self._metrics.tool_call(verdict, reason)
        if reason:
            _log.info("tool_call_denied", reason=reason)
