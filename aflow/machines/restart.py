"""Restart budgets: the decision to restart a failed job, and after which delay.

Theory. A *budget* is called at each failure, with a random number from 0 to below 1 (``draw``), and returns
``Restart`` or ``GiveUp``. There are four:

- ``NoRestartBudget``: no restarts.
- ``FixedDelayBudget``: a number of restarts in the whole life of the job, each after the same delay.
- ``ExponentialDelayBudget``: the delay grows with each failure and returns to the initial one after a time without
  failures. The delay is random around its nominal value, so that jobs that failed together do not restart together. A
  failure before the restart belongs to the same attempt, and its delay is the rest of the running one.
- ``FailureRateBudget``: restarts as long as failures are not too frequent.

A budget has state; each job has one of its own, for all its attempts. Times are in ms, ``now`` is processing time.
After Flink's restart-backoff-time strategies.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from aflow.model.time import Timestamp, short

#: Upper bound of a nominal delay, far above any maximum: without one the float would become infinite.
_LARGEST: Final = float(2**62)


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart the job."""

    delay: int
    """Delay in milliseconds."""
    attempt: int
    """Number of the restart, from 1; unchanged if the failure belongs to the same attempt."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Let the job fail."""

    reason: str
    """Reason for the message of the error."""


Decision: TypeAlias = Restart | GiveUp


class NoRestartBudget:
    """Allows no restart."""

    __slots__ = ()

    def on_failure(self, now: Timestamp, draw: float) -> Decision:
        """Give up."""
        return GiveUp("no restart strategy is set")


class FixedDelayBudget:
    """Allows ``attempts`` restarts in all, each after ``delay`` ms."""

    __slots__ = ("_attempts", "_delay", "_failures")

    def __init__(self, attempts: int, delay: int) -> None:
        self._attempts = attempts
        self._delay = delay
        self._failures = 0

    def on_failure(self, now: Timestamp, draw: float) -> Decision:
        """Restart until the attempts are used up."""
        self._failures += 1
        if self._failures > self._attempts:
            return GiveUp(
                f"failed {_times(self._failures)}; fixed delay allows {_restarts(self._attempts)}"
            )
        return Restart(self._delay, self._failures)


class ExponentialDelayBudget:
    """Waits ``initial`` ms after the first failure and ``multiplier`` times as long after each further one.

    The delay is at most ``jitter`` (a fraction) of itself longer or shorter, and never outside of ``initial`` to
    ``maximum``. When ``reset_after`` ms have passed since the last restart, it is ``initial`` again and ``attempts``
    (None: any number) are counted from 0.
    """

    __slots__ = (
        "_attempt",
        "_attempts",
        "_initial",
        "_jitter",
        "_maximum",
        "_multiplier",
        "_nominal",
        "_reset_after",
        "_restart_at",
        "_row",
    )

    def __init__(
        self,
        *,
        initial: int,
        maximum: int,
        multiplier: float,
        reset_after: int,
        jitter: float,
        attempts: int | None = None,
    ) -> None:
        self._initial = initial
        self._maximum = maximum
        self._multiplier = multiplier
        self._reset_after = reset_after
        self._jitter = jitter
        self._attempts = attempts
        #: Total of restarts.
        self._attempt = 0
        #: Failures since the last time without failures, merged ones not counted.
        self._row = 0
        #: The delay of the last of them, before jitter and bounds.
        self._nominal = float(initial)
        #: Time of the last restart, past or future; None before the first failure.
        self._restart_at: Timestamp | None = None

    def on_failure(self, now: Timestamp, draw: float) -> Decision:
        """Restart after a growing delay, or after the rest of the running one."""
        if self._restart_at is not None and now <= self._restart_at:
            return self._decision(self._restart_at - now)
        self._count(now)
        if self._attempts is not None and self._row > self._attempts:
            return self._decision(0)
        self._attempt += 1
        delay = self._drawn(draw)
        self._restart_at = now + delay
        return self._decision(delay)

    def _count(self, now: Timestamp) -> None:
        if self._restart_at is None or now - self._restart_at >= self._reset_after:
            self._row = 1
            self._nominal = float(self._initial)
        else:
            self._row += 1
            self._nominal = min(self._nominal * self._multiplier, _LARGEST)

    def _drawn(self, draw: float) -> int:
        spread = int(self._nominal * self._jitter)
        drawn = int(self._nominal) - spread + int(draw * (2 * spread + 1))
        return max(self._initial, min(drawn, self._maximum))

    def _decision(self, delay: int) -> Decision:
        if self._attempts is None or self._row <= self._attempts:
            return Restart(delay, self._attempt)
        return GiveUp(
            f"failed {_times(self._row)} without {short(self._reset_after)} of calm in between; "
            f"exponential delay allows {_restarts(self._attempts)}"
        )


class FailureRateBudget:
    """Allows ``failures`` within ``per`` ms, and restarts ``delay`` ms after each."""

    __slots__ = ("_attempt", "_delay", "_failures", "_per", "_recent")

    def __init__(self, failures: int, per: int, delay: int) -> None:
        self._failures = failures
        self._per = per
        self._delay = delay
        self._attempt = 0
        #: Times of failures within the last ``per`` ms, oldest first.
        self._recent: deque[Timestamp] = deque()

    def on_failure(self, now: Timestamp, draw: float) -> Decision:
        """Restart unless there were too many failures within ``per`` ms."""
        self._recent.append(now)
        while now - self._recent[0] > self._per:
            self._recent.popleft()
        if len(self._recent) > self._failures:
            return GiveUp(
                f"failed {_times(len(self._recent))} within {short(self._per)}; "
                f"failure rate allows {self._failures}"
            )
        self._attempt += 1
        return Restart(self._delay, self._attempt)


RestartBudget: TypeAlias = (
    NoRestartBudget | FixedDelayBudget | ExponentialDelayBudget | FailureRateBudget
)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _restarts(count: int) -> str:
    return "1 restart" if count == 1 else f"{count} restarts"
