"""The end of a job that has calls under way: those that are to be waited for, and those that are not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.testing import (
    CollectSink,
    Crash,
    FlowDriver,
    Pause,
    ScriptedSource,
    VirtualClock,
    run_flow,
)
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import virtual_time
from tests.runtime.calls.questions import HOUR, ORDERS, SECOND, Service, ask, asked
from tests.runtime.checkpoints.ledger_sink import LedgerSink

FOREVER = Pause(1000 * HOUR)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_end_of_the_input_waits_for_all_calls(order: str, parallelism: int) -> None:
    service = Service(lambda number: float(number))
    flow, sink = asked(range(20), service, order, capacity=50)

    outcome = run_flow(flow, parallelism=parallelism)

    assert sorted(sink.values) == list(range(20))
    assert outcome.took == timedelta(seconds=19)


def test_the_end_of_the_input_waits_for_retries() -> None:
    tried: list[float] = []

    async def third_time(number: int) -> int:
        tried.append(asyncio.get_running_loop().time())
        if len(tried) < 3:
            raise ConnectionError
        return number

    flow, sink = af.Flow("again"), CollectSink[int]()
    retry = af.Retry(attempts=3, delay=HOUR)
    flow.source(range(1)).map_async(third_time, name="again", retry=retry).to(sink)

    run_flow(flow)

    assert sink.values == [0]
    assert tried == [0.0, 3600.0, 7200.0]


def test_steps_behind_each_other_end_one_after_the_other() -> None:
    flow, sink = af.Flow("chain"), CollectSink[int]()
    numbers = flow.source(range(3))
    first = ask(numbers, Service(lambda number: 10.0), "unordered", name="first")
    ask(first, Service(lambda number: 5.0), name="second").to(sink)

    outcome = run_flow(flow)

    assert (sink.values, outcome.took) == ([0, 1, 2], timedelta(seconds=15))


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@virtual_time
async def test_stopping_waits_for_the_calls_of_all_that_was_read(order: str, drain: bool) -> None:
    service = Service(lambda number: 100.0)
    flow, sink = asked(ScriptedSource[int](1, 2, 3, FOREVER, 4), service, order)

    with no_leftovers("the job"):
        async with FlowDriver(flow) as driver:
            await driver.advance(10 * SECOND)
            await driver.job.stop(drain=drain)

    assert sink.values == [1, 2, 3]
    assert asyncio.get_running_loop().time() == 100.0


@pytest.mark.parametrize(("drain", "fired"), [(False, []), (True, [6])])
@virtual_time
async def test_windows_behind_calls_fire_only_if_the_job_is_drained(
    drain: bool, fired: list[int]
) -> None:
    flow, sums = af.Flow("sums"), CollectSink[int]()
    timed = flow.source(ScriptedSource[int](1, 2, 3, FOREVER)).event_time(lambda n: n)
    windows = ask(timed, Service()).key_by(lambda _: "all").window(af.Tumbling(SECOND))
    windows.reduce(lambda a, b: a + b, name="sum").map(lambda one: one.value).to(sums)

    async with FlowDriver(flow) as driver:
        await driver.settle()
        await driver.job.stop(drain=drain)

    assert sums.values == fired


@virtual_time
async def test_cancelling_waits_for_no_call_and_leaves_none_behind() -> None:
    service = Service(lambda number: 100.0)
    flow, sink = asked(range(5), service)

    with no_leftovers("the job"):
        async with FlowDriver(flow) as driver:
            await driver.advance(10 * SECOND)
            await driver.job.cancel()

    assert asyncio.get_running_loop().time() == 10.0
    assert (sorted(service.cancelled), sink.values) == ([0, 1, 2, 3, 4], [])


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("seed", [None, 1], ids=repr)
def test_a_run_that_is_cancelled_however_early_leaves_no_call_behind(
    steps: int, seed: int | None
) -> None:
    service = Service(lambda number: number * 0.0)
    flow, _ = asked(range(200), service, capacity=3)

    @virtual_time(seed=seed)
    async def cancel_after_some_steps() -> None:
        with no_leftovers("the job"):
            running = asyncio.ensure_future(flow.run(options=af.Options(clock=VirtualClock())))
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait([running])
        assert running.cancelled()

    cancel_after_some_steps()

    assert service.under_way == 0


@virtual_time
async def test_a_failure_in_another_task_ends_all_calls() -> None:
    service, sink = Service(lambda number: 1000.0), CollectSink[int]()
    flow = af.Flow("two")
    ask(flow.source(range(5), name="calling"), service).to(sink)
    other = ScriptedSource[int](Pause(5 * SECOND), Crash())
    flow.source(other, name="other").to(CollectSink[int]())

    with (
        no_leftovers("the job"),
        pytest.raises(af.errors.SourceError, match="a crash of the script"),
    ):
        await flow.run(options=af.Options(clock=VirtualClock()))

    assert asyncio.get_running_loop().time() == 5.0
    assert len(service.cancelled) == 5


@virtual_time
async def test_a_call_that_fails_ends_the_job_and_all_other_calls() -> None:
    cancelled: list[int] = []

    async def third_fails(number: int) -> int:
        try:
            await asyncio.sleep(number)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        if number == 3:
            raise ValueError("three")
        return number

    flow, sink = af.Flow("fails"), CollectSink[int]()
    flow.source(range(6)).map_async(third_fails, name="third", ordered=False).to(sink)

    with (
        no_leftovers("the job"),
        pytest.raises(af.OperatorError, match="step 'third' failed on record 3: ValueError: three"),
    ):
        await flow.run(options=af.Options(clock=VirtualClock()))

    assert (sink.values, sorted(cancelled)) == ([0, 1, 2], [4, 5])


# ---------------------------------------------------------------------------------------------- checkpoints


def checkpointing(folder: Path, every: timedelta | None = None) -> af.Checkpointing:
    return af.Checkpointing(every=every, storage=folder)


@pytest.mark.parametrize("order", ORDERS)
@virtual_time
async def test_a_checkpoint_waits_for_no_call_and_what_is_under_way_is_called_for_again(
    order: str, tmp_path: Path
) -> None:
    service, sink = Service(lambda number: 100.0), LedgerSink[int]()

    def flow() -> af.Flow:
        made = af.Flow("again")
        numbers = made.source(ScriptedSource[int](1, 2, 3, FOREVER), name="numbers")
        ask(numbers, service, order).to(sink, name="out")
        return made

    async with FlowDriver(flow(), checkpointing=checkpointing(tmp_path)) as driver:
        await driver.advance(50 * SECOND)
        await driver.job.checkpoint()
        assert asyncio.get_running_loop().time() == 50.0
        await driver.job.cancel()
    async with FlowDriver(flow(), checkpointing=checkpointing(tmp_path)) as driver:
        await driver.advance(99 * SECOND)
        await driver.job.stop()

    assert sink.values == [1, 2, 3]
    assert service.begun == [1, 2, 3, 1, 2, 3]
    assert asyncio.get_running_loop().time() == 150.0


@virtual_time
async def test_restored_records_are_called_for_first_and_in_order_also_when_they_fill_the_step(
    tmp_path: Path,
) -> None:
    service, sink = Service(lambda number: 10.0), LedgerSink[int]()

    def flow(capacity: int) -> af.Flow:
        made = af.Flow("again")
        source = ScriptedSource[int](*range(20), Pause(5 * SECOND), *range(20, 30))
        ask(made.source(source, name="numbers"), service, capacity=capacity).to(sink, name="out")
        return made

    async with FlowDriver(flow(20), checkpointing=checkpointing(tmp_path)) as driver:
        await driver.advance(SECOND)
        await driver.job.checkpoint()
        await driver.job.cancel()
    service.begun.clear()
    async with FlowDriver(flow(2), checkpointing=checkpointing(tmp_path)) as driver:
        await driver.job.wait()

    assert sink.values == list(range(30))
    assert service.begun == list(range(30))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("chaining", [True, False])
@virtual_time
async def test_a_savepoint_with_calls_is_restored_with_any_parallelism_and_chaining(
    chaining: bool, parallelism: int, tmp_path: Path
) -> None:
    service, sink = Service(lambda number: 10.0), LedgerSink[int]()

    def flow(*lines: int | Pause) -> af.Flow:
        made = af.Flow("moved")
        scripts = {
            f"split {split}": [line + split * 100 if type(line) is int else line for line in lines]
            for split in range(3)
        }
        numbers = made.source(ScriptedSource.of_splits(scripts), name="numbers")
        first = ask(numbers, service, "unordered", name="first")
        ask(first.rebalance(), service, name="second").to(sink, name="out")
        return made

    lines = (1, 2, Pause(15 * SECOND), 3)
    savepoint = tmp_path / "savepoint"
    storage = checkpointing(tmp_path / "one")
    async with FlowDriver(flow(*lines), parallelism=2, checkpointing=storage) as driver:
        await driver.advance(12 * SECOND)
        await driver.job.savepoint(savepoint)
        await driver.job.cancel()
    async with FlowDriver(
        flow(*lines),
        parallelism=parallelism,
        options=af.Options(chaining=chaining),
        checkpointing=checkpointing(tmp_path / "other"),
        restore=savepoint,
    ) as driver:
        await driver.job.wait()

    assert sorted(sink.values) == [1, 2, 3, 101, 102, 103, 201, 202, 203]


@virtual_time
async def test_a_checkpoint_while_the_ended_input_waits_for_calls_keeps_them(
    tmp_path: Path,
) -> None:
    service, sink = Service(lambda number: 100.0), LedgerSink[int]()

    def flow() -> af.Flow:
        made = af.Flow("ended")
        numbers = made.source(ScriptedSource[int](1, 2, 3), name="numbers").rebalance()
        ask(numbers, service).to(sink, name="out")
        return made

    async with FlowDriver(flow(), checkpointing=checkpointing(tmp_path)) as driver:
        await driver.advance(50 * SECOND)
        await driver.job.checkpoint()
        await driver.job.cancel()
    async with FlowDriver(flow(), checkpointing=checkpointing(tmp_path)) as driver:
        await driver.job.wait()

    assert sink.values == [1, 2, 3]
    assert service.begun == [1, 2, 3, 1, 2, 3]


@virtual_time
async def test_a_stop_with_a_savepoint_leaves_no_record_in_flight(tmp_path: Path) -> None:
    service, sink = Service(lambda number: 100.0), LedgerSink[int]()

    def flow() -> af.Flow:
        made = af.Flow("stopped")
        numbers = made.source(ScriptedSource[int](1, 2, FOREVER, 3), name="numbers")
        ask(numbers, service).to(sink, name="out")
        return made

    async with FlowDriver(flow(), checkpointing=checkpointing(tmp_path / "one")) as driver:
        await driver.settle()
        await driver.job.stop(savepoint=tmp_path / "savepoint")
    storage = checkpointing(tmp_path / "other")
    async with FlowDriver(flow(), checkpointing=storage, restore=tmp_path / "savepoint") as driver:
        await driver.settle()
        await driver.job.stop()

    assert sink.values == [1, 2]
    assert service.begun == [1, 2]


@pytest.mark.parametrize("order", ORDERS)
def test_a_job_that_starts_again_calls_for_what_was_under_way_and_loses_no_retry(
    order: str, tmp_path: Path
) -> None:
    failed: list[int] = []

    async def fails_first(number: int) -> int:
        await asyncio.sleep(10)
        if number not in failed:
            failed.append(number)
            raise ConnectionError
        return number

    flow, sink = af.Flow("restarted"), LedgerSink[int]()
    source = ScriptedSource[int](1, 2, 3, Pause(15 * SECOND), Crash(), 4)
    numbers = flow.source(source, name="numbers")
    retry = af.Retry(delay=20 * SECOND)
    called = (
        numbers.key_by(lambda n: n).map_async(fails_first, name="ask", retry=retry)
        if order == "by key"
        else numbers.map_async(fails_first, name="ask", retry=retry, ordered=order == "ordered")
    )
    called.to(sink, name="out")

    run_flow(
        flow,
        checkpointing=checkpointing(tmp_path, every=SECOND),
        restart=af.restart.FixedDelay(1, delay=SECOND),
    )

    assert sorted(sink.values) == [1, 2, 3, 4]


# ------------------------------------------------------------------------------- calls that do not end


def stubborn(seconds: float) -> Callable[[int], Awaitable[int]]:
    """Goes on for ``seconds`` although it is cancelled, and answers then."""

    async def call(number: int) -> int:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return number

    return call


def stubborn_flow(
    seconds: float, *numbers: int | Pause, timeout: timedelta = HOUR, capacity: int = 1
) -> tuple[af.Flow, CollectSink[int]]:
    flow, sink = af.Flow("stubborn"), CollectSink[int]()
    called = flow.source(ScriptedSource[int](*numbers), name="numbers").map_async(
        stubborn(seconds), name="ask", timeout=timeout, on_error=af.calls.Drop(), capacity=capacity
    )
    called.to(sink, name="out")
    return flow, sink


@virtual_time
async def test_a_call_that_goes_on_when_its_time_is_up_frees_its_slot_is_reported_and_ignored() -> (
    None
):
    flow, sink = stubborn_flow(60.0, 1, 2, Pause(200 * SECOND), timeout=10 * SECOND)
    events: list[object] = []

    async with flow.start(options=af.Options(clock=VirtualClock()), on_event=events.append) as job:
        await asyncio.sleep(12)
        calls = job.metrics().steps["ask"].calls
        assert calls is not None
        assert (calls.calls, calls.in_flight, calls.timeouts) == (2, 1, 1)
        await job.wait()
        calls = job.metrics().steps["ask"].calls

    assert calls is not None
    assert (calls.abandoned, calls.in_flight, calls.dropped) == (2, 0, 2)
    assert sink.values == []
    assert [str(event) for event in events] == [
        f"step 'ask': a call for {number} continues although it was cancelled; given up after 5.000 s"
        for number in (1, 2)
    ]


def test_a_slot_whose_call_has_ended_after_all_makes_calls_again() -> None:
    flow, sink = stubborn_flow(3.0, *range(6), timeout=2 * SECOND)

    outcome = run_flow(flow)

    assert sink.values == []
    calls = outcome.metrics.steps["ask"].calls
    assert calls is not None
    assert calls.abandoned == 0
    assert outcome.took == timedelta(seconds=13)


@virtual_time
async def test_a_job_waits_for_calls_that_do_not_end_for_one_grace_time_however_many() -> None:
    flow = af.Flow("stubborn")
    numbers = flow.source(ScriptedSource[int](*range(4), FOREVER), name="numbers")
    numbers.map_async(stubborn(1000.0), name="one", capacity=2).to(CollectSink[int]())
    numbers.map_async(stubborn(1000.0), name="two", capacity=2).to(CollectSink[int]())
    events: list[object] = []

    async with flow.start(options=af.Options(clock=VirtualClock()), on_event=events.append) as job:
        await asyncio.sleep(10)
        await job.cancel()
        ended = asyncio.get_running_loop().time()

    assert ended == 15.0
    assert len(events) == job.metrics().left_behind == 4
    await asyncio.sleep(2000)  # they end in the end


@virtual_time
async def test_a_call_that_swallows_the_word_and_returns_at_once_is_waited_for_and_its_result_lost() -> (
    None
):
    flow, sink = stubborn_flow(12.0, 1, FOREVER)

    with no_leftovers("the job"):
        async with FlowDriver(flow) as driver:
            await driver.advance(10 * SECOND)
            await driver.job.cancel()

    assert asyncio.get_running_loop().time() == 12.0
    assert sink.values == []


@virtual_time
async def test_a_call_can_stop_its_job() -> None:
    jobs: list[af.Job] = []

    async def stops(number: int) -> int:
        await asyncio.sleep(1)
        await jobs[0].stop()
        return number

    flow, sink = af.Flow("stops"), CollectSink[int]()
    flow.source(ScriptedSource[int](1, FOREVER)).map_async(stops, name="stops").to(sink)

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        jobs.append(job)
        await job.wait()

    assert sink.values == [1]
    assert asyncio.get_running_loop().time() == 1.0
