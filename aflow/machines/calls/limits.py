"""All limits of the calls of one step: they admit a call now, or say when to ask again.

Theory. Three machines may each say no: the circuit breaker (the service is not asked), the adaptive limit (too many
calls are under way) and the rate limit (too many have begun). What a call takes from them must be taken from all or
from none, so first those are asked that only answer, and last the bucket, which gives in the moment in which it says
yes. A step that cannot call for another reason gives up its turn at the bucket, since others may wait for it.

Each *attempt* is one call here: one ``wait`` that says 0, and one ``ended``. So retries are seen by all three.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Final

from aflow.machines.calls.breaker import Breaker, BreakerState
from aflow.machines.calls.call import Call
from aflow.machines.calls.groups import Group
from aflow.machines.calls.limiter import Limiter
from aflow.machines.calls.rate import SharedBuckets, TokenBucket
from aflow.machines.calls.retry import Errors, matches
from aflow.machines.calls.settings import CallSettings
from aflow.machines.calls.user_limiter import UserLimiter

#: A wait whose rest is shorter than this (ms) is over: it is not worth another millisecond.
_ROUNDING: Final = 1e-6


class CallLimits:
    """The limits of the calls of one subtask; the bucket may belong to several. ``now`` is in seconds, on a steady
    clock.

    ``overload`` says which errors mean for the adaptive limit that the service is asked too much, ``broken`` which
    are failures for the breaker: what their settings call ``on``.
    """

    __slots__ = ("_broken", "_overload", "adaptive", "breaker", "bucket")

    def __init__(
        self,
        *,
        bucket: TokenBucket | None = None,
        adaptive: Limiter | None = None,
        overload: Errors = Exception,
        breaker: Breaker | None = None,
        broken: Errors = Exception,
    ) -> None:
        self.bucket = bucket
        self.adaptive = adaptive
        self.breaker = breaker
        self._overload = overload
        self._broken = broken

    def wait(self, now: float, in_flight: int, cost: float = 1.0) -> float:
        """0.0 if a call may begin: all that it needs has been taken, and ``ended`` has to be told of it.

        Otherwise nothing was taken, and it is worth asking again after so many seconds; ``inf``: when a call has
        ended. ``in_flight`` are the calls that are under way, ``cost`` is what ``RateLimit.cost_of`` gives. Raises
        ``CircuitOpen`` if calls are to fail while the circuit is open; the call that fails so was not begun.
        """
        # Hot path: once for each call.
        adaptive, breaker, bucket = self.adaptive, self.breaker, self.bucket
        if adaptive is not None and in_flight >= adaptive.limit:
            self.leave()
            return inf
        if breaker is not None and (wait := self._asked(breaker, now)) > 0:
            return wait
        if bucket is not None and (wait := bucket.take(self, now, cost)) > 0:
            return wait
        if breaker is not None:
            breaker.begun()
        return 0.0

    def _asked(self, breaker: Breaker, now: float) -> float:
        """Return the wait that the breaker asks for; if any, give up the turn at the bucket."""
        wait = inf
        try:
            wait = breaker.wait(now)
        finally:
            if wait > 0:
                self.leave()
        return wait

    def leave(self) -> None:
        """Give up the turn at the bucket: no call is ready."""
        if self.bucket is not None:
            self.bucket.leave(self)

    def ended(
        self,
        now: float,
        latency: float,
        error: BaseException | None,
        *,
        in_flight: int,
        cancelled: bool = False,
    ) -> None:
        """A call has ended that took ``latency`` seconds; ``in_flight`` were under way, with this one.

        ``error`` is what it failed with, ``TimeoutError`` if it took too long. ``cancelled`` says that it was given
        up for a reason that has nothing to do with the service, so that nothing is learned from it. Raises what the
        user's function for ``on`` raises; the call has failed then, for all that is counted.
        """
        # Hot path: once for each call.
        adaptive, breaker = self.adaptive, self.breaker
        if breaker is not None:
            failed: bool | None = error is not None
            try:
                if cancelled:
                    failed = None
                elif error is not None:
                    failed = matches(self._broken, error)
            finally:
                breaker.ended(now, latency, failed)
        if adaptive is not None and not cancelled:
            if error is None:
                adaptive.ended(now, latency, True, in_flight)
            elif matches(self._overload, error):
                adaptive.ended(now, latency, False, in_flight)


class StepLimits:
    """Rate limit, adaptive capacity and circuit breaker of one subtask. Each attempt counts. Moments in seconds."""

    def __init__(self, settings: CallSettings, buckets: SharedBuckets) -> None:
        adaptive, rate, breaker = settings.adaptive, settings.rate, settings.breaker
        self._breaker = None if breaker is None else Breaker(breaker)
        self._capacity = settings.capacity
        self._rate = rate
        self._adaptive = None if adaptive is None else adaptive.new_limiter()
        self._of_user: UserLimiter | None = None
        if adaptive is not None and adaptive.limiter is not None and self._adaptive is not None:
            self._adaptive = self._of_user = UserLimiter(adaptive, self._adaptive)
        self._limits = CallLimits(
            bucket=None if rate is None else buckets.bucket(rate),
            adaptive=self._adaptive,
            overload=Exception if adaptive is None else adaptive.on,
            breaker=self._breaker,
            broken=Exception if breaker is None else breaker.on,
        )

    @property
    def capacity(self) -> int:
        """The number of calls that may run now."""
        return self._capacity if self._adaptive is None else self._adaptive.limit

    @property
    def is_open(self) -> bool:
        """True while the circuit breaker lets only probes start."""
        return self._breaker is not None and self._breaker.state is not BreakerState.CLOSED

    def _cost(self, call: Call) -> float:
        """Return the units that ``call`` takes of the rate limit. A group takes the sum if the user defined costs.

        Raises ``ValueError``, and what the user's function raises.
        """
        rate = self._rate
        if rate is None or call.is_timer:
            return 1.0
        if isinstance(call, Group) and rate.cost is not None:
            return sum(rate.cost_of(member.value) for member in call.company)
        return rate.cost_of(call.value)

    def wait(self, call: Call, now: float, in_flight: int) -> int | None:
        """Return 0 if ``call`` may start; then ``ended`` has to follow.

        Otherwise return the ms after which to ask again; None: when a call has ended. Raises ``CircuitOpen``,
        ``LimiterError``, and what the user's functions raise.
        """
        if self._of_user is not None:
            self._of_user.check()
        wait = self._limits.wait(now, in_flight, self._cost(call))
        if wait == 0:
            call.begun_at = now
            return 0
        return None if wait == inf else max(1, ceil(wait * 1000 - _ROUNDING))

    def leave(self) -> None:
        """No call is ready: other steps need not wait for this one."""
        self._limits.leave()

    def ended(
        self,
        call: Call,
        now: float,
        error: BaseException | None,
        in_flight: int,
        *,
        withdrawn: bool = False,
    ) -> None:
        """A call returned or failed; ``withdrawn``: it was not made after all. ``in_flight`` includes it.

        Raises ``LimiterError``, and what the user's functions raise.
        """
        self._limits.ended(
            now, now - call.begun_at, error, in_flight=in_flight, cancelled=withdrawn
        )
