"""Decisions of restart budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest

from aflow.machines.restart import (
    Decision,
    ExponentialDelayBudget,
    FailureRateBudget,
    FixedDelayBudget,
    GiveUp,
    NoRestartBudget,
    Restart,
)

Budget: TypeAlias = NoRestartBudget | FixedDelayBudget | ExponentialDelayBudget | FailureRateBudget


def decisions(budget: Budget, *times: int, draw: float = 0.5) -> Sequence[Decision]:
    """Return the decisions at failures at these times."""
    return [budget.on_failure(at, draw) for at in times]


def exponential(
    *,
    initial: int = 100,
    maximum: int = 1000,
    multiplier: float = 2,
    reset_after: int = 10_000,
    jitter: float = 0,
    attempts: int | None = None,
) -> ExponentialDelayBudget:
    return ExponentialDelayBudget(
        initial=initial,
        maximum=maximum,
        multiplier=multiplier,
        reset_after=reset_after,
        jitter=jitter,
        attempts=attempts,
    )


def test_without_a_strategy_the_first_failure_is_the_last() -> None:
    assert decisions(NoRestartBudget(), 0) == [GiveUp("no restart strategy is set")]


def test_a_fixed_delay_allows_as_many_failures_as_attempts() -> None:
    assert decisions(FixedDelayBudget(3, 50), 0, 0, 99, 10**9) == [
        Restart(50, 1),
        Restart(50, 2),
        Restart(50, 3),
        GiveUp("failed 4 times; fixed delay allows 3 restarts"),
    ]


def test_one_restart_is_said_in_the_singular() -> None:
    assert decisions(FixedDelayBudget(1, 50), 0, 0)[-1] == GiveUp(
        "failed 2 times; fixed delay allows 1 restart"
    )


def test_an_exponential_delay_grows_up_to_its_maximum() -> None:
    assert decisions(exponential(), 0, 101, 302, 703, 1504, 2505) == [
        Restart(100, 1),
        Restart(200, 2),
        Restart(400, 3),
        Restart(800, 4),
        Restart(1000, 5),
        Restart(1000, 6),
    ]


def test_an_exponential_delay_does_not_grow_out_of_all_numbers() -> None:
    budget = exponential(multiplier=1e9)

    assert decisions(budget, *range(0, 2_000_000, 2000))[-1] == Restart(1000, 1000)


def test_a_failure_before_the_restart_belongs_to_the_same_attempt() -> None:
    assert decisions(exponential(), 0, 30, 100, 101) == [
        Restart(100, 1),
        Restart(70, 1),
        Restart(0, 1),
        Restart(200, 2),
    ]


def test_after_a_calm_time_the_delay_is_the_initial_one_again() -> None:
    assert decisions(exponential(reset_after=500), 0, 150, 849, 1749) == [
        Restart(100, 1),
        Restart(200, 2),
        Restart(400, 3),
        Restart(100, 4),
    ]


def test_a_time_that_is_not_calm_for_long_enough_does_not_count() -> None:
    assert decisions(exponential(reset_after=500), 0, 599) == [Restart(100, 1), Restart(200, 2)]


def test_an_exponential_delay_may_be_limited() -> None:
    assert decisions(exponential(attempts=2), 0, 101, 302, 303) == [
        Restart(100, 1),
        Restart(200, 2),
        GiveUp(
            "failed 3 times without 10s of calm in between; exponential delay allows 2 restarts"
        ),
        GiveUp(
            "failed 4 times without 10s of calm in between; exponential delay allows 2 restarts"
        ),
    ]


def test_merged_failures_use_up_no_attempts() -> None:
    assert decisions(exponential(attempts=1), 0, 1, 2, 3)[-1] == Restart(97, 1)


def test_attempts_are_counted_from_zero_after_a_time_without_failure() -> None:
    budget = exponential(attempts=2, reset_after=500)

    assert decisions(budget, 0, 101, 801, 1000)[2:] == [Restart(100, 3), Restart(200, 4)]


@pytest.mark.parametrize(
    ("draw", "delay"), [(0, 150), (0.25, 175), (0.5, 200), (0.75, 225), (0.9999, 250)]
)
def test_jitter_makes_a_delay_longer_or_shorter_by_a_fraction(draw: float, delay: int) -> None:
    budget = exponential(jitter=0.25)

    assert decisions(budget, 0, 200, draw=draw)[-1] == Restart(delay, 2)


@pytest.mark.parametrize("draw", [0, 0.3])
def test_the_delay_with_jitter_is_at_least_the_initial_delay(draw: float) -> None:
    assert decisions(exponential(jitter=1), 0, draw=draw) == [Restart(100, 1)]


def test_the_delay_with_jitter_is_at_most_the_maximum() -> None:
    budget = exponential(jitter=0.5, maximum=120)

    assert decisions(budget, 0, draw=0.9) == [Restart(120, 1)]


def test_a_failure_rate_allows_so_many_failures_in_a_time() -> None:
    assert decisions(FailureRateBudget(2, 1000, 50), 0, 500, 1000) == [
        Restart(50, 1),
        Restart(50, 2),
        GiveUp("failed 3 times within 1s; failure rate allows 2"),
    ]


def test_a_failure_rate_forgets_older_failures() -> None:
    budget = FailureRateBudget(2, 1000, 50)

    assert decisions(budget, 0, 500, 1001, 1501, 2002) == [
        Restart(50, number) for number in range(1, 6)
    ]
