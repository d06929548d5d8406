"""A breaker keeps a dead server from costing every call a timeout.

`Circuit` is the pure part: a frozen value and its transitions. `Breaker` holds one, with a clock and some jitter.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum


class Phase(Enum):
    CLOSED = "closed"  # calls pass
    OPEN = "open"  # calls fail at once
    HALF_OPEN = "half_open"  # one probe is under way, other calls fail at once


@dataclass(frozen=True, slots=True)
class Rules:
    """When to open and for how long (seconds). The time doubles with each probe that fails."""

    failures_to_open: int = 5
    first_open: float = 0.2
    longest_open: float = 2.0


@dataclass(frozen=True, slots=True)
class Circuit:
    """The breaker's state. `failures`: in a row while closed; `openings`: in a row without a success in between."""

    phase: Phase = Phase.CLOSED
    failures: int = 0
    openings: int = 0
    until: float = 0.0

    def admits(self, now: float) -> bool:
        return self.phase is Phase.CLOSED or (self.phase is Phase.OPEN and now >= self.until)

    def admitted(self) -> Circuit:
        """After `admits`: a call let through an open breaker is its probe."""
        return self if self.phase is Phase.CLOSED else replace(self, phase=Phase.HALF_OPEN)

    def succeeded(self) -> Circuit:
        return Circuit()

    def failed(self, now: float, jitter: float, rules: Rules) -> Circuit:
        """`jitter` is from 0 to 1. Late failures of calls that began before the opening change nothing."""
        if self.phase is Phase.OPEN:
            return self
        failures = self.failures + 1
        if self.phase is Phase.CLOSED and failures < rules.failures_to_open:
            return replace(self, failures=failures)
        longest = min(rules.longest_open, rules.first_open * 2**self.openings)
        pause = longest * (0.5 + jitter / 2)
        return Circuit(phase=Phase.OPEN, openings=min(self.openings + 1, 16), until=now + pause)

    def inconclusive(self) -> Circuit:
        """A call ended without telling anything of the server (cancelled, too short a deadline)."""
        return replace(self, phase=Phase.OPEN, until=0.0) if self.phase is Phase.HALF_OPEN else self


class Breaker:
    """One server's breaker. Every admitted call must end in `succeeded`, `failed` or `inconclusive`."""

    def __init__(
        self,
        *,
        rules: Rules | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        on_change: Callable[[Phase], None] = lambda _: None,
    ) -> None:
        self._rules = rules or Rules()
        self._clock = clock
        self._jitter = jitter
        self._on_change = on_change
        self._circuit = Circuit()

    @property
    def phase(self) -> Phase:
        return self._circuit.phase

    def admit(self) -> bool:
        """Whether a call may go to the server now."""
        circuit = self._circuit
        if circuit.phase is Phase.CLOSED:
            return True
        if not circuit.admits(self._clock()):
            return False
        self._become(circuit.admitted())
        return True

    def succeeded(self) -> None:
        if self._circuit.failures or self._circuit.phase is not Phase.CLOSED:
            self._become(self._circuit.succeeded())

    def failed(self) -> None:
        self._become(self._circuit.failed(self._clock(), self._jitter(), self._rules))

    def inconclusive(self) -> None:
        self._become(self._circuit.inconclusive())

    def _become(self, circuit: Circuit) -> None:
        changed = circuit.phase is not self._circuit.phase
        self._circuit = circuit
        if changed:
            self._on_change(circuit.phase)
