"""Steps with two inputs in a job: each input has its own exchange, and time is common to both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.connect import Batch as Records
from aflow.connect import Sink, Writer, WriterContext
from aflow.graph.nodes import Broadcast, Edge, HashByKey, Partitioning
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP
from aflow.testing import At, CollectSink, FlowDriver, Pause, ScriptedSource, run_flow
from aflow.testing.virtual_time import virtual_time
from tests.runtime.two_inputs import BROADCAST, Both, Clock, connect

LEFT = range(60)
RIGHT = range(100, 140)


def numbers(count: int) -> ScriptedSource[int]:
    """Numbers that are their own timestamps."""
    return ScriptedSource(*(At(number, number) for number in range(count)))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("chaining", [True, False], ids=["chained", "a task each"])
def test_equal_keys_of_both_inputs_meet_in_one_subtask(parallelism: int, chaining: bool) -> None:
    flow, sink = af.Flow("hash"), CollectSink[tuple[str, int, int]]()
    left = flow.source(LEFT).rebalance(3).key_by(lambda n: f"key {n % 20}")
    right = flow.source(RIGHT).key_by(lambda n: f"key {n % 20}")
    connect(flow, left, right, Both).map(lambda record: record).to(sink)

    options = af.Options(chaining=chaining, batch_records=7)
    run_flow(flow, parallelism=parallelism, options=options)

    came = Counter((side, value) for side, value, _ in sink.values)
    assert came == Counter([("left", n) for n in LEFT] + [("right", n) for n in RIGHT])
    homes = {(value % 20, subtask) for _, value, subtask in sink.values}
    assert len(homes) == 20, "a key was handled in two subtasks"
    assert len({subtask for _, subtask in homes}) == parallelism


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_broadcast_input_reaches_every_subtask_and_the_other_one(
    parallelism: int, keyed: bool
) -> None:
    flow, sink = af.Flow("broadcast"), CollectSink[tuple[str, int, int]]()
    spread = flow.source(LEFT).rebalance(parallelism)
    left = spread.key_by(lambda n: n) if keyed else spread
    by: tuple[Partitioning, Partitioning] = (HashByKey(), Broadcast()) if keyed else BROADCAST
    connect(flow, left, flow.source(RIGHT), Both, by=by).to(sink)

    run_flow(flow, parallelism=parallelism, options=af.Options(batch_records=5))

    assert sorted(value for side, value, _ in sink.values if side == "left") == list(LEFT)
    for subtask in range(parallelism):
        controls = [v for side, v, at in sink.values if side == "right" and at == subtask]
        assert controls == list(RIGHT), "one sender, so its order is kept"


def test_inputs_of_other_parallelism_are_spread_over_the_subtasks() -> None:
    flow, sink = af.Flow("forward"), CollectSink[tuple[str, int, int]]()
    left = flow.source(LEFT).rebalance(3)
    connect(flow, left, flow.source(RIGHT), Both).to(sink)

    run_flow(flow, options=af.Options(batch_records=5))

    assert Counter(side for side, _, _ in sink.values) == {"left": 60, "right": 40}
    assert {at for side, _, at in sink.values if side == "right"} == {0, 1, 2}


def test_a_stream_can_be_both_inputs() -> None:
    flow, sink = af.Flow("self"), CollectSink[tuple[str, int, int]]()
    keyed = flow.source(LEFT).key_by(lambda n: n)
    connect(flow, keyed, keyed, Both).to(sink)

    run_flow(flow, parallelism=2, options=af.Options(batch_records=5, channel_records=3))

    came = Counter((side, value) for side, value, _ in sink.values)
    assert came == Counter([(side, n) for side in ("left", "right") for n in LEFT])


def test_a_record_of_either_input_is_counted_once() -> None:
    flow = af.Flow("metrics")
    connect(flow, flow.source(LEFT), flow.source(RIGHT), Both).to(CollectSink())

    step = run_flow(flow).metrics.steps["two"]

    assert (step.records_in, step.records_out) == (100, 100)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_watermark_is_the_smaller_of_the_two(parallelism: int) -> None:
    flow, sink = af.Flow("time"), CollectSink[int]()
    slow = ScriptedSource[int](At(0, 0), Pause(timedelta(seconds=1)), At(20, 20))
    left = flow.source(numbers(50)).event_time().key_by(lambda n: n)
    right = flow.source(slow).event_time().key_by(lambda n: n)
    connect(flow, left, right, Clock).to(sink)

    run_flow(flow, parallelism=parallelism)

    # A watermark is one ms before the newest record, since another one with that time may follow.
    assert set(sink.values) == {-1, 19, MAX_TIMESTAMP}
    assert sink.values[-parallelism:] == [MAX_TIMESTAMP] * parallelism


@virtual_time
async def test_an_idle_input_does_not_hold_time_back_until_it_speaks_again() -> None:
    flow, sink = af.Flow("idle"), CollectSink[int]()
    words, quiet = af.PushSource[int](), af.PushSource[int]()
    left = flow.source(words, name="words").event_time()
    right = flow.source(quiet, name="quiet").event_time(idle_after=timedelta(seconds=5))
    connect(flow, left, right, Clock).to(sink)

    async with FlowDriver(flow) as driver:
        await driver.send(1, 1, to="quiet")
        await driver.send(10, 10, to="words")
        await driver.settle()
        both = list(sink.values)
        await driver.advance(timedelta(seconds=6))
        await driver.send(20, 20, to="words")
        await driver.settle()
        alone = list(sink.values)
        await driver.send(25, 25, to="quiet")
        await driver.settle()
        await driver.send(30, 30, to="words")
        await driver.settle()

    assert both == [0]
    assert alone[-1] == 19
    assert sink.values[-1] == 24


@pytest.mark.parametrize("first", ["left", "right"])
def test_the_end_of_one_input_leaves_time_to_the_other(first: str) -> None:
    flow, sink = af.Flow("end"), CollectSink[int]()
    short = flow.source(numbers(5)).event_time()
    longer = ScriptedSource[int](At(3, 3), Pause(timedelta(seconds=1)), At(40, 40))
    long = flow.source(longer).event_time()
    left, right = (short, long) if first == "left" else (long, short)
    connect(flow, left, right, Clock).to(sink)

    outcome = run_flow(flow)

    assert sink.values[-2:] == [39, MAX_TIMESTAMP]
    assert outcome.took == timedelta(seconds=1)


def test_the_step_ends_once_after_both_inputs() -> None:
    class Ending(Both):
        def end_input(self) -> None:
            self.output.emit(Batch(["end"]))

    flow, sink = af.Flow("end"), CollectSink[Any]()
    late = ScriptedSource(1, Pause(timedelta(seconds=1)), 2)
    connect(flow, flow.source(LEFT), flow.source(late), Ending).to(sink)

    run_flow(flow)

    assert sink.values.count("end") == 1
    assert sink.values[-2:] == [("right", 2, 0), "end"]


class Dividing(Both):
    """Fails on a 0 of the given input."""

    def __init__(self, failing: str) -> None:
        self._failing = failing

    def _emit(self, side: str, batch: Batch[Any]) -> None:
        if side == self._failing and 0 in batch.values:
            raise ZeroDivisionError("a 0 came")
        super()._emit(side, batch)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_failure_on_either_side_ends_the_job_and_names_the_step(side: str) -> None:
    flow = af.Flow("failure")
    good, bad = flow.source(range(1, 1_000)), flow.source([1, 0])
    left, right = (bad, good) if side == "left" else (good, bad)
    connect(flow, left, right, lambda: Dividing(side), name="divide").to(CollectSink())

    with pytest.raises(af.OperatorError, match="step 'divide' failed: ZeroDivisionError: a 0 came"):
        run_flow(flow)


class Slow(Sink[Any]):
    """Takes a second for each batch."""

    async def writer(self, context: WriterContext) -> Writer[Any]:
        return _SlowWriter()


class _SlowWriter(Writer[Any]):
    async def write(self, batch: Records[Any]) -> None:
        await asyncio.sleep(1)


@virtual_time
async def test_both_inputs_wait_when_the_step_has_no_room() -> None:
    flow = af.Flow("backpressure")
    left, right = flow.source(range(1_000_000), name="l"), flow.source(range(1_000_000), name="r")
    connect(flow, left, right, Both).to(Slow(), name="out")

    async with FlowDriver(flow, options=af.Options(batch_records=10, channel_records=50)) as driver:
        await driver.advance(timedelta(seconds=5))
        steps = driver.metrics.steps
        read = steps["l"].records_out, steps["r"].records_out
        taken = steps["two"].records_in
        blocked = {task.name: task.backpressured_s for task in driver.metrics.tasks}
        await driver.job.cancel()

    assert all(0 < one < 5_000 for one in read), "a source ran away"
    assert sum(read) - taken <= 2 * 60, "an exchange holds more than it may"
    assert blocked["l"] > 4
    assert blocked["r"] > 4


def test_a_busy_input_does_not_starve_the_other() -> None:
    flow, sink = af.Flow("fair"), CollectSink[tuple[str, int, int]]()
    left, right = flow.source(range(10_000)), flow.source(range(10_000))
    connect(flow, left, right, Both).to(sink)

    run_flow(flow, options=af.Options(batch_records=10, channel_records=50))

    sides = [side for side, _, _ in sink.values]
    assert sides[:5_000].count("left") == pytest.approx(2_500, abs=500)


def test_a_step_of_two_inputs_with_another_number_of_them_is_our_bug() -> None:
    flow = af.Flow("three")
    flow.source(LEFT)
    edge = Edge(flow.graph.nodes[-1])
    node = flow.graph.add_step("connect", "odd", (edge, edge, edge), Both)
    flow.graph.add_sink(CollectSink(), None, Edge(node))

    with pytest.raises(
        af.errors.InternalError, match=r"step 'odd' \(connect\) has a Both, .* 3 inputs"
    ):
        run_flow(flow)


class Balance(af.CoProcess[int, int, int, tuple[int, int]]):
    """Deposits on the left, withdrawals on the right; the balance of each account at the end of time."""

    balance = af.ValueState("balance", of=int)

    def process_left(self, value: int, ctx: af.Context[int]) -> None:
        self._add(value, ctx)

    def process_right(self, value: int, ctx: af.Context[int]) -> None:
        self._add(-value, ctx)

    def _add(self, amount: int, ctx: af.Context[int]) -> None:
        cell = ctx.state(self.balance)
        cell.set(cell.get(0) + amount)
        ctx.set_event_timer(MAX_TIMESTAMP)

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[tuple[int, int]]:
        yield ctx.key, ctx.state(self.balance).get(0)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_commutative_state_reaches_the_batch_result_in_any_interleaving(
    parallelism: int, seed: int
) -> None:
    deposits = [(n * 7919) % 1_009 for n in range(400)]
    withdrawals = [(n * 104_729) % 1_013 for n in range(300)]
    flow, sink = af.Flow("balances"), CollectSink[tuple[int, int]]()
    left = flow.source(deposits).rebalance(2).key_by(lambda n: n % 17)
    right = flow.source(withdrawals).key_by(lambda n: n % 17)
    left.connect(right).process(Balance(), name="balances").to(sink)

    options = af.Options(batch_records=16, channel_records=32)
    run_flow(flow, parallelism=parallelism, seed=seed, options=options)

    batch: Counter[int] = Counter()
    for n in deposits:
        batch[n % 17] += n
    for n in withdrawals:
        batch[n % 17] -= n
    assert sorted(sink.values) == sorted(batch.items())


class Priced(af.BroadcastProcess[int, int, tuple[int, int], tuple[int, int]]):
    """Sales at the latest price of each article; those without a price go to a side output."""

    prices = af.BroadcastState("prices", key=int, of=int)
    sold = af.ValueState("sold", of=int)
    unknown = af.Tag[int]("unknown")

    def process(self, value: int, ctx: af.BroadcastContext[int]) -> Iterable[tuple[int, int]]:
        price = ctx.state(self.prices).get(ctx.key)
        if price is None:
            ctx.side(self.unknown, value)
            return []
        sold = ctx.state(self.sold)
        sold.set(sold.get(0) + price)
        return [(ctx.key, sold.get(0))]

    def process_broadcast(self, value: tuple[int, int], ctx: af.ControlContext) -> None:
        ctx.state(self.prices).put(*value)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_subtask_applies_the_control_records_received_so_far(parallelism: int) -> None:
    flow, sink, aside = af.Flow("prices"), CollectSink[tuple[int, int]](), CollectSink[int]()
    control = ScriptedSource[tuple[int, int]](
        (0, 5), (1, 7), Pause(timedelta(seconds=10)), (2, 1), (0, 50)
    )
    second = Pause(timedelta(seconds=1))
    sales = flow.source(ScriptedSource(second, 0, 1, 2, Pause(timedelta(seconds=20)), 0, 1, 2))
    by_article = sales.key_by(lambda article: article)
    sold = by_article.connect_broadcast(flow.source(control)).process(Priced(), name="sold")
    sold.to(sink)
    sold.side(Priced.unknown).to(aside)

    run_flow(flow, parallelism=parallelism)

    assert sorted(sink.values) == [(0, 5), (0, 55), (1, 7), (1, 14), (2, 1)]
    assert aside.values == [2]


class Known(af.BroadcastProcess[None, int, int, str]):
    """Facts about a number, in each subtask separately."""

    names = af.BroadcastState("names", key=int, of=int)

    def process(self, value: int, ctx: af.BroadcastContext[None]) -> Iterable[str]:
        return [f"{value} {'known' if value in ctx.state(self.names) else 'unknown'}"]

    def process_broadcast(self, value: int, ctx: af.ControlContext) -> None:
        ctx.state(self.names).put(value, value)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_stream_without_keys_applies_control_records_in_its_subtask(parallelism: int) -> None:
    flow, sink = af.Flow("names"), CollectSink[str]()
    late = ScriptedSource(Pause(timedelta(seconds=1)), *range(100))
    stream = flow.source(late).rebalance(parallelism)
    known = stream.connect_broadcast(flow.source(range(0, 100, 2)))
    known.process(Known(), name="known").to(sink)

    run_flow(flow, options=af.Options(batch_records=8))

    odd_even = [f"{n} {'unknown' if n % 2 else 'known'}" for n in range(100)]
    assert sorted(sink.values) == sorted(odd_even)
