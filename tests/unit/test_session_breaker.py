"""The breaker: pure transitions, and the wrapper with a clock of the test's own."""

from __future__ import annotations

from toolbelay.sessions.breaker import Breaker, Circuit, Phase, Rules

RULES = Rules(failures_to_open=3, first_open=0.2, longest_open=2.0)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def failed(circuit: Circuit, times: int, now: float = 0.0) -> Circuit:
    for _ in range(times):
        circuit = circuit.failed(now, 1.0, RULES)
    return circuit


def test_it_opens_after_failures_in_a_row() -> None:
    assert failed(Circuit(), 2).phase is Phase.CLOSED
    assert failed(Circuit(), 3).phase is Phase.OPEN
    assert failed(failed(Circuit(), 2).succeeded(), 2).phase is Phase.CLOSED


def test_it_admits_one_probe_when_its_time_is_over() -> None:
    circuit = failed(Circuit(), 3, now=10.0)
    assert not circuit.admits(10.1)
    assert circuit.admits(10.3)
    probing = circuit.admitted()
    assert not probing.admits(99.0)
    assert probing.succeeded() == Circuit()


def test_each_failed_probe_doubles_the_time_up_to_the_longest() -> None:
    circuit, now, pauses = failed(Circuit(), 3), 0.0, []
    for _ in range(8):
        pauses.append(round(circuit.until - now, 6))
        now = circuit.until
        circuit = circuit.admitted().failed(now, 1.0, RULES)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]


def test_jitter_halves_the_time_at_most() -> None:
    calm = failed(Circuit(), 2).failed(0.0, 0.0, RULES)
    assert calm.until == 0.1


def test_late_failures_do_not_prolong_an_opening() -> None:
    circuit = failed(Circuit(), 3, now=0.0)
    assert circuit.failed(5.0, 1.0, RULES) == circuit


def test_an_inconclusive_probe_lets_the_next_call_probe() -> None:
    probing = failed(Circuit(), 3).admitted()
    assert probing.inconclusive().admits(0.0)
    assert Circuit().inconclusive() == Circuit()


def test_the_wrapper_tells_each_change_once() -> None:
    clock, seen = Clock(), list[Phase]()
    breaker = Breaker(rules=RULES, clock=clock, jitter=lambda: 1.0, on_change=seen.append)
    for _ in range(5):
        assert breaker.admit() or breaker.phase is Phase.OPEN
        breaker.failed()
    assert not breaker.admit()
    clock.now += 1
    assert breaker.admit()
    assert not breaker.admit()
    breaker.succeeded()
    breaker.succeeded()
    assert seen == [Phase.OPEN, Phase.HALF_OPEN, Phase.CLOSED]
