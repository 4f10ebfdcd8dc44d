"""All limits of a step's calls together."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.calls.adaptive import Adaptive
from aflow.machines.calls.adaptive_limiter import AdaptiveLimiter
from aflow.machines.calls.breaker import Breaker, BreakerState, CircuitBreaker, CircuitOpen
from aflow.machines.calls.call import Call
from aflow.machines.calls.limits import CallLimits, StepLimits
from aflow.machines.calls.rate import RateLimit, SharedBuckets, TokenBucket
from aflow.machines.calls.settings import CallSettings


def bucket(burst: int = 1) -> TokenBucket:
    return TokenBucket(RateLimit[Any](10, timedelta(seconds=1), burst=burst))


def breaker(*, fail_fast: bool = False) -> Breaker:
    """Opens at the first failure, for 5 seconds."""
    return Breaker(CircuitBreaker(calls=1, fail_fast=fail_fast))


def adaptive(limit: int) -> AdaptiveLimiter:
    return AdaptiveLimiter(start=limit, least=limit, most=limit)


def test_a_step_without_limits_never_waits() -> None:
    assert CallLimits().wait(0.0, 1_000_000) == 0


def test_a_full_limit_takes_nothing_from_the_bucket() -> None:
    units = bucket()
    limits = CallLimits(bucket=units, adaptive=adaptive(3))

    assert limits.wait(0.0, 3) == inf
    assert units.level(0.0) == 1


def test_an_open_circuit_takes_nothing_from_the_bucket() -> None:
    units = bucket(burst=2)
    limits = CallLimits(bucket=units, breaker=breaker())
    limits.wait(0.0, 0)
    limits.ended(0.0, 0.0, OSError(), in_flight=1)

    assert limits.wait(1.0, 0) == 4
    assert units.level(1.0) == 2


def test_an_empty_bucket_takes_no_place_of_a_probe() -> None:
    units, circuit = bucket(), breaker()
    limits = CallLimits(bucket=units, breaker=circuit)
    limits.wait(0.0, 0)
    limits.ended(0.0, 0.0, OSError(), in_flight=1)
    units.take("somebody", 5.0)

    assert limits.wait(5.0, 0) == pytest.approx(0.1)
    assert limits.wait(5.1, 0) == 0
    assert limits.wait(5.2, 1) == inf


def test_a_step_blocked_for_another_reason_gives_up_its_turn() -> None:
    units = bucket()
    one, other = CallLimits(bucket=units, adaptive=adaptive(1)), CallLimits(bucket=units)
    other.wait(0.0, 0)
    one.wait(0.0, 0)
    other.wait(0.0, 0)

    assert one.wait(0.1, 1) == inf
    assert other.wait(0.1, 0) == 0


def test_a_call_that_fails_fast_gives_up_its_turn() -> None:
    units, circuit = bucket(), breaker(fail_fast=True)
    one, other = CallLimits(bucket=units, breaker=circuit), CallLimits(bucket=units)
    one.wait(0.0, 0)
    one.wait(0.0, 1)
    one.ended(0.0, 0.0, OSError(), in_flight=1)

    with pytest.raises(CircuitOpen):
        one.wait(0.1, 0)

    assert units.waiting == 0
    assert other.wait(0.1, 0) == 0


def test_errors_that_are_no_failures_for_the_breaker_do_not_open_it() -> None:
    circuit = breaker()
    limits = CallLimits(breaker=circuit, broken=OSError)
    limits.wait(0.0, 0)
    limits.ended(0.0, 0.0, ValueError(), in_flight=1)

    assert circuit.state is BreakerState.CLOSED


def test_a_call_that_was_given_up_says_nothing() -> None:
    circuit = breaker()
    limits = CallLimits(breaker=circuit)
    limits.wait(0.0, 0)
    limits.ended(0.0, 0.0, OSError(), in_flight=1, cancelled=True)

    assert circuit.state is BreakerState.CLOSED


def test_a_function_for_errors_that_raises_counts_as_a_failure() -> None:
    def broken(error: BaseException) -> bool:
        raise RuntimeError("no idea")

    circuit = breaker()
    limits = CallLimits(breaker=circuit, broken=broken)
    limits.wait(0.0, 0)

    with pytest.raises(RuntimeError, match="no idea"):
        limits.ended(0.0, 0.0, OSError(), in_flight=1)

    assert circuit.state is BreakerState.OPEN


@pytest.mark.parametrize(("overload", "cut"), [(OSError, True), (ValueError, False)])
def test_only_errors_that_mean_overload_cut_the_adaptive_limit(
    overload: type[Exception], cut: bool
) -> None:
    limit = AdaptiveLimiter(start=20, least=1, most=1000)
    limits = CallLimits(adaptive=limit, overload=overload)
    for step in range(80):
        limits.ended(step / 100, 0.01, OSError(), in_flight=20)

    assert (limit.limit < 20) is cut


class _Fixed:
    """A limiter of a user: it records what ended."""

    def __init__(self, settings: Adaptive) -> None:
        self.limit = settings.most * 2
        self.seen: list[tuple[float, bool, int]] = []

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None:
        self.seen.append((latency, ok, in_flight))
        self.limit = 1


def test_the_limit_of_a_user_limiter_is_clamped_to_the_bounds() -> None:
    made: list[_Fixed] = []

    def make(settings: Adaptive) -> _Fixed:
        made.append(_Fixed(settings))
        return made[-1]

    settings = CallSettings(
        call=_unused, capacity=7, adaptive=Adaptive(start=3, least=2, most=7, limiter=make)
    )
    limits = StepLimits(settings, SharedBuckets())
    call = Call(1, None, None)

    assert limits.capacity == 7
    assert limits.wait(call, 1.0, 0) == 0
    limits.ended(call, 1.5, None, 1)
    assert limits.capacity == 2
    assert made[0].seen == [(0.5, True, 1)]


def _no_limiter(settings: Adaptive) -> object:
    return object()


@pytest.mark.parametrize("limiter", [3, _no_limiter], ids=["number", "no limiter"])
def test_what_makes_no_limiter_is_refused(limiter: Any) -> None:
    with pytest.raises(FlowDefinitionError, match=r"Adaptive\.limiter"):
        Adaptive(limiter=limiter).new_limiter()


async def _unused(value: Any) -> Any:
    raise AssertionError(f"called for {value!r}")
