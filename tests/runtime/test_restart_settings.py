"""Restart strategies as users choose them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.restart import GiveUp, Restart
from aflow.runtime.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart, Restarts

SECOND = timedelta(seconds=1)


def test_no_restart_gives_up_at_once() -> None:
    assert NoRestart().machine().on_failure(0, 0.5) == GiveUp("no restart strategy is set")


def test_a_fixed_delay_waits_a_second_unless_told_otherwise() -> None:
    assert FixedDelay(2).machine().on_failure(0, 0.5) == Restart(1000, 1)
    assert FixedDelay(2, timedelta(0)).machine().on_failure(0, 0.5) == Restart(0, 1)


def test_a_fixed_delay_hands_on_its_attempts() -> None:
    budget = FixedDelay(1).machine()
    budget.on_failure(0, 0.5)

    assert isinstance(budget.on_failure(0, 0.5), GiveUp)


def test_an_exponential_delay_begins_at_a_second_and_grows_by_half_unless_told_otherwise() -> None:
    budget = ExponentialDelay().machine()

    assert budget.on_failure(0, 0.5) == Restart(1000, 1)
    assert budget.on_failure(1001, 0.5) == Restart(1500, 2)


def test_an_exponential_delay_hands_on_all_its_numbers() -> None:
    budget = ExponentialDelay(
        initial=2 * SECOND,
        maximum=5 * SECOND,
        multiplier=2,
        reset_after=10 * SECOND,
        jitter=0.5,
        attempts=3,
    ).machine()

    assert budget.on_failure(0, 0) == Restart(2000, 1)
    assert budget.on_failure(2001, 0) == Restart(2000, 2)
    assert budget.on_failure(4002, 0.9999) == Restart(5000, 3)
    assert isinstance(budget.on_failure(9003, 0), GiveUp)
    assert budget.on_failure(19002, 0) == Restart(2000, 4)


def test_a_failure_rate_hands_on_all_its_numbers() -> None:
    budget = FailureRate(failures=1, per=10 * SECOND, delay=3 * SECOND).machine()

    assert budget.on_failure(0, 0) == Restart(3000, 1)
    assert budget.on_failure(10_001, 0) == Restart(3000, 2)
    assert isinstance(budget.on_failure(20_001, 0), GiveUp)


@pytest.mark.parametrize(
    "chosen",
    [FixedDelay(1), ExponentialDelay(attempts=1), FailureRate(failures=1, per=60 * SECOND)],
    ids=lambda each: type(each).__name__,
)
def test_each_job_gets_a_budget_of_its_own(chosen: Restarts) -> None:
    chosen.machine().on_failure(0, 0)

    assert isinstance(chosen.machine().on_failure(5000, 0), Restart)


# Values of users that do not check their types.
_fixed: Callable[..., object] = FixedDelay
_exponential: Callable[..., object] = ExponentialDelay
_rate: Callable[..., object] = FailureRate


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (_fixed, {"attempts": 0}, "FixedDelay.attempts must be a whole number from 1 on, not 0"),
        (_fixed, {"attempts": True}, "attempts must be a whole number from 1 on, not True"),
        (_fixed, {"attempts": 2.5}, "attempts must be a whole number from 1 on, not 2.5"),
        (_fixed, {"attempts": 1, "delay": -SECOND}, "FixedDelay.delay must not be negative"),
        (_fixed, {"attempts": 1, "delay": 5}, "FixedDelay.delay must be a timedelta, not int"),
        (_exponential, {"initial": timedelta(0)}, "initial must be longer than zero"),
        (_exponential, {"maximum": 5}, "ExponentialDelay.maximum must be a timedelta"),
        (_exponential, {"maximum": SECOND / 2}, "maximum must not be below initial"),
        (_exponential, {"reset_after": -SECOND}, "reset_after must be longer than zero"),
        (_exponential, {"multiplier": 0.9}, "multiplier must be a number of 1 or more, not 0.9"),
        (_exponential, {"multiplier": math.inf}, "multiplier must be a number of 1 or more"),
        (_exponential, {"multiplier": math.nan}, "multiplier must be a number of 1 or more"),
        (_exponential, {"multiplier": "2"}, "multiplier must be a number of 1 or more, not '2'"),
        (_exponential, {"jitter": -0.1}, "jitter must be a number from 0 to 1, not -0.1"),
        (_exponential, {"jitter": 1.1}, "jitter must be a number from 0 to 1, not 1.1"),
        (_exponential, {"jitter": True}, "jitter must be a number from 0 to 1, not True"),
        (_exponential, {"attempts": 0}, "ExponentialDelay.attempts must be a whole number"),
        (_rate, {"failures": 0, "per": SECOND}, "FailureRate.failures must be a whole number"),
        (_rate, {"failures": 1, "per": timedelta(0)}, "FailureRate.per must be longer than zero"),
        (_rate, {"failures": 1, "per": SECOND, "delay": -SECOND}, "delay must not be negative"),
        (_rate, {"failures": 3, "per": 2 * SECOND}, "FailureRate would never give up: 3 restarts"),
    ],
    ids=str,
)
def test_invalid_values_are_refused(
    make: Callable[..., object], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=message):
        make(**given)
