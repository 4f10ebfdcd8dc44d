"""Restart strategies, as the user chooses them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from aflow.errors import FlowDefinitionError, shown
from aflow.machines.restart import (
    ExponentialDelayBudget,
    FailureRateBudget,
    FixedDelayBudget,
    NoRestartBudget,
)
from aflow.model.time import positive_millis, to_millis

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure ends the job."""

    def machine(self) -> NoRestartBudget:
        """Return the machine that decides at each failure; one for each job."""
        return NoRestartBudget()


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Restart at most ``attempts`` times in the life of the job, ``delay`` after each failure.

    Raises ``FlowDefinitionError`` if ``attempts`` is below 1 or ``delay`` is negative.
    """

    attempts: int
    delay: timedelta = _SECOND

    def __post_init__(self) -> None:
        _check_count(self.attempts, "FixedDelay.attempts")
        _check_not_negative(self.delay, "FixedDelay.delay")

    def machine(self) -> FixedDelayBudget:
        """Return the machine that decides at each failure; one for each job."""
        return FixedDelayBudget(self.attempts, to_millis(self.delay, what="FixedDelay.delay"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialDelay:
    """Restart after ``initial``, and after a delay that grows by ``multiplier`` with each further failure.

    Raises ``FlowDefinitionError`` for durations of 0, a ``maximum`` below ``initial``, a ``multiplier`` below 1, a
    ``jitter`` outside of 0 to 1, and ``attempts`` below 1.
    """

    initial: timedelta = _SECOND
    maximum: timedelta = timedelta(minutes=1)
    """The longest delay."""
    multiplier: float = 1.5
    reset_after: timedelta = timedelta(hours=1)
    """Once the job has run for so long since it was restarted, the next failure counts as the first."""
    jitter: float = 0.1
    """Random fraction by which a delay is longer or shorter, so that jobs that failed together do not restart at the
    same time."""
    attempts: int | None = None
    """The most restarts without ``reset_after`` of normal running between them; None: any number."""

    def __post_init__(self) -> None:
        for name in ("initial", "maximum", "reset_after"):
            positive_millis(getattr(self, name), what=f"ExponentialDelay.{name}")
        if self.maximum < self.initial:
            raise FlowDefinitionError(
                f"ExponentialDelay.maximum must not be below initial, {self.initial}, but is {self.maximum}"
            )
        _check_factor(self.multiplier, 1, math.inf, "ExponentialDelay.multiplier")
        _check_factor(self.jitter, 0, 1, "ExponentialDelay.jitter")
        if self.attempts is not None:
            _check_count(self.attempts, "ExponentialDelay.attempts")

    def machine(self) -> ExponentialDelayBudget:
        """Return the machine that decides at each failure; one for each job."""
        return ExponentialDelayBudget(
            initial=to_millis(self.initial, what="ExponentialDelay.initial"),
            maximum=to_millis(self.maximum, what="ExponentialDelay.maximum"),
            multiplier=self.multiplier,
            reset_after=to_millis(self.reset_after, what="ExponentialDelay.reset_after"),
            jitter=self.jitter,
            attempts=self.attempts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """Restart ``delay`` after each failure, unless there are more than ``failures`` in any time of length ``per``.

    Raises ``FlowDefinitionError`` if ``failures`` is below 1, ``per`` is not above 0, ``delay`` is negative, or the
    restarts alone take so long that there can never be more than ``failures``.
    """

    failures: int
    per: timedelta
    delay: timedelta = _SECOND

    def __post_init__(self) -> None:
        _check_count(self.failures, "FailureRate.failures")
        positive_millis(self.per, what="FailureRate.per")
        _check_not_negative(self.delay, "FailureRate.delay")
        if self.delay * self.failures > self.per:
            raise FlowDefinitionError(
                f"FailureRate would never give up: {self.failures} restarts of {self.delay} each take longer than "
                f"per, {self.per}; set a longer per or a shorter delay"
            )

    def machine(self) -> FailureRateBudget:
        """Return the machine that decides at each failure; one for each job."""
        per = to_millis(self.per, what="FailureRate.per")
        return FailureRateBudget(
            self.failures, per, to_millis(self.delay, what="FailureRate.delay")
        )


Restarts: TypeAlias = NoRestart | FixedDelay | ExponentialDelay | FailureRate
"""The restart strategies."""


def _check_count(value: int, what: str) -> None:
    if type(value) is not int or value < 1:
        raise FlowDefinitionError(
            f"{what} must be a whole number from 1 on, not {shown(value)}; to never restart use NoRestart()"
        )


def _check_not_negative(duration: timedelta, what: str) -> None:
    if to_millis(duration, what=what) < 0:
        raise FlowDefinitionError(f"{what} must not be negative, but is {duration}")


def _check_factor(value: float, least: float, most: float, what: str) -> None:
    # The largest float is accepted; infinity and NaN are not.
    if type(value) not in (int, float) or not (least <= value <= most) or math.isinf(value):
        span = f"from {least} to {most}" if math.isfinite(most) else f"of {least} or more"
        raise FlowDefinitionError(f"{what} must be a number {span}, not {shown(value)}")
