"""The circuit breaker: no calls to a service while most of them fail.

Theory. A *circuit breaker* (M. Nygard, Release It!, 2007) is in one of three states:

- *Closed*: calls are made. It opens if the share of failures in a sliding window is too high and there are enough calls
  (as in resilience4j). A number of failures in a row would open it by chance while many calls are in flight.
- *Open*: no call is made, for a pause.
- *Half-open*: after the pause a few calls, the *probes*, are made. It closes if all succeed. It opens again if one
  fails, for twice as long, up to a bound. Closing resets the pause.

*Invariant*: a result counts only in the state in which its call started. A probe that is cancelled before it has a
result makes room for another one.

The window consists of two halves, and the older one is dropped as a whole. So counting is O(1), and the counts cover
between half of the window and all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from math import inf
from typing import Final

from aflow.errors import AflowError, FlowDefinitionError, shown
from aflow.machines.calls.retry import Errors, check_errors
from aflow.model.time import positive_millis

#: Latencies are differences of floats: a call that began this much (seconds) before a moment may have begun at it.
_ROUNDING: Final = 1e-6


class CircuitOpen(AflowError):
    """The call was not made, since the circuit breaker of its step is open: too many calls have failed.

    It is what calls fail with while ``CircuitBreaker(fail_fast=True)`` is open. ``retry_after`` says in how many
    seconds the service is tried again, as far as that is known.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """No calls are made for a ``pause`` once a share of ``failures`` of the latest calls has failed.

    Looked at are the calls that ended within ``window`` (or the younger half of it), and only if there are at least
    ``calls`` of them; a step with few calls needs a longer window or fewer calls. ``failures`` is a share: 0.5 is
    half of them, 1 all. ``on`` says which errors are failures; a call with any other error has shown that the service
    answers. Timeouts are failures if ``TimeoutError`` is in ``on``. Each attempt counts. Calls that were given up for
    other reasons do not.

    After the pause ``probes`` calls are made: if all of them succeed, the service is called as before, and if one
    fails, there is another pause, twice as long as the one before, up to ``max_pause`` (None: always the same).

    Meanwhile records wait, and with them what is before the step. With ``fail_fast`` each call fails at once with
    ``CircuitOpen`` instead, and ``retry`` and ``on_error`` of the step deal with it. Each subtask has a breaker for
    itself. Raises ``FlowDefinitionError``.
    """

    failures: float = 0.5
    window: timedelta = timedelta(seconds=10)
    calls: int = 20
    pause: timedelta = timedelta(seconds=5)
    max_pause: timedelta | None = timedelta(minutes=1)
    probes: int = 1
    on: Errors = Exception
    fail_fast: bool = False

    def __post_init__(self) -> None:
        if type(self.failures) not in (int, float) or not 0 < self.failures <= 1:
            raise FlowDefinitionError(
                f"CircuitBreaker.failures must be a share of the calls, above 0 and up to 1, "
                f"not {shown(self.failures)}; CircuitBreaker.calls says from how many calls on it opens"
            )
        positive_millis(self.window, what="CircuitBreaker.window")
        positive_millis(self.pause, what="CircuitBreaker.pause")
        if self.max_pause is not None:
            positive_millis(self.max_pause, what="CircuitBreaker.max_pause")
            if self.max_pause < self.pause:
                raise FlowDefinitionError(
                    f"CircuitBreaker.max_pause is {self.max_pause} and so shorter than the pause, {self.pause}; "
                    f"max_pause=None keeps all pauses the same"
                )
        for what, number in (("calls", self.calls), ("probes", self.probes)):
            if type(number) is not int or number < 1:
                raise FlowDefinitionError(
                    f"CircuitBreaker.{what} must be a whole number from 1 on, not {shown(number)}"
                )
        check_errors(self.on, "CircuitBreaker.on")
        if type(self.fail_fast) is not bool:
            raise FlowDefinitionError(
                f"CircuitBreaker.fail_fast must be True or False, not {shown(self.fail_fast)}"
            )


class BreakerState(Enum):
    """Of a circuit."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """One circuit. ``now`` is in seconds on a steady clock and never goes back.

    Before each call ``wait`` is asked; if it says 0, ``begun`` may be told, at the same moment. Each call that was
    begun is reported to ``ended`` once.
    """

    __slots__ = (
        "_calls",
        "_failures",
        "_half",
        "_half_ends",
        "_old_calls",
        "_old_failures",
        "_passed",
        "_pause",
        "_probing",
        "_settings",
        "_since",
        "_until",
        "opened",
        "state",
    )

    def __init__(self, settings: CircuitBreaker) -> None:
        self._settings = settings
        self._half = settings.window.total_seconds() / 2
        self.state = BreakerState.CLOSED
        #: Number of times that the circuit has opened.
        self.opened = 0
        #: Start of the state; calls that started earlier do not count.
        self._since = -inf
        #: End of the pause. Unused while closed.
        self._until = -inf
        #: Length (seconds) of the next pause.
        self._pause = settings.pause.total_seconds()
        #: Probes that are under way, and those that have succeeded. Together never more than ``probes``.
        self._probing = self._passed = 0
        self._forget(-inf)

    def wait(self, now: float) -> float:
        """0.0 if a call may begin; otherwise after how many seconds to ask again, ``inf``: when a call has ended.

        Raises ``CircuitOpen`` instead of waiting if the settings say so.
        """
        # Hot path: once for each call.
        if self.state is BreakerState.CLOSED:
            return 0.0
        wait = self._wait(now)
        if wait and self._settings.fail_fast:
            raise self._refusal(wait)
        return wait

    def _wait(self, now: float) -> float:
        if self.state is BreakerState.OPEN:
            if now < self._until:
                return self._until - now
            self._half_open(now)
        return inf if self._probing + self._passed >= self._settings.probes else 0.0

    def begun(self) -> None:
        """A call begins. ``wait`` has just said that it may."""
        if self.state is BreakerState.HALF_OPEN:
            self._probing += 1

    def ended(self, now: float, latency: float, failed: bool | None) -> None:
        """A call that took ``latency`` seconds has ended; ``failed`` is None if that says nothing about the service."""
        # Hot path: once for each call.
        if now - latency < self._since - _ROUNDING or self.state is BreakerState.OPEN:
            return
        if self.state is BreakerState.HALF_OPEN:
            self._probed(now, failed)
        elif failed is not None:
            if now >= self._half_ends:
                self._turn(now)
            self._calls += 1
            if failed:
                self._failures += 1
                self._look(now)

    def _look(self, now: float) -> None:
        """Open if too many have failed."""
        calls = self._calls + self._old_calls
        failures = self._failures + self._old_failures
        if calls >= self._settings.calls and failures >= self._settings.failures * calls:
            self._open(now)

    def _probed(self, now: float, failed: bool | None) -> None:
        self._probing -= 1
        if failed:
            if self._settings.max_pause is not None:
                longest = self._settings.max_pause.total_seconds()
                self._pause = min(2 * self._pause, longest)
            self._open(now)
        elif failed is False:
            self._passed += 1
            if self._passed >= self._settings.probes:
                self._close(now)

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.opened += 1
        self._since = now
        self._until = now + self._pause

    def _half_open(self, now: float) -> None:
        self.state = BreakerState.HALF_OPEN
        self._since = now
        self._probing = self._passed = 0

    def _close(self, now: float) -> None:
        self.state = BreakerState.CLOSED
        self._since = now
        self._pause = self._settings.pause.total_seconds()
        self._forget(now)

    def _forget(self, now: float) -> None:
        """The window begins anew."""
        self._calls = self._failures = self._old_calls = self._old_failures = 0
        self._half_ends = now + self._half

    def _turn(self, now: float) -> None:
        """The younger half of the window becomes the older one, unless it is too old for that."""
        calls, failures = self._calls, self._failures
        recent = now < self._half_ends + self._half
        self._forget(now)
        if recent:
            self._old_calls, self._old_failures = calls, failures

    def _refusal(self, wait: float) -> CircuitOpen:
        if wait == inf:
            return CircuitOpen(
                "the circuit breaker is half-open: the service is being tried, and others wait for what comes of that"
            )
        return CircuitOpen(
            f"the circuit breaker is open: too many calls have failed; the service is tried again in {wait:.3g} s",
            retry_after=wait,
        )
