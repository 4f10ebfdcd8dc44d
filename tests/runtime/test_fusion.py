"""Maps and filters that run as one loop: their effect is that of single steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.operators.fused import loop

STEPS: dict[str, Callable[[int], int]] = {
    "m": lambda n: n * 3 + 1,
    "f": lambda n: n % 2,
    "s": lambda n: -n,
}


def divide(number: int) -> int:
    return number // 0


def same(number: int) -> int:
    return number


def build(numbers: list[int], shape: str, *, timed: bool) -> tuple[af.Flow, af.CollectSink[int]]:
    flow, sink = af.Flow("fusing"), af.CollectSink[int]()
    stream = flow.source(numbers)
    if timed:
        stream = stream.event_time(lambda n: n)
    for index, step in enumerate(shape):
        if step == "f":
            stream = stream.filter(STEPS[step], name=f"step-{index}")
        else:
            stream = stream.map(STEPS[step], name=f"step-{index}")
    stream.to(sink)
    return flow, sink


async def run(flow: af.Flow, *, chaining: bool) -> dict[str, tuple[int, int]]:
    options = af.Options(chaining=chaining, batch_records=7)
    async with flow.start(options=options) as job:
        await job.wait()
    steps = job.metrics().steps.items()
    return {name: (m.records_in, m.records_out) for name, m in steps if name.startswith("step")}


@given(
    numbers=st.lists(st.integers(-50, 50), max_size=40),
    shape=st.text("mfs", min_size=1, max_size=6),
    timed=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_results_timestamps_and_counters_are_those_of_the_single_steps(
    numbers: list[int], shape: str, timed: bool
) -> None:
    fused, found = build(numbers, shape, timed=timed)
    single, expected = build(numbers, shape, timed=timed)

    counted = asyncio.run(run(fused, chaining=True))

    assert counted == asyncio.run(run(single, chaining=False))
    assert found.values == expected.values
    assert found.timestamps == expected.timestamps


@pytest.mark.parametrize("broken", range(5))
@pytest.mark.parametrize("fail", [divide, int.__add__], ids=["a Python function", "one of C"])
def test_an_error_names_the_step_that_failed_and_the_record(
    broken: int, fail: Callable[[Any], Any]
) -> None:
    flow = af.Flow("broken")
    stream: af.Stream[int] = flow.source([10, 20])
    for index in range(5):
        fn: Callable[[Any], Any] = fail if index == broken else same
        add = stream.filter if index == 2 else stream.map
        stream = add(fn, name=f"step-{index}")
    stream.to(af.CollectSink[int]())

    with pytest.raises(af.OperatorError) as info:
        asyncio.run(flow.run())

    assert (info.value.operator, info.value.record) == (f"step-{broken}", 10)
    assert isinstance(info.value.__cause__, ZeroDivisionError | TypeError)


class Undecided:
    """An object without a truth value, like an array of NumPy."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


@pytest.mark.parametrize("shape", ["f", "mf", "fm", "mfm", "mmfmm"])
def test_a_result_that_is_neither_true_nor_false_is_the_failure_of_its_filter(shape: str) -> None:
    flow = af.Flow("undecided")
    stream: af.Stream[int] = flow.source([10, 20])
    for index, step in enumerate(shape):
        if step == "f":
            stream = stream.filter(lambda n: Undecided() if n == 20 else True, name="filter")
        else:
            stream = stream.map(same, name=f"map {index}")
    stream.to(af.CollectSink[int]())

    with pytest.raises(af.OperatorError, match="the truth value is ambiguous") as info:
        asyncio.run(flow.run())

    assert (info.value.operator, info.value.record) == ("filter", 20)


@pytest.mark.parametrize("shape", ["f", "mf", "fm", "mfm", "mmfmm"])
def test_a_fallback_that_is_neither_true_nor_false_is_the_failure_of_its_filter(shape: str) -> None:
    def keep(number: int) -> bool:
        if number == 20:
            raise KeyError(number)
        return True

    undecided: af.calls.Fallback[Any] = af.calls.Fallback(lambda _number, _error: Undecided())
    flow, results = af.Flow("undecided"), af.CollectSink[int]()
    stream: af.Stream[int] = flow.source([10, 20])
    for index, step in enumerate(shape):
        if step == "f":
            stream = stream.filter(keep, name="filter", on_error=undecided)
        else:
            stream = stream.map(same, name=f"map {index}")
    stream.to(results)

    with pytest.raises(af.OperatorError, match="the truth value is ambiguous") as info:
        asyncio.run(flow.run())

    assert (info.value.operator, info.value.record) == ("filter", 20)


@pytest.mark.parametrize("second", range(6))
@pytest.mark.parametrize("first", range(5))
def test_a_replaced_result_passes_the_steps_after_the_failed_one(first: int, second: int) -> None:
    """The functions count in thousands the steps that they fail in; 5 is none."""
    shape = "mmfmm"
    flow, results = af.Flow("replaced"), af.CollectSink[int]()
    stream: af.Stream[int] = flow.source([10, 20, 30])

    def fails(index: int, number: int) -> bool:
        return index in {first, second} and number % 100 >= 20 and number % 100 < 30

    for index, kind in enumerate(shape):

        def add(number: int, index: int = index) -> int:
            if fails(index, number):
                raise KeyError(number)
            return number + 1

        def keep(number: int, index: int = index) -> bool:
            if fails(index, number):
                raise KeyError(number)
            return number != 30 + 2

        if kind == "f":
            stream = stream.filter(keep, on_error=af.calls.Fallback(lambda _n, _e: True))
        else:
            stream = stream.map(add, on_error=af.calls.Fallback(lambda n, _e: n + 1001))
    stream.to(results)

    asyncio.run(flow.run())

    replaced = sum(shape[index] == "m" for index in {first, second} - {5})
    assert results.values == [14, 24 + 1000 * replaced]


def cancel(number: int) -> int:
    raise asyncio.CancelledError(f"given up {number}")


def test_a_step_that_raises_cancelled_error_has_failed() -> None:
    flow = af.Flow("cancelled by a function")
    flow.source([10]).map(same).map(cancel, name="gives up").to(af.CollectSink[int]())

    with pytest.raises(af.OperatorError, match="CancelledError: given up 10") as info:
        asyncio.run(flow.run())

    assert (info.value.operator, info.value.record) == ("gives up", 10)


def test_the_record_of_an_error_is_the_input_of_the_failed_step() -> None:
    flow = af.Flow("run")
    flow.source([10]).map(str).map(divide, name="second").to(  # type: ignore[arg-type]
        af.CollectSink[int]()
    )

    with pytest.raises(af.OperatorError) as info:
        asyncio.run(flow.run())

    assert (info.value.operator, info.value.record) == ("second", "10")


def test_a_step_with_two_readers_is_not_fused_away() -> None:
    flow = af.Flow("fork")
    left, right = af.CollectSink[int](), af.CollectSink[int]()
    doubled = flow.source([1, 2, 3]).map(lambda n: n * 2)
    doubled.map(lambda n: n + 1).to(left)
    doubled.filter(lambda n: n > 2).map(lambda n: -n).to(right)

    asyncio.run(flow.run())

    assert (left.values, right.values) == ([3, 5, 7], [-4, -6])


def test_a_loop_is_made_once_for_each_shape() -> None:
    assert loop("mfm") is loop("mfm")
