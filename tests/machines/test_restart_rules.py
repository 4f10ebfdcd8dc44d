"""Invariants of all restarts of a job."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from aflow.machines.restart import (
    ExponentialDelayBudget,
    FailureRateBudget,
    FixedDelayBudget,
    GiveUp,
    Restart,
)

draws = st.floats(0, 1, exclude_max=True)


class ExponentialRules(RuleBasedStateMachine):
    """Failures at any time, against a list of the attempts since the last calm time."""

    @initialize(
        initial=st.integers(1, 50),
        longer=st.integers(0, 500),
        multiplier=st.floats(1, 10),
        reset_after=st.integers(1, 200),
        jitter=st.floats(0, 1),
        attempts=st.none() | st.integers(1, 5),
    )
    def begin(
        self,
        initial: int,
        longer: int,
        multiplier: float,
        reset_after: int,
        jitter: float,
        attempts: int | None,
    ) -> None:
        self.initial, self.maximum = initial, initial + longer
        self.multiplier, self.jitter = multiplier, jitter
        self.reset_after = reset_after
        self.attempts = attempts
        self.budget = ExponentialDelayBudget(
            initial=initial,
            maximum=self.maximum,
            multiplier=multiplier,
            reset_after=reset_after,
            jitter=jitter,
            attempts=attempts,
        )
        self.now = 0
        self.restart_at: int | None = None
        self.attempt = 0
        self.row = 0

    @rule(after=st.integers(0, 400), draw=draws)
    def fail(self, after: int, draw: float) -> None:
        self.now += after
        decision = self.budget.on_failure(self.now, draw)

        if self.restart_at is not None and self.now <= self.restart_at:
            assert isinstance(decision, GiveUp) == self.spent()
            assert self.spent() or decision == Restart(self.restart_at - self.now, self.attempt)
            return
        calm = self.restart_at is None or self.now - self.restart_at >= self.reset_after
        self.row = 1 if calm else self.row + 1
        assert isinstance(decision, GiveUp) == self.spent()
        if isinstance(decision, Restart):
            self.attempt += 1
            assert decision.attempt == self.attempt
            self.check_the_delay(decision.delay)
            self.restart_at = self.now + decision.delay

    def spent(self) -> bool:
        return self.attempts is not None and self.row > self.attempts

    def check_the_delay(self, delay: int) -> None:
        nominal = self.initial * self.multiplier ** (self.row - 1)
        least, most = nominal * (1 - self.jitter) - 1, nominal * (1 + self.jitter) + 1
        assert self.initial <= delay <= self.maximum
        assert delay >= min(least, self.maximum)
        assert delay <= max(most, self.initial)


TestExponentialRules = ExponentialRules.TestCase


@given(st.integers(1, 5), st.lists(st.integers(0, 100), max_size=10), draws)
def test_a_fixed_delay_counts_all_failures(attempts: int, pauses: list[int], draw: float) -> None:
    budget = FixedDelayBudget(attempts, 7)

    restarts = [isinstance(budget.on_failure(at, draw), Restart) for at in accumulate(pauses)]

    assert restarts == [number < attempts for number in range(len(pauses))]


@given(st.integers(1, 4), st.integers(1, 100), st.lists(st.integers(0, 100), max_size=20), draws)
def test_a_failure_rate_gives_up_where_one_failure_too_many_is_within_the_time(
    failures: int, per: int, pauses: list[int], draw: float
) -> None:
    budget = FailureRateBudget(failures, per, 7)

    times = list(accumulate(pauses))
    given_up = [isinstance(budget.on_failure(at, draw), GiveUp) for at in times]

    assert given_up == [
        index >= failures and at - times[index - failures] <= per for index, at in enumerate(times)
    ]
