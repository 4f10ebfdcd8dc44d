"""restart_strategies.json: decisions at failures of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from aflow.machines.restart import (
    Decision,
    ExponentialDelayBudget,
    FailureRateBudget,
    FixedDelayBudget,
    GiveUp,
    Restart,
)
from tests.conformance.driver import Driver, Outcome, call
from tests.conformance.scenarios import Json, UnknownWord

Budget: TypeAlias = FixedDelayBudget | ExponentialDelayBudget | FailureRateBudget

_UNLIMITED: Final = 2**62
#: The default draw: the largest, which is the most likely to exceed the bounds.
_DRAW: Final = 0.999
#: Times that a scenario describes in words, as a sum with the threshold and the current delay.
_BEYOND_THE_RESET: Final[Mapping[str, int]] = {
    "reset_threshold + current backoff - 1": -1,
    "reset_threshold + current backoff": 0,
}


class RestartStrategies(Driver):
    """A budget and a clock. ``can_restart`` and ``backoff_ms`` are two views of the last decision."""

    BESIDE = frozenset({"repeat_with_fresh_strategy"})

    def __init__(self, *, strategy: Json) -> None:
        self._make = _maker(strategy)
        self._reset_threshold: int = strategy.get("exponential_delay", {}).get("reset_threshold_ms")
        self._budget = self._make()
        self._now = 0
        self._decision: Decision | None = None
        #: Times of failures, to repeat them.
        self._failures: list[int] = []
        self._backoffs: set[int] = set()

    def do_advance_clock_ms(self, by: int | str) -> None:
        if isinstance(by, int):
            self._now += by
        elif by in _BEYOND_THE_RESET:
            self._now += self._reset_threshold + self._restart().delay + _BEYOND_THE_RESET[by]
        else:
            raise UnknownWord(f"advance_clock_ms {by!r}")

    def do_notify_failure(self) -> Outcome:
        before = self._decision
        self._failures.append(self._now)
        self._decision = now = self._budget.on_failure(self._now, _DRAW)
        same = (
            isinstance(before, Restart)
            and isinstance(now, Restart)
            and before.attempt == now.attempt
        )
        return {"returns_new_attempt": not same}

    def do_can_restart(self) -> Outcome:
        # Before the first failure nothing was decided, so nothing was given up.
        return {"returns": not isinstance(self._decision, GiveUp)}

    def do_backoff_ms(self, repeat_with_fresh_strategy: int = 0) -> Outcome:
        for number in range(repeat_with_fresh_strategy):
            self._backoffs.add(self._played_again(number / repeat_with_fresh_strategy))
        return {"returns": self._restart().delay}

    def see_set_of_backoffs(self) -> list[int]:
        return sorted(self._backoffs)

    def _played_again(self, draw: float) -> int:
        budget = self._make()
        decisions = [budget.on_failure(at, draw) for at in self._failures]
        last = decisions[-1]
        assert isinstance(last, Restart)
        return last.delay

    def _restart(self) -> Restart:
        # A strategy of Flink has a delay before there is a failure; a budget of ours only decides on one.
        decision = self._decision or self._budget.on_failure(self._now, _DRAW)
        assert not isinstance(decision, GiveUp), decision
        return decision


def _maker(strategy: Json) -> Callable[[], Budget]:
    match dict(strategy):
        case {"fixed_delay": given}:
            return lambda: call(_fixed_delay, given)
        case {"exponential_delay": given}:
            return lambda: call(_exponential_delay, given)
        case {"failure_rate": given}:
            return lambda: call(_failure_rate, given)
        case _:
            raise UnknownWord(f"strategy {strategy!r}")


def _fixed_delay(*, attempts: int, delay_ms: int) -> FixedDelayBudget:
    return FixedDelayBudget(attempts, delay_ms)


def _failure_rate(*, max_failures: int, interval_ms: int, delay_ms: int) -> FailureRateBudget:
    return FailureRateBudget(max_failures, interval_ms, delay_ms)


def _exponential_delay(
    *,
    initial_ms: int,
    max_ms: int,
    multiplier: float,
    reset_threshold_ms: int | str,
    jitter: float,
    max_attempts: int | str,
) -> ExponentialDelayBudget:
    return ExponentialDelayBudget(
        initial=initial_ms,
        maximum=max_ms,
        multiplier=multiplier,
        reset_after=_UNLIMITED if isinstance(reset_threshold_ms, str) else reset_threshold_ms,
        jitter=jitter,
        attempts=None if isinstance(max_attempts, str) else max_attempts,
    )
