"""Whether a call may begin now: all that limits the calls of one step, put together.

Theory. Three machines may each say no: the circuit breaker (the service is not asked), the adaptive limit (too many
calls are under way) and the rate limit (too many have begun). What a call takes from them must be taken from all or
from none, so first those are asked that only answer, and last the bucket, which gives in the moment in which it says
yes. A step that cannot call for another reason gives up its turn at the bucket, since others may wait behind it.

Each *attempt* is one call here: one ``wait`` that says 0, and one ``ended``. So retries are seen by all three.
"""

from __future__ import annotations

from math import inf

from aflow.machines.calls.adaptive import AdaptiveLimit
from aflow.machines.calls.breaker import Breaker
from aflow.machines.calls.rate import TokenBucket
from aflow.machines.calls.retry import Errors, matches


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
        adaptive: AdaptiveLimit | None = None,
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
        """What the breaker says; if that is no, the turn at the bucket goes to others."""
        wait = inf
        try:
            wait = breaker.wait(now)
        finally:
            if wait > 0:
                self.leave()
        return wait

    def leave(self) -> None:
        """There is nothing to call for now, so nobody is to wait for this step to take its turn."""
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
