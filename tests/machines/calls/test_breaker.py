"""A circuit breaker: calls to a failing service are stopped, probed and resumed."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import pytest

from aflow.errors import AflowError, FlowDefinitionError
from aflow.machines.calls.breaker import Breaker, BreakerState, CircuitBreaker, CircuitOpen

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def breaker(**more: Any) -> Breaker:
    """Opens at half of four calls or more, for 5 seconds."""
    arguments: dict[str, Any] = {"calls": 4, **more}
    return Breaker(CircuitBreaker(**arguments))


def call(circuit: Breaker, at: float, failed: bool | None, latency: float = 0.0) -> None:
    """A call that begins at ``at``."""
    assert circuit.wait(at) == 0
    circuit.begun()
    circuit.ended(at + latency, latency, failed)


def opened(at: float = 0.0, **more: Any) -> Breaker:
    circuit = breaker(**more)
    for _ in range(4):
        call(circuit, at, True)
    return circuit


def test_half_of_the_calls_failing_opens_it_for_the_pause() -> None:
    circuit = breaker()
    for failed in (False, True, False):
        call(circuit, 1.0, failed)
    assert circuit.state is CLOSED

    call(circuit, 1.0, True)

    assert circuit.state is OPEN
    assert circuit.wait(1.0) == 5
    assert circuit.wait(5.5) == 0.5


def test_a_few_failures_of_a_step_with_few_calls_open_nothing() -> None:
    circuit = breaker()
    for _ in range(3):
        call(circuit, 0.0, True)

    assert circuit.state is CLOSED


def test_failures_of_long_ago_are_forgotten() -> None:
    circuit = breaker()
    for at in range(0, 100, 11):
        call(circuit, float(at), True)

    assert circuit.state is CLOSED


def test_failures_in_both_halves_of_the_window_count() -> None:
    circuit = breaker()
    for at in (0.0, 0.1, 5.5, 5.6):
        call(circuit, at, True)

    assert circuit.state is OPEN


def test_calls_that_say_nothing_about_the_service_do_not_count() -> None:
    circuit = breaker()
    for _ in range(10):
        call(circuit, 0.0, None)
    for _ in range(3):
        call(circuit, 0.0, True)

    assert circuit.state is CLOSED


def test_after_the_pause_as_many_probes_as_settings_say_are_made_at_once() -> None:
    circuit = opened(probes=2)
    for _ in range(2):
        assert circuit.wait(5.0) == 0
        circuit.begun()

    assert circuit.state is HALF_OPEN
    assert circuit.wait(5.0) == inf


def test_it_closes_when_all_probes_have_succeeded() -> None:
    circuit = opened(probes=2)
    call(circuit, 5.0, False)
    assert circuit.state is HALF_OPEN
    call(circuit, 5.1, False)

    assert circuit.state is CLOSED
    assert circuit.wait(5.1) == 0


def test_one_probe_that_fails_opens_it_for_twice_as_long() -> None:
    circuit = opened()
    call(circuit, 5.0, True)

    assert circuit.state is OPEN
    assert circuit.wait(5.0) == 10


def test_pauses_grow_no_longer_than_the_longest() -> None:
    circuit = opened(max_pause=timedelta(seconds=12))
    call(circuit, 5.0, True)
    call(circuit, 15.0, True)

    assert circuit.wait(15.0) == 12


def test_pauses_stay_the_same_if_they_are_not_to_grow() -> None:
    circuit = opened(max_pause=None)
    call(circuit, 5.0, True)

    assert circuit.wait(5.0) == 5


def test_closing_makes_the_pause_short_again() -> None:
    circuit = opened()
    call(circuit, 5.0, True)
    call(circuit, 15.0, False)
    for _ in range(4):
        call(circuit, 20.0, True)

    assert circuit.wait(20.0) == 5


def test_a_call_from_before_it_opened_does_not_close_it() -> None:
    circuit = opened(at=1.0)
    circuit.ended(2.0, 1.5, failed=False)
    assert circuit.state is OPEN

    assert circuit.wait(6.0) == 0
    circuit.ended(6.0, 5.5, failed=False)

    assert circuit.state is HALF_OPEN


def test_a_call_from_before_it_opened_does_not_fail_the_probe() -> None:
    circuit = opened(at=1.0)
    circuit.wait(6.0)
    circuit.begun()
    circuit.ended(6.5, 6.0, failed=True)
    circuit.ended(7.0, 1.0, failed=False)

    assert circuit.state is CLOSED


def test_calls_from_before_it_closed_do_not_open_it() -> None:
    circuit = opened(at=1.0)
    call(circuit, 6.0, False)
    for _ in range(10):
        circuit.ended(7.0, 6.5, failed=True)

    assert circuit.state is CLOSED


def test_a_probe_that_is_given_up_makes_room_for_another() -> None:
    circuit = opened()
    call(circuit, 5.0, None)

    assert circuit.state is HALF_OPEN
    assert circuit.wait(5.0) == 0


def test_the_error_of_a_circuit_that_fails_fast_has_the_time_of_the_next_probe() -> None:
    circuit = opened(fail_fast=True)

    with pytest.raises(CircuitOpen, match=r"is open.* tried again in 3 s") as raised:
        circuit.wait(2.0)

    assert raised.value.retry_after == 3
    assert isinstance(raised.value, AflowError)


def test_a_circuit_that_fails_fast_does_so_while_it_is_tried() -> None:
    circuit = opened(fail_fast=True)
    assert circuit.wait(5.0) == 0
    circuit.begun()

    with pytest.raises(CircuitOpen, match="half-open"):
        circuit.wait(5.0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"failures": 0}, "CircuitBreaker.failures"),
        ({"failures": 5}, "CircuitBreaker.failures"),
        ({"failures": float("nan")}, "CircuitBreaker.failures"),
        ({"calls": 0}, "CircuitBreaker.calls"),
        ({"probes": 1.0}, "CircuitBreaker.probes"),
        ({"window": timedelta(0)}, "CircuitBreaker.window"),
        ({"pause": 5}, "CircuitBreaker.pause"),
        ({"pause": timedelta(minutes=2)}, "CircuitBreaker.max_pause"),
        ({"on": "all"}, "CircuitBreaker.on"),
        ({"fail_fast": 1}, "CircuitBreaker.fail_fast"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(FlowDefinitionError, match=named):
        CircuitBreaker(**arguments)
