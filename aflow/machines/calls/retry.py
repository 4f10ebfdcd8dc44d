"""Retry policies: the decision whether a failed call is retried, and after which delay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import positive_millis, to_millis

Errors: TypeAlias = (
    type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
)
"""A selection of errors: a class, several, or a function that returns True for them."""

_DAY: Final = timedelta(days=1)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A failed attempt of a call."""

    number: int
    """1 for the first one of a record."""
    error: BaseException | None
    """The error that it raised; None if it returned ``result``."""
    result: object = None


@runtime_checkable
class RetryPolicy(Protocol):
    """A policy for failed calls. ``Retry`` is one; write your own for other rules."""

    def again(self, failed: Attempt, random: float, /) -> timedelta | None:
        """Return the delay of the next attempt; None for no other attempt. ``random`` is from 0 to 1, for jitter.

        Called for each call that raised, until the time of the record is over. If the policy has an attribute
        ``on_result`` that is not None, it is also called for each call that returned: None accepts the result.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Call again after ``delay``, each time ``factor`` times later than before, up to ``max_delay``: if none is said, a
    day, or ``delay`` itself if that is longer.

    ``attempts`` counts all calls for a record, the first one included. With ``jitter`` each delay is longer or shorter
    by up to that share of it, at random, so that records which failed together do not come back together. ``on`` says
    which errors are worth it, ``on_result`` which results are none: after the last attempt such a result is taken
    as it is, while ``on_error`` applies to an error. Raises ``FlowDefinitionError``.
    """

    attempts: int = 3
    delay: timedelta = timedelta(milliseconds=100)
    factor: float = 1.0
    max_delay: timedelta | None = None
    jitter: float = 0.0
    on: Errors = Exception
    on_result: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise FlowDefinitionError(
                f"Retry.attempts must be a whole number from 1 on (it counts the first call too), "
                f"not {shown(self.attempts)}"
            )
        to_millis(self.delay, what="Retry.delay")
        if self.delay < timedelta(0):
            raise FlowDefinitionError(f"Retry.delay must not be negative: {self.delay!r}")
        if self.max_delay is not None:
            positive_millis(self.max_delay, what="Retry.max_delay")
        if not _number(self.factor) or not self.factor >= 1:  # true for nan, too
            raise FlowDefinitionError(
                f"Retry.factor must be a number from 1 on, not {shown(self.factor)}"
            )
        if not _number(self.jitter) or not 0 <= self.jitter <= 1:
            raise FlowDefinitionError(
                f"Retry.jitter must be a share from 0 to 1, not {shown(self.jitter)}"
            )
        check_errors(self.on, "Retry.on")
        if self.on_result is not None and not callable(self.on_result):
            raise FlowDefinitionError(
                f"Retry.on_result takes a function, not {shown(self.on_result)}"
            )

    def again(self, failed: Attempt, random: float) -> timedelta | None:
        if failed.number >= self.attempts or not self._worth(failed):
            return None
        return self._delay(failed.number, random)

    def _worth(self, failed: Attempt) -> bool:
        if failed.error is not None:
            return matches(self.on, failed.error)
        return self.on_result is not None and bool(self.on_result(failed.result))

    def _delay(self, number: int, random: float) -> timedelta:
        if not self.delay:
            return self.delay
        most = (self.max_delay or max(self.delay, _DAY)).total_seconds()
        try:
            seconds = min(most, self.delay.total_seconds() * self.factor ** (number - 1))
        except OverflowError:
            seconds = most
        try:
            return timedelta(seconds=seconds * (1 + self.jitter * (2 * random - 1)))
        except OverflowError:
            return timedelta.max


def pause(policy: RetryPolicy, failed: Attempt, random: float) -> int | None:
    """Return the delay of the next attempt (ms); None for no other attempt.

    Raises the errors of the policy, and ``TypeError`` for a result that is no delay.
    """
    delay: object = policy.again(failed, random)
    if delay is None:
        return None
    if not isinstance(delay, timedelta):
        raise TypeError(
            f"{type(policy).__name__}.again() must give a timedelta or None, not {type(delay).__name__}: {shown(delay)}"
        )
    return max(0, round(delay / _MILLISECOND))


def check_errors(errors: object, what: str) -> None:
    """Raise ``FlowDefinitionError`` unless ``errors`` are classes of errors or a function."""
    is_tuple = isinstance(errors, tuple)
    several = cast("tuple[object, ...]", errors) if is_tuple else (errors,)
    if several and all(isinstance(one, type) and issubclass(one, BaseException) for one in several):
        return
    if is_tuple or isinstance(several[0], type) or not callable(several[0]):
        raise FlowDefinitionError(
            f"{what} takes a class of errors, a tuple of them, or a function that selects them, "
            f"not {shown(several if is_tuple else several[0])}"
        )


def matches(errors: Errors, error: BaseException) -> bool:
    """Return True if ``error`` is one of ``errors``."""
    if isinstance(errors, type | tuple):
        return isinstance(error, errors)
    return bool(errors(error))


def _number(value: object) -> bool:
    return type(value) in (int, float)
