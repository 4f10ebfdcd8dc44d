"""The interval of periodic watermarks: of generators, and of ingestion time."""

from __future__ import annotations

from datetime import timedelta

import pytest

import aflow as af
from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.elements import Watermark
from aflow.operators.event_time import EventTimeOperator
from aflow.operators.ingestion_time import IngestionTimeOperator
from aflow.operators.time_strategy import PERIOD, TimeStrategy
from aflow.testing import At, FlowDriver, OperatorHarness, run_flow
from aflow.testing.virtual_time import run

SECOND = timedelta(seconds=1)


def periodic() -> af.watermarks.Periodic:
    return af.watermarks.Periodic(lambda newest: newest)


@pytest.mark.parametrize(("period", "every"), [(None, PERIOD), (50, 50), (5_000, 5_000)])
def test_a_generator_is_called_once_in_each_interval(period: int | None, every: int) -> None:
    strategy = TimeStrategy(periodic, period=period)
    step: OperatorHarness[int, int] = OperatorHarness(
        lambda: EventTimeOperator(lambda n: n, strategy)
    )

    for number in (1, 2):
        step.push(number)
        step.advance_processing_time(timedelta(milliseconds=every - 1))
        step.advance_processing_time(timedelta(milliseconds=1))

    assert step.output == [At(1, 1), Watermark(1), At(2, 2), Watermark(2)]


@pytest.mark.parametrize(("period", "every"), [(None, PERIOD), (50, 50), (5_000, 5_000)])
def test_ingestion_time_sends_a_watermark_in_each_interval(period: int | None, every: int) -> None:
    step: OperatorHarness[str, str] = OperatorHarness(lambda: IngestionTimeOperator(period))

    step.advance_processing_time(timedelta(milliseconds=2 * every))

    assert step.output == [Watermark(every - 1), Watermark(2 * every - 1)]


def test_an_interval_for_a_generator_that_is_not_periodic_is_refused() -> None:
    strategy = TimeStrategy(af.watermarks.Monotonic, period=50)

    with pytest.raises(OperatorError, match=r"'step' has a watermark_interval, and its generator"):
        OperatorHarness[int, int](lambda: EventTimeOperator(lambda n: n, strategy))


def test_an_interval_without_a_generator_is_refused() -> None:
    stream = af.Flow("mistake").source([1])

    with pytest.raises(FlowDefinitionError, match="leave watermark_interval out"):
        stream.event_time(lambda n: n, watermark_interval=SECOND)


@pytest.mark.parametrize("wrong", [timedelta(0), -SECOND, 5])
def test_an_interval_is_longer_than_zero(wrong: timedelta) -> None:
    stream = af.Flow("mistake").source([1])

    with pytest.raises(FlowDefinitionError, match="watermark_interval"):
        stream.event_time(lambda n: n, generator=periodic, watermark_interval=wrong)
    with pytest.raises(FlowDefinitionError, match="watermark_interval"):
        stream.ingestion_time(watermark_interval=wrong)


@pytest.mark.parametrize("how", ["event_time", "ingestion_time"])
def test_a_window_of_a_silent_source_fires_at_the_interval_that_was_set(how: str) -> None:
    source, counts = af.PushSource[int](), af.CollectSink[int]()
    flow = af.Flow("intervals")
    numbers = flow.source(source)
    timed = (
        numbers.event_time(lambda n: n, generator=periodic, watermark_interval=3 * SECOND)
        if how == "event_time"
        else numbers.ingestion_time(watermark_interval=3 * SECOND)
    )
    (
        timed.window_all(af.Tumbling(timedelta(milliseconds=10)))
        .fold(int, lambda n, _: n + 1, name="count")
        .map(lambda one: one.value)
        .to(counts)
    )

    async def job() -> tuple[list[int], list[int]]:
        async with FlowDriver(flow) as driver:
            await driver.send(9)
            await driver.advance(timedelta(milliseconds=2_999))
            before = list(counts.values)
            await driver.advance(timedelta(milliseconds=1))
            return before, list(counts.values)

    assert run(job()) == ([], [1])


def test_the_end_of_the_input_waits_for_no_interval() -> None:
    flow, counts = af.Flow("intervals"), af.CollectSink[int]()
    (
        flow.source([1, 2, 3])
        .event_time(lambda n: n, generator=periodic, watermark_interval=timedelta(days=1))
        .window_all(af.Tumbling(timedelta(milliseconds=10)))
        .fold(int, lambda n, _: n + 1, name="count")
        .map(lambda one: one.value)
        .to(counts)
    )

    outcome = run_flow(flow)

    assert counts.values == [3]
    assert outcome.took < SECOND
