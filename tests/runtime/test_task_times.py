"""The time of a task by activity, exact to the microsecond: in virtual time, work itself takes none."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow.testing import At, CollectSink, FlowDriver, Pause, ScriptedSource, run_flow
from aflow.testing.virtual_time import virtual_time

#: Records that a sink queues while its writer is busy.
WAITING = 2048
RECORDS = 3000


class Slow(Sink[int]):
    """Takes a second for each record."""

    async def writer(self, context: WriterContext) -> Writer[int]:
        return _SlowWriter()


class _SlowWriter(Writer[int]):
    async def write(self, batch: Batch[int]) -> None:
        await asyncio.sleep(len(batch))


def by_task(metrics: af.metrics.JobMetrics) -> dict[str, tuple[float, float, float]]:
    """Busy, idle and backpressured seconds."""
    return {task.name: (task.busy_s, task.idle_s, task.backpressured_s) for task in metrics.tasks}


def test_a_task_is_backpressured_for_as_long_as_its_own_sink_is_busy() -> None:
    flow = af.Flow("slow sink")
    flow.source(range(RECORDS), name="numbers").to(Slow(), name="slow")

    outcome = run_flow(flow)

    assert outcome.took == timedelta(seconds=RECORDS)
    assert list(by_task(outcome.metrics).values()) == [(0.0, 0.0, RECORDS)]


def test_backpressure_reaches_the_tasks_upstream() -> None:
    flow = af.Flow("slow sink")
    flow.source(range(RECORDS), name="first").map(abs, name="second").to(Slow(), name="slow")

    one_by_one = af.Options(batch_records=1, channel_records=1, chaining=False)
    outcome = run_flow(flow, options=one_by_one)
    tasks = by_task(outcome.metrics)

    assert outcome.took == timedelta(seconds=RECORDS)
    assert tasks["slow"] == (0.0, 0.0, RECORDS)
    # One record is being written, and each exchange holds one. A task ends when there is room after its last record.
    assert tasks["second"] == (0.0, 0.0, RECORDS - WAITING - 1)
    assert tasks["first"] == (0.0, 0.0, RECORDS - WAITING - 2)


def test_a_task_is_idle_while_its_source_pauses_and_so_are_downstream_tasks() -> None:
    flow = af.Flow("pauses")
    source = ScriptedSource[int](1, Pause(timedelta(seconds=30)), 2, Pause(timedelta(seconds=12)))
    flow.source(source, name="source").to(CollectSink[int](), name="sink")

    tasks = by_task(run_flow(flow, options=af.Options(chaining=False)).metrics)

    assert tasks == {"source": (0.0, 42.0, 0.0), "sink": (0.0, 42.0, 0.0)}


@virtual_time
async def test_a_suspension_counts_while_it_lasts() -> None:
    flow = af.Flow("watched")
    flow.source(af.PushSource[int](), name="source").to(Slow(), name="slow")
    seen: list[tuple[float, float, float]] = []

    async with FlowDriver(flow) as driver:
        await driver.advance(timedelta(seconds=4))
        seen += by_task(driver.metrics).values()
        for n in range(5):
            await driver.send(n)
        await driver.advance(timedelta(seconds=3))
        seen += by_task(driver.metrics).values()
        await driver.end()
        seen += by_task(driver.metrics).values()

    # The sink is busy for 5 s, but the task could take more: idle until its input ends, it then waits for the sink.
    assert seen == [(0.0, 4.0, 0.0), (0.0, 7.0, 0.0), (0.0, 7.0, 2.0)]


@virtual_time
async def test_metrics_stand_still_after_the_end() -> None:
    flow = af.Flow("over")
    flow.source(ScriptedSource[int](1, Pause(timedelta(seconds=5)))).to(CollectSink[int]())

    async with FlowDriver(flow) as driver:
        await driver.job.wait()
        at_the_end = driver.metrics
        await asyncio.sleep(100)

        assert driver.metrics == at_the_end


@pytest.mark.parametrize("parallelism", [1, 2])
@virtual_time(start=1_000_000)
async def test_records_watermark_and_lag_of_a_step(parallelism: int) -> None:
    flow = af.Flow("counted")
    source = ScriptedSource[int](
        At(1, 990_000), At(2, 995_001), Pause(timedelta(seconds=5)), At(3, 996_001)
    )
    (
        flow.source(source, name="source")
        .event_time(name="time")
        .filter(lambda n: n != 2, name="odd")
        .to(CollectSink[int](), name="sink")
    )

    async with FlowDriver(flow, parallelism=parallelism) as driver:
        await driver.settle()
        early = driver.metrics.steps
        await driver.advance(timedelta(seconds=4))
        later = driver.metrics.steps
        await driver.end()
        final = driver.metrics.steps

    if parallelism == 1:
        assert (early["odd"].watermark, early["odd"].lag_ms) == (995_000, 5_000)
        assert (later["odd"].watermark, later["odd"].lag_ms) == (995_000, 9_000)
    assert (early["odd"].records_in, early["odd"].records_out) == (2, 1)
    assert (final["odd"].records_in, final["odd"].records_out) == (3, 2)
    assert final["sink"].records_in == 2
    assert final["odd"].lag_ms is None
