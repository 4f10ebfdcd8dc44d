"""Steps that share a bucket and have a breaker and an adaptive limit each, for all outcomes of their calls."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aflow.machines.calls.adaptive_limiter import AdaptiveLimiter
from aflow.machines.calls.breaker import Breaker, BreakerState, CircuitBreaker
from aflow.machines.calls.limits import CallLimits
from aflow.machines.calls.rate import RateLimit, TokenBucket

LEAST, MOST = 2, 30


class Step:
    """One of them."""

    def __init__(self, bucket: TokenBucket, probes: int) -> None:
        self.probes = probes
        self.breaker = Breaker(CircuitBreaker(calls=5, probes=probes))
        self.adaptive = AdaptiveLimiter(start=10, least=LEAST, most=MOST)
        self.limits = CallLimits(
            bucket=bucket,
            adaptive=self.adaptive,
            overload=TimeoutError,
            breaker=self.breaker,
            broken=(OSError, TimeoutError),
        )
        #: Start times of calls in flight; probes with the number of times the circuit had opened, others with 0.
        self.calls: list[tuple[float, int]] = []

    @property
    def state(self) -> BreakerState:
        return self.breaker.state


class Limited(RuleBasedStateMachine):
    @initialize(burst=st.integers(1, 20), probes=st.integers(1, 3), begin=st.floats(0, 1e6))
    def begin(self, burst: int, probes: int, begin: float) -> None:
        self.bucket = TokenBucket(RateLimit[Any](100, timedelta(seconds=1), burst=burst))
        self.burst = burst
        self.steps = [Step(self.bucket, probes), Step(self.bucket, probes)]
        self.began = self.now = begin
        self.given = 0

    @rule(after=st.floats(0, 6))
    def time_passes(self, after: float) -> None:
        self.now += after

    def ask(self, step: Step) -> float:
        before = step.state
        level = self.bucket.level(self.now)
        wait = step.limits.wait(self.now, len(step.calls))
        if wait:
            assert self.bucket.level(self.now) == level, "units were lost"
            assert wait < inf or step.calls, "nothing will wake the step"
            return wait
        assert len(step.calls) < step.adaptive.limit
        assert before is BreakerState.CLOSED or step.state is BreakerState.HALF_OPEN
        probe = step.state is BreakerState.HALF_OPEN
        step.calls.append((self.now, step.breaker.opened if probe else 0))
        self.given += 1
        return 0.0

    @rule(which=st.integers(0, 1), times=st.integers(1, 15))
    def call(self, which: int, times: int) -> None:
        for _ in range(times):
            if self.ask(self.steps[which]):
                break

    @rule(
        which=st.integers(0, 1),
        times=st.integers(1, 15),
        error=st.sampled_from([None, None, OSError(), TimeoutError(), ValueError()]),
        cancelled=st.booleans(),
    )
    def end(self, which: int, times: int, error: BaseException | None, cancelled: bool) -> None:
        step = self.steps[which]
        for _ in range(min(times, len(step.calls))):
            in_flight = len(step.calls)
            latency = self.now - step.calls.pop(0)[0]
            step.limits.ended(self.now, latency, error, in_flight=in_flight, cancelled=cancelled)

    @rule(which=st.integers(0, 1))
    def break_down(self, which: int) -> None:
        """Calls are made and fail until the circuit is open, or the step may not call for another reason."""
        step = self.steps[which]
        for _ in range(20):
            self.call(which, 5)
            self.end(which, 5, OSError(), False)
            if step.state is BreakerState.OPEN:
                break
            self.now += 0.3

    @rule(which=st.integers(0, 1), succeed=st.booleans())
    def try_again(self, which: int, succeed: bool) -> None:
        """After the pause: probes are given up, and then others succeed or fail."""
        step = self.steps[which]
        before = step.state
        if before is not BreakerState.OPEN:
            return
        self.now += 61
        step.limits.leave()
        self.steps[1 - which].limits.leave()
        self.end(which, len(step.calls), None, True)
        self.call(which, 15)
        for cancelled in (True, False):
            assert step.calls, "no probe may be made"
            assert len(step.calls) <= step.probes
            self.end(which, len(step.calls), None if succeed else OSError(), cancelled)
            self.now += 1
            self.call(which, 15)
        while succeed and step.state is BreakerState.HALF_OPEN:
            assert step.calls, "no probe may be made"
            self.end(which, len(step.calls), None, False)
            self.now += 1
            self.call(which, 15)
        assert step.state is (BreakerState.CLOSED if succeed else BreakerState.OPEN)

    @rule(which=st.integers(0, 1))
    def nothing_to_call(self, which: int) -> None:
        self.steps[which].limits.leave()

    @rule(which=st.integers(0, 1))
    def whoever_asks_when_told_may_call(self, which: int) -> None:
        """Once its calls have ended; the other one asks all the time."""
        step, other = self.steps[which], self.steps[1 - which]
        for _ in range(300):
            wait = self.ask(step)
            if not wait:
                return
            if wait == inf:
                self.end(which, len(step.calls), None, False)
            else:
                self.now += wait
            if not self.ask(other):
                self.end(1 - which, 1, None, False)
        raise AssertionError(f"still waiting: {step.state}, {step.adaptive.limit}")

    @invariant()
    def never_too_much(self) -> None:
        for step in getattr(self, "steps", []):
            assert LEAST <= step.adaptive.limit <= MOST
            if step.state is BreakerState.HALF_OPEN:
                probes = [opened for _, opened in step.calls if opened == step.breaker.opened]
                assert len(probes) <= step.probes
        if hasattr(self, "given"):
            assert self.given <= self.burst + 100 * (self.now - self.began) + 1e-3


Limited.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLimited = Limited.TestCase
