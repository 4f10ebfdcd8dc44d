"""Steps that call, in whole pipelines and virtual time: how many calls at once, in which order results leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import aflow as af
from aflow.testing import At, CollectSink, Pause, ScriptedSource, run_flow
from aflow.testing.scripted_source import Line
from tests.runtime.calls.questions import HOUR, ORDERS, SECOND, Service, ask, asked


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("chaining", [True, False])
def test_as_many_calls_are_under_way_as_may_be_and_never_more(order: str, chaining: bool) -> None:
    service = Service()
    flow, sink = asked(range(100), service, order, capacity=10)

    outcome = run_flow(flow, options=af.Options(chaining=chaining))

    assert service.most == 10
    assert outcome.took == 10 * SECOND
    assert sorted(sink.values) == list(range(100))


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_a_capacity_of_one_makes_one_call_after_the_other(order: str) -> None:
    service = Service()
    flow, sink = asked(range(5), service, order, capacity=1)

    outcome = run_flow(flow)

    assert (service.most, sink.values, outcome.took) == (1, [0, 1, 2, 3, 4], 5 * SECOND)


def test_each_subtask_has_its_own_capacity() -> None:
    service = Service()
    flow, sink = af.Flow("asking"), CollectSink[int]()
    numbers = flow.source(range(64), name="numbers").rebalance()
    ask(numbers, service, capacity=4).to(sink)

    run_flow(flow, parallelism=2, options=af.Options(batch_records=1))

    assert service.most == 8


def test_few_calls_are_in_flight_while_many_end_in_each_pass_of_the_loop() -> None:
    service = Service(takes=lambda number: 0.0)  # all calls in flight end in each pass
    flow, sink = asked(range(8_000), service, "unordered", capacity=2_000)

    run_flow(flow)

    assert 64 <= service.most <= 320
    assert sorted(sink.values) == list(range(8_000))


def test_all_calls_are_in_flight_within_a_few_passes_if_none_ends() -> None:
    service = Service()
    flow, sink = asked(range(2_000), service, "unordered", capacity=2_000)

    outcome = run_flow(flow)

    assert (service.most, outcome.took) == (2_000, SECOND)
    assert len(sink.values) == 2_000


class Passes:
    """Counts started calls by pass of the loop. A pass may be counted with the following one."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self._is_open = False

    async def call(self, number: int) -> int:
        if not self._is_open:
            self._is_open = True
            self.started.append(0)
            asyncio.get_running_loop().call_soon(self._close)
        self.started[-1] += 1
        await asyncio.sleep(1)
        return number

    def _close(self) -> None:
        self._is_open = False


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("timeout", [None, HOUR])
def test_not_all_calls_that_end_together_let_another_start_in_that_pass_of_the_loop(
    order: str, timeout: timedelta | None
) -> None:
    passes = Passes()
    flow, sink = af.Flow("calls"), CollectSink[int]()
    numbers = flow.source(range(3_000), name="numbers")
    options = af.calls.CallOptions[int](capacity=1_000, timeout=timeout)
    if order == "by key":
        called = numbers.key_by(lambda number: number).map_async(
            passes.call, name="calls", **options
        )
    else:
        options["ordered"] = order == "ordered"
        called = numbers.map_async(passes.call, **options)
    called.to(sink)

    outcome = run_flow(flow)

    assert max(passes.started) <= 700
    assert outcome.took == 3 * SECOND
    assert sorted(sink.values) == list(range(3_000))


def falling(number: int) -> float:
    """The later the shorter."""
    return 10.0 - number


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("ordered", [0, 1, 2, 3, 4]),
        ("unordered", [4, 3, 2, 1, 0]),
        ("by key", [4, 3, 2, 1, 0]),
    ],
)
def test_results_leave_as_they_came_or_as_they_complete(order: str, expected: list[int]) -> None:
    flow, sink = asked(range(5), Service(falling), order)

    outcome = run_flow(flow)

    assert sink.values == expected
    assert outcome.took == timedelta(seconds=10)


@pytest.mark.parametrize("order", ORDERS)
def test_a_result_behind_a_failed_call_is_emitted_when_the_failure_is_dropped(order: str) -> None:
    """The failed call is slower than the call behind it, and no later call completes."""

    async def slow_failure(number: int) -> int:
        if number == 0:
            await asyncio.sleep(2)
            raise ConnectionError
        await asyncio.sleep(1)
        return number

    flow, sink = af.Flow("calls"), CollectSink[int]()
    numbers = flow.source([0, 1], name="numbers")
    drop = af.calls.CallOptions[int](on_error=af.calls.Drop())
    match order:
        case "by key":
            keyed = numbers.key_by(lambda number: number)
            keyed.map_async(slow_failure, name="calls", **drop).to(sink)
        case _:
            drop["ordered"] = order == "ordered"
            numbers.map_async(slow_failure, name="calls", **drop).to(sink)

    run_flow(flow)

    assert sink.values == [1]


def test_by_key_a_slow_key_holds_up_nobody_else_and_keeps_its_order() -> None:
    service = Service(lambda number: 10.0 if number == 0 else 1.0, key=lambda number: number % 2)
    flow, sink = asked(range(6), service, "by key")

    outcome = run_flow(flow)

    assert sink.values == [1, 3, 5, 0, 2, 4]
    assert outcome.took == timedelta(seconds=12)


@pytest.mark.parametrize("order", ORDERS)
def test_a_window_behind_the_step_misses_nothing_since_no_record_is_overtaken_by_a_watermark(
    order: str,
) -> None:
    """Calls of each window take longer than those of the next one."""
    service = Service(lambda number: 50.0 - number)
    flow, sums = af.Flow("asking"), CollectSink[tuple[int, int]]()
    source = ScriptedSource[int](*(At(n, n * 100) for n in range(40)))
    timed = flow.source(source, name="numbers").event_time(max_delay=timedelta(0))
    (
        ask(timed, service, order, capacity=7)
        .key_by(lambda _: "all")
        .window(af.Tumbling(SECOND))
        .fold(int, lambda so_far, number: so_far + number, name="sums")
        .map(lambda one: (one.window.start, one.value))
        .to(sums)
    )

    run_flow(flow, options=af.Options(batch_records=3))

    assert sums.values == [(at * 1000, sum(range(at * 10, at * 10 + 10))) for at in range(4)]


def test_unordered_a_completed_call_behind_a_watermark_waits_for_all_in_front_of_it() -> None:
    takes = {0: 5.0, 1: 1.0, 2: 1.0, 3: 0.5}
    service = Service(takes.__getitem__)
    flow, sink = af.Flow("asking"), CollectSink[int]()
    # A watermark behind each batch: 0 and 1, then 2 and 3.
    source = ScriptedSource[int](At(0, 0), At(1, 100), Pause(SECOND / 10), At(2, 200), At(3, 300))
    timed = flow.source(source, name="numbers").event_time(max_delay=timedelta(0))
    ask(timed, service, "unordered").to(sink)

    outcome = run_flow(flow)

    assert sink.values == [1, 0, 3, 2]
    assert outcome.took == timedelta(seconds=5)


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_asked_in_subtasks_comes_in_time_to_a_window_of_all(order: str) -> None:
    service = Service(lambda number: number * 7 % 11 / 10)
    flow, sums = af.Flow("asking"), CollectSink[tuple[int, int]]()
    scripts: dict[str, list[Line[int]]] = {
        f"split {split}": [At(n, n * 100) for n in range(split, 60, 3)] for split in range(3)
    }
    numbers = flow.source(ScriptedSource.of_splits(scripts), name="numbers")
    timed = numbers.event_time(max_delay=timedelta(0))
    (
        ask(timed, service, order, capacity=2)
        .window_all(af.Tumbling(SECOND))
        .fold(int, lambda so_far, number: so_far + number, name="sums")
        .map(lambda one: (one.window.start, one.value))
        .to(sums)
    )

    run_flow(flow, parallelism=3)

    assert sums.values == [(at * 1000, sum(range(at * 10, at * 10 + 10))) for at in range(6)]


async def thrice(number: int) -> list[int]:
    return [number] * 3


async def as_often_as_it_says(number: int) -> AsyncIterator[int]:
    for _ in range(number):
        yield number


def test_flat_map_async_sends_all_that_a_list_has_or_a_generator_yields() -> None:
    flow, lists, generated = af.Flow("many"), CollectSink[int](), CollectSink[int]()
    numbers = flow.source(range(4), name="numbers")
    numbers.flat_map_async(thrice, name="lists").to(lists)
    numbers.flat_map_async(as_often_as_it_says, name="generated").to(generated)

    run_flow(flow)

    assert lists.values == [n for n in range(4) for _ in range(3)]
    assert generated.values == [1, 2, 2, 3, 3, 3]


def test_a_generator_whose_time_is_up_is_closed() -> None:
    closed: list[int] = []

    async def endless(number: int) -> AsyncIterator[int]:
        try:
            while True:
                yield number
                await asyncio.sleep(1)
        finally:
            closed.append(number)

    flow, sink = af.Flow("endless"), CollectSink[int]()
    called = flow.source(range(2)).flat_map_async(
        endless, name="endless", timeout=5 * SECOND, on_error=af.calls.Drop()
    )
    called.to(sink)

    outcome = run_flow(flow)

    assert (sorted(closed), sink.values) == ([0, 1], [])
    assert outcome.took == 5 * SECOND


async def odd(number: int) -> bool:
    return number % 2 == 1


@pytest.mark.parametrize("ordered", [True, False])
def test_filter_async_keeps_values_with_their_timestamps(ordered: bool) -> None:
    flow, sink = af.Flow("odd"), CollectSink[int]()
    source = ScriptedSource[int](*(At(n, n * 10) for n in range(6)))
    flow.source(source).filter_async(odd, name="odd", ordered=ordered).to(sink)

    run_flow(flow)

    assert sink.values == [1, 3, 5]
    assert sink.timestamps == [10, 30, 50]


def test_results_and_dead_letters_reach_their_sinks_in_the_order_of_the_records() -> None:
    reached: list[int] = []
    failed = af.Tag[af.calls.FailedCall[int]]("failed")

    async def odd(value: int) -> int:
        if value % 2 == 0:
            raise ConnectionError("even")
        await asyncio.sleep(10 - value)
        return value

    flow = af.Flow("order")
    answers = flow.source(range(10)).map_async(odd, on_error=af.calls.DeadLetter(failed))
    answers.to(af.CallbackSink(reached.append), name="answers")
    answers.side(failed).map(lambda lost: lost.value).to(
        af.CallbackSink(reached.append), name="failed"
    )
    run_flow(flow)

    assert reached == list(range(10))
