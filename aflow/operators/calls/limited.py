"""When the calls of one subtask may begin: what the step's limits say, and what they learn from each call."""

from __future__ import annotations

from math import ceil, inf

from aflow.machines.calls.adaptive import AdaptiveLimit
from aflow.machines.calls.breaker import Breaker, BreakerState
from aflow.machines.calls.call import Call
from aflow.machines.calls.limits import CallLimits
from aflow.machines.calls.settings import CallSettings
from aflow.operators.base import OperatorContext

#: What is missing for less than this (ms) is given all the same: no reason to wait for another millisecond.
_ROUNDING = 1e-6


class StepLimits:
    """Rate limit, adaptive capacity and circuit breaker of one subtask. Every attempt counts."""

    def __init__(self, settings: CallSettings, context: OperatorContext) -> None:
        adaptive, rate, breaker = settings.adaptive, settings.rate, settings.breaker
        self._steady = context.steady
        self._breaker = None if breaker is None else Breaker(breaker)
        self._most = settings.capacity
        self._rate = rate
        self._adaptive = None if adaptive is None else AdaptiveLimit(adaptive)
        self._machine = CallLimits(
            bucket=None if rate is None else context.buckets.bucket(rate),
            adaptive=self._adaptive,
            overload=Exception if adaptive is None else adaptive.on,
            breaker=self._breaker,
            broken=Exception if breaker is None else breaker.on,
        )

    @property
    def capacity(self) -> int:
        """How many calls may be under way now."""
        return self._most if self._adaptive is None else self._adaptive.limit

    @property
    def is_open(self) -> bool:
        """True while the circuit breaker lets no call but probes begin."""
        return self._breaker is not None and self._breaker.state is not BreakerState.CLOSED

    def cost(self, value: object) -> float:
        """What a call for ``value`` takes of the rate limit. Raises ``ValueError``, and what ``cost`` raises."""
        return 1.0 if self._rate is None else self._rate.cost_of(value)

    @property
    def costs_differ(self) -> bool:
        """True if it depends on the value what a call takes."""
        return self._rate is not None and self._rate.cost is not None

    def wait(self, call: Call, under_way: int, cost: float) -> int | None:
        """0 if ``call`` may begin: then ``ended`` is to be told of it.

        Otherwise the milliseconds after which it is worth asking again; None: when a call has ended. Raises
        ``CircuitOpen``.
        """
        now = self._steady()
        wait = self._machine.wait(now, under_way, cost)
        if wait == 0:
            call.begun_at = now
            return 0
        return None if wait == inf else max(1, ceil(wait * 1000 - _ROUNDING))

    def leave(self) -> None:
        """There is nothing to call for: others need not wait for this step."""
        self._machine.leave()

    def ended(
        self, call: Call, error: BaseException | None, under_way: int, *, withdrawn: bool = False
    ) -> None:
        """A call has given a result, or failed; ``withdrawn``: it was not made after all. ``under_way`` counts it too.

        Raises what the user's functions raise.
        """
        now = self._steady()
        self._machine.ended(
            now, now - call.begun_at, error, in_flight=under_way, cancelled=withdrawn
        )
