"""Steps that call, when they are full and when what is behind them is; and where the time of their task goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import aflow as af
from aflow.testing import CollectSink, FlowDriver, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.virtual_time import virtual_time
from tests.runtime.calls.questions import HOUR, ORDERS, SECOND, Service, ask, asked
from tests.runtime.ledger import Ledger

ONE_BY_ONE = af.Options(batch_records=1, channel_records=1)


class Counted:
    """Numbers, and how many of them were taken."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.taken = 0

    async def numbers(self) -> AsyncIterator[int]:
        for number in range(self._count):
            self.taken += 1
            yield number
            await asyncio.sleep(0)


@pytest.mark.parametrize("order", ORDERS)
@virtual_time
async def test_a_source_is_not_read_while_the_step_is_full_and_is_afterwards(order: str) -> None:
    counted, service, sink = Counted(1000), Service(lambda number: 60.0), CollectSink[int]()
    flow = af.Flow("asking")
    ask(flow.source(counted.numbers(), name="in"), service, order, capacity=5).to(sink)

    async with FlowDriver(flow, options=ONE_BY_ONE) as driver:
        await driver.advance(30 * SECOND)
        early, begun = counted.taken, len(service.begun)
        await driver.advance(15 * SECOND)
        assert (counted.taken, len(service.begun)) == (early, begun)
        await driver.job.wait()

    assert begun == 5
    assert early < 30
    assert counted.taken == 1000
    assert sorted(sink.values) == list(range(1000))


@virtual_time
async def test_no_call_begins_while_the_sink_behind_the_step_is_full() -> None:
    """A sink lets 2,048 records wait while it is busy, and each result is a thousand."""
    service, ledger = Service(), Ledger()
    flow = af.Flow("asking")
    sink = ledger.sink("sink", takes=timedelta(seconds=100))

    async def thousand(number: int) -> list[int]:
        await service.ask(number)
        return [number] * 1000

    flow.source(range(40)).flat_map_async(thousand, name="ask", capacity=2).to(sink)

    async with FlowDriver(flow) as driver:
        await driver.advance(50 * SECOND)
        begun = len(service.begun)
        assert driver.metrics.tasks[0].backpressured_s > 40
        await driver.job.wait()

    assert begun <= 8
    assert len(sink.values) == 40_000


def test_time_does_not_run_out_for_a_record_because_there_is_no_room_behind_the_step() -> None:
    """The sink is busy for 100 s when 19, which has failed once, is to be called for again."""
    ledger, failed = Ledger(), set[int]()
    flow = af.Flow("asking")
    sink = ledger.sink("sink", takes=timedelta(seconds=100))

    async def thousand(number: int) -> list[int]:
        await asyncio.sleep(1)
        if number % 10 == 9 and number not in failed:
            failed.add(number)
            raise ConnectionError("once")
        return [number] * 1000

    flow.source(range(20)).flat_map_async(
        thousand,
        capacity=10,
        ordered=False,
        timeout=3.5 * SECOND,
        retry=af.Retry(delay=SECOND / 2),
        on_error=af.calls.Drop(),
    ).to(sink)

    run_flow(flow)

    assert failed == {9, 19}
    assert len(sink.values) == 20_000


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_no_call_begins_while_the_exchange_behind_the_step_is_full(order: str) -> None:
    service, slow = Service(), Service(lambda number: 10.0)
    flow, sink = af.Flow("asking"), CollectSink[int]()
    numbers = flow.source(range(60), name="in")
    first = ask(numbers, service, order, capacity=3, name="first").rebalance()
    ahead: list[int] = []

    async def noting(number: int) -> int:
        ahead.append(len(service.begun) - len(slow.begun))
        return await slow.ask(number)

    first.map_async(noting, name="slow", capacity=1).to(sink)

    run_flow(flow, options=ONE_BY_ONE)

    assert sorted(sink.values) == list(range(60))
    # Some in each step, one in the exchange, and what completed together.
    assert max(ahead) <= 12


def test_steps_behind_each_other_in_one_task_hold_each_other_up() -> None:
    services = [Service(), Service(), Service(lambda number: 10.0)]
    flow, sink = af.Flow("asking"), CollectSink[int]()
    numbers: af.Stream[int] = flow.source(range(100), name="in")
    for place, service in enumerate(services):
        numbers = ask(numbers, service, capacity=2, name=f"step {place}")
    numbers.to(sink)
    ahead: list[int] = []
    numbers.map(lambda number: ahead.append(len(services[0].begun) - number)).to(CollectSink())

    outcome = run_flow(flow, options=ONE_BY_ONE)

    assert sink.values == list(range(100))
    assert max(ahead) <= 20
    assert outcome.took == timedelta(seconds=502)


def test_the_time_of_a_task_that_waits_for_its_calls_is_told_and_all_parts_add_up() -> None:
    source = ScriptedSource[int](*range(6), Pause(timedelta(seconds=100)), *range(4))
    flow, _ = asked(source, Service(lambda number: 10.0), capacity=1)

    outcome = run_flow(flow, options=af.Options(batch_records=1))
    task = outcome.metrics.tasks[0]

    # Two records fit in, so it is full until the fifth is answered. The pause began as the last one was read, at
    # 10 s. At the end the task waits for its calls, too.
    assert outcome.took == timedelta(seconds=150)
    assert (task.calling_s, task.idle_s) == (50.0 + 40.0, 60.0)
    parts = task.busy_s + task.idle_s + task.backpressured_s + task.calling_s + task.aligning_s
    assert parts == outcome.took.total_seconds()


def test_other_tasks_wait_for_no_calls() -> None:
    flow, _ = asked(range(6), Service(), capacity=1)

    outcome = run_flow(flow, options=af.Options(batch_records=1, chaining=False))

    waited = {task.name: task.calling_s for task in outcome.metrics.tasks}
    assert waited["ask"] > 0
    assert {name for name, seconds in waited.items() if seconds} == {"ask"}


@virtual_time
async def test_what_is_under_way_and_what_waits_can_be_asked_and_are_none_at_the_end() -> None:
    flow, _ = asked(ScriptedSource[int](*range(5), Pause(HOUR)), Service(), capacity=3)

    async with FlowDriver(flow, parallelism=2) as driver:
        await driver.settle()
        at_first = driver.metrics.steps["ask"].calls
        await driver.advance(SECOND)
        then = driver.metrics.steps["ask"].calls
        await driver.advance(SECOND)
        at_last = driver.metrics.steps["ask"].calls

    assert at_first is not None
    assert (at_first.in_flight, at_first.waiting, at_first.limit) == (3, 2, 6)
    assert then is not None
    assert (then.in_flight, then.waiting, then.calls) == (2, 0, 5)
    assert at_last is not None
    assert (at_last.in_flight, at_last.waiting) == (0, 0)


def test_watermarks_take_room_as_records_do() -> None:
    """One call takes an hour; each second a record comes that fits, with a watermark behind it."""
    service = Service(lambda number: 3600.0 if number == 0 else 0.0)
    lines: list[int | Pause] = []
    for number in range(50):
        lines += [number, Pause(SECOND)]
    flow, sink = af.Flow("asking"), CollectSink[int]()
    timed = flow.source(ScriptedSource[int](*lines)).event_time(lambda n: n, name="time")
    ask(timed, service, "ordered", capacity=10).to(sink)

    @virtual_time
    async def main() -> None:
        async with FlowDriver(flow) as driver:
            await driver.advance(100 * SECOND)
            assert len(service.begun) <= 11
            assert driver.metrics.tasks[0].calling_s > 80
            await driver.job.wait()

    main()

    assert sink.values == list(range(50))


@virtual_time
async def test_a_host_that_shares_the_loop_goes_on_while_calls_never_wait() -> None:
    async def at_once(number: int) -> int:
        return number

    flow, sink = af.Flow("busy"), CollectSink[int]()
    flow.source(range(30_000)).map_async(at_once, name="at once", ordered=False).to(sink)
    turns = 0

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        while job.running:
            turns += 1
            await asyncio.sleep(0)
        await job.wait()

    assert sorted(sink.values) == list(range(30_000))
    assert turns > 50


def test_steps_beside_each_other_in_one_task_do_not_hold_up_each_others_calls() -> None:
    """One takes all records at once; the other is full all the time, and is not behind it."""
    flow, slow, fast = af.Flow("beside"), Service(lambda number: 10.0), Service()
    numbers = flow.source(range(8), name="in")
    ask(numbers, fast, capacity=4, name="fast").to(CollectSink[int]())
    ask(numbers, slow, capacity=1, name="slow").to(CollectSink[int]())

    @virtual_time
    async def main() -> None:
        async with FlowDriver(flow) as driver:
            await driver.advance(2 * SECOND)
            assert len(fast.ended) == 8
            await driver.job.wait()

    main()

    assert len(slow.ended) == 8
