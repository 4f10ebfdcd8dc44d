"""Timeouts and retries of calls on a real loop, to the moment: SEMANTICS, "Async wait"."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.testing import CollectSink, Pause, ScriptedSource, run_flow
from tests.runtime.calls.questions import SECOND


def timed(
    fn: Callable[[int], Awaitable[Any]], *lines: int | Pause, **options: Any
) -> tuple[af.Flow, CollectSink[Any]]:
    flow, sink = af.Flow("timed"), CollectSink[Any]()
    numbers = flow.source(ScriptedSource[int](*lines), name="numbers")
    numbers.map_async(fn, name="ask", **options).to(sink)
    return flow, sink


def kind(number: int, error: BaseException) -> str:
    return type(error).__name__


@pytest.mark.parametrize(
    ("takes", "expected", "ends"),
    [(4.999, 1, 4.999), (5.001, "TimeoutError", 5.0), (3600.0, "TimeoutError", 5.0)],
)
def test_the_time_is_up_exactly_when_it_is_up_and_a_completion_before_cancels_it(
    takes: float, expected: object, ends: float
) -> None:
    flow, sink = timed(
        lambda number: asyncio.sleep(takes, number),
        1,
        timeout=5 * SECOND,
        on_error=af.calls.Fallback(kind),
    )

    outcome = run_flow(flow)

    assert sink.values == [expected]
    assert outcome.took.total_seconds() == pytest.approx(ends, abs=0.001)


def test_the_time_of_a_record_begins_with_its_first_call_and_not_while_it_waits_for_one() -> None:
    flow, sink = timed(
        lambda number: asyncio.sleep(4, number),
        *range(5),
        timeout=5 * SECOND,
        capacity=1,
    )

    outcome = run_flow(flow)

    assert sink.values == [0, 1, 2, 3, 4]
    assert outcome.took == timedelta(seconds=20)


def test_the_time_covers_all_attempts_and_the_pauses_between_them() -> None:
    tried: list[float] = []

    async def fails(number: int) -> int:
        tried.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        raise ConnectionError

    flow, sink = timed(
        fails,
        1,
        timeout=5 * SECOND,
        retry=af.Retry(attempts=10, delay=SECOND),
        on_error=af.calls.Fallback(kind),
    )

    outcome = run_flow(flow)

    assert tried == [0.0, 2.0, 4.0]
    assert sink.values == ["TimeoutError"]
    assert outcome.took == timedelta(seconds=5)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_record_whose_time_is_up_frees_its_slot_at_once(ordered: bool) -> None:
    async def one_is_slow(number: int) -> int:
        await asyncio.sleep(3600 if number == 0 else 1)
        return number

    flow, sink = timed(
        one_is_slow,
        *range(3),
        timeout=5 * SECOND,
        capacity=1,
        ordered=ordered,
        on_error=af.calls.Drop(),
    )

    outcome = run_flow(flow)

    assert sink.values == [1, 2]
    assert outcome.took == timedelta(seconds=7)


def test_completed_and_not_emitted_the_result_wins_over_the_time() -> None:
    """In order, so that the second result waits for the first until long after its own time was up."""

    def until(number: int) -> int:
        return 3_600_000 if number == 1 else 2_000

    flow, sink = timed(
        lambda number: asyncio.sleep(60 if number == 1 else 1, number),
        1,
        2,
        deadline=until,
        on_error=af.calls.Fallback(kind),
    )

    outcome = run_flow(flow)

    assert sink.values == [1, 2]
    assert outcome.took == timedelta(seconds=60)


def test_while_a_record_waits_for_its_retry_others_have_its_slot() -> None:
    begun: list[tuple[float, int]] = []

    async def fails_once(number: int) -> int:
        begun.append((asyncio.get_running_loop().time(), number))
        await asyncio.sleep(1)
        if number == 0 and len(begun) == 1:
            raise ConnectionError
        return number

    flow, sink = timed(fails_once, 0, 1, 2, capacity=1, retry=af.Retry(delay=1.5 * SECOND))

    run_flow(flow)

    assert begun == [(0.0, 0), (1.0, 1), (2.0, 2), (3.0, 0)]
    assert sink.values == [0, 1, 2]


def test_by_key_the_next_record_of_a_key_waits_for_all_attempts_of_the_one_before() -> None:
    begun: list[int] = []

    async def fails_once(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(1)
        if begun == [0, 1]:
            raise ConnectionError
        return number

    flow, sink = af.Flow("keys"), CollectSink[int]()
    keyed = flow.source(range(4)).key_by(lambda number: number % 2)
    keyed.map_async(fails_once, name="ask", retry=af.Retry(delay=10 * SECOND)).to(sink)

    run_flow(flow)

    assert begun.index(2) > max(place for place, number in enumerate(begun) if number == 0)
    assert sorted(sink.values) == [0, 1, 2, 3]


def test_a_call_that_hangs_is_ended_attempt_by_attempt_and_its_slot_serves_others() -> None:
    begun: list[tuple[float, int]] = []

    async def hangs_twice(number: int) -> int:
        begun.append((asyncio.get_running_loop().time(), number))
        if number == 0 and len([one for one in begun if one[1] == 0]) < 3:
            await asyncio.sleep(3600)
        await asyncio.sleep(1)
        return number

    flow, sink = af.Flow("attempts"), CollectSink[int]()
    flow.source(range(3)).map_async(
        hangs_twice,
        name="ask",
        capacity=1,
        ordered=False,
        attempt_timeout=timedelta(seconds=10),
        retry=af.Retry(attempts=3, delay=timedelta(seconds=0.5), on=TimeoutError),
    ).to(sink)

    run_flow(flow)

    assert begun == [(0.0, 0), (10.0, 1), (11.0, 0), (21.0, 2), (22.0, 0)]
    assert sink.values == [1, 2, 0]
