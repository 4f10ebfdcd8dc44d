"""Limiters of the user that have no valid limit, or raise: the job fails, and the error names step and limiter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aflow as af
from aflow.testing import CollectSink, run_flow


class Broken:
    """It is broken after ``calls`` calls, in the way that ``how`` says."""

    def __init__(self, how: Callable[[], Any], calls: int, *, in_ended: bool = False) -> None:
        self._how, self._calls, self._in_ended = how, calls, in_ended

    @property
    def limit(self) -> int:
        if self._calls <= 0 and not self._in_ended:
            return self._how()  # type: ignore[no-any-return]
        return 4

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None:
        self._calls -= 1
        if self._calls <= 0 and self._in_ended:
            self._how()


async def ask(value: int) -> int:
    if value % 7 == 3:
        raise LookupError(value)
    return value


def failure(limiter: Broken) -> af.OperatorError:
    flow = af.Flow("limited")
    flow.source(range(100)).map_async(
        ask,
        name="ask",
        capacity=af.calls.Adaptive(limiter=lambda _: limiter),
        on_error=af.calls.Drop(),
    ).to(CollectSink[int]())
    with pytest.raises(af.OperatorError) as caught:
        run_flow(flow)
    return caught.value


def boom() -> int:
    raise RuntimeError("boom")


@pytest.mark.parametrize("calls", [0, 1, 20])
@pytest.mark.parametrize("limit", [0, -1, None, 2.5, True, "4"])
def test_a_limit_that_is_no_positive_int_fails_the_step(limit: object, calls: int) -> None:
    error = failure(Broken(lambda: limit, calls))

    assert error.operator == "ask"
    assert error.record is None
    assert "step 'ask'" in str(error)
    assert f"the limiter Broken.limit is {limit!r}; it must be an int" in str(error)


@pytest.mark.parametrize("calls", [0, 1, 20])
def test_an_error_of_the_property_names_the_limiter_and_no_record(calls: int) -> None:
    error = failure(Broken(boom, calls))

    assert error.record is None
    assert "step 'ask'" in str(error)
    assert "the limiter Broken.limit raised RuntimeError: boom" in str(error)


@pytest.mark.parametrize("calls", [1, 20])
def test_an_error_of_ended_names_the_limiter_and_no_record(calls: int) -> None:
    error = failure(Broken(boom, calls, in_ended=True))

    assert error.record is None
    assert str(error) == "step 'ask' failed: the limiter Broken.ended() raised RuntimeError: boom"
