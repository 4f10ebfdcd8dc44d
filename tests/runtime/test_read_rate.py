"""A source with a rate limit emits no more records than that in a time, whatever its connector is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.calls import RateLimit
from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.errors import FlowDefinitionError, SourceError
from aflow.testing import CollectSink, FlowDriver
from aflow.testing.virtual_time import virtual_time

SECOND = timedelta(seconds=1)


class Ranges(Source[int]):
    """Splits of ``size`` numbers each, read all at once."""

    concurrency = None

    def __init__(self, splits: int, size: int) -> None:
        self._starts = {str(n): n * size for n in range(splits)}
        self._size = size

    async def splits(self) -> Sequence[Split]:
        return [Split(name) for name in self._starts]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        start = self._starts[split.id]
        return RangeReader(position if isinstance(position, int) else start, start + self._size)


class RangeReader(Reader[int]):
    def __init__(self, at: int, end: int) -> None:
        self._at = at
        self._end = end

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._at == self._end:
            return None
        values = range(self._at, min(self._at + limit, self._end))
        self._at = values.stop
        return Chunk(values, self._at)


def timed(flow: af.Flow, source: Any, rate: RateLimit[Any] | None, **names: Any) -> list[float]:
    """Add a source to ``flow``. Return the list of the times (s) at which its records are processed."""
    times: list[float] = []

    def note(value: int) -> int:
        times.append(asyncio.get_running_loop().time())
        return value

    flow.source(source, rate=rate, **names).map(note).to(CollectSink[int]())
    return times


def most_within(times: list[float], seconds: float) -> int:
    """Return the largest number of ``times`` within a time of this length."""
    return max(sum(start <= one < start + seconds for one in times) for start in times)


@virtual_time
async def test_records_of_any_iterable_are_emitted_at_the_rate() -> None:
    flow = af.Flow("numbers")
    times = timed(flow, range(500), RateLimit(100, SECOND))

    await flow.run()

    assert len(times) == 500
    assert times[-1] - times[0] == pytest.approx(4.9, abs=0.2)
    assert most_within(times, 1.0) <= 110  # the rate and the burst of a tenth of a second


@pytest.mark.parametrize(("splits", "parallelism"), [(1, 1), (5, 1), (6, 3)])
@virtual_time
async def test_splits_and_subtasks_have_one_limit_together(splits: int, parallelism: int) -> None:
    flow = af.Flow("numbers")
    times = timed(flow, Ranges(splits, 300 // splits), RateLimit(100, SECOND, burst=5))

    await flow.run(parallelism=parallelism)

    assert len(times) == 300
    assert times[-1] - times[0] == pytest.approx(2.95, abs=0.1)
    assert most_within(times, 1.0) <= 105


@virtual_time
async def test_sources_that_share_a_name_have_one_limit_together() -> None:
    flow, rate = af.Flow("numbers"), RateLimit[Any](100, SECOND, shared="disk")
    times = [timed(flow, range(150), rate, name=name) for name in ("a", "b")]

    await flow.run()

    both = [one for some in times for one in some]
    assert max(both) - min(both) == pytest.approx(2.9, abs=0.2)
    assert abs(max(times[0]) - max(times[1])) < 0.5


@virtual_time
async def test_a_record_costs_what_its_cost_says() -> None:
    flow = af.Flow("numbers")
    times = timed(flow, [50] * 10, RateLimit(100, SECOND, cost=lambda n: n))

    await flow.run()

    assert times[-1] - times[0] == pytest.approx(4.5, abs=0.5)


@virtual_time
async def test_a_cost_that_fails_fails_the_job() -> None:
    flow = af.Flow("numbers")
    timed(flow, [1], RateLimit(100, SECOND, cost=lambda n: 1 / (n - 1)), name="in")

    with pytest.raises(SourceError, match=r"source 'in' failed in split .*ZeroDivisionError"):
        await flow.run()


@virtual_time
async def test_after_backpressure_a_source_does_not_catch_up() -> None:
    flow, read = af.Flow("numbers"), list[float]()
    blocked = asyncio.Event()

    def numbers() -> Iterator[int]:
        for n in range(20_000):
            read.append(asyncio.get_running_loop().time())
            yield n

    async def slow(value: int) -> int:
        await blocked.wait()
        return value

    source = flow.source(numbers(), rate=RateLimit(100, SECOND))
    source.map_async(slow, capacity=1).to(CollectSink[int]())
    async with flow.start() as job:
        await asyncio.sleep(600)
        before = len(read)
        blocked.set()
        await asyncio.sleep(1)
        after = len(read)
        await job.stop()

    assert before < 10_000  # it was not read for most of the time
    assert 0 < after - before <= 100 + 2 * 10


@virtual_time
async def test_accepted_records_that_wait_for_the_rate_are_not_lost_when_the_job_stops() -> None:
    flow, found, source = af.Flow("numbers"), CollectSink[int](), af.PushSource[int]()
    flow.source(source, rate=RateLimit(1, SECOND)).to(found)

    async with FlowDriver(flow) as driver:
        async with asyncio.TaskGroup() as group:
            for n in range(5):
                group.create_task(source.send(n))
        await asyncio.sleep(1.5)
        assert len(found.values) < 5
        await driver.job.stop()

    assert found.values == list(range(5))


@virtual_time
async def test_a_restored_job_continues_at_its_rate_and_loses_nothing(tmp_path: Path) -> None:
    found, times = CollectSink[int](), list[float]()
    failures = iter([250])

    def check(value: int) -> int:
        times.append(asyncio.get_running_loop().time())
        if value == next(failures, None):
            raise RuntimeError("once")
        return value

    flow = af.Flow("numbers")
    numbers = flow.source(Ranges(1, 500), name="in", rate=RateLimit(100, SECOND))
    numbers.map(check, name="check").to(found, name="out")

    await flow.run(
        checkpointing=af.Checkpointing(storage=tmp_path, every=timedelta(milliseconds=200)),
        restart=af.restart.FixedDelay(attempts=1, delay=timedelta(seconds=1)),
    )

    assert set(found.values) == set(range(500))
    assert most_within(times, 1.0) <= 110 + 10  # a job that starts again has a full bucket


def test_a_rate_that_is_none_is_refused() -> None:
    wrong: Any = 100
    with pytest.raises(FlowDefinitionError, match="takes a RateLimit"):
        af.Flow("numbers").source([1], rate=wrong)


def test_the_plan_shows_the_rate() -> None:
    flow = af.Flow("numbers")
    flow.source([1], name="in", rate=RateLimit(100, SECOND)).to(CollectSink[int]())

    assert "IterableSource, 100 per 1s" in str(flow.plan())
