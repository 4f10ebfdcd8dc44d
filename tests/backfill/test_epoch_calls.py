"""Calls in an epoch are bounded in flight, and the epoch ends when they have ended; its results need no clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest

import aflow as af
from aflow.backfill.epoch_time import EpochWatermarks
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import Partition
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.testing import VirtualClock
from aflow.testing.virtual_time import virtual_time
from tests.backfill.items import Item, at_of, drawn, key_of, millis
from tests.backfill.locally import run_locally

ITEMS = drawn(Random(7), 12)
SLOW = ITEMS[4]
FAILED: af.Tag[af.calls.FailedRecord[Item]] = af.Tag("failed")


class Service:
    """A service that takes a second for a call, and ten hours for one of them."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.most = 0

    async def ask(self, item: Item) -> Item:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(36_000 if item == SLOW else 1)
        finally:
            self.in_flight -= 1
        return item


def as_it_is(fragment: Any) -> Any:
    """Run the fragment with the objects of the test."""
    return fragment


async def epoch(flow: af.Flow, clock: VirtualClock) -> tuple[dict[str, list[Any]], list[Any]]:
    """Results, by sink, and what the partitions of one epoch report."""
    partition = Partition(watermarks=EpochWatermarks(MIN_TIMESTAMP, MAX_TIMESTAMP))
    plan = plan_fragments(flow.graph)
    results, left = await run_locally(
        plan,
        {"items": ITEMS},
        lambda fragment, groups: partition,
        lambda fragment, groups: None,
        options=af.Options(clock=clock),
        ship=as_it_is,
    )
    return results, [result for _, _, result in left]


def asking(service: Service, **options: Any) -> af.Flow:
    flow = af.Flow("asking")
    items = flow.source(ITEMS, name="items").event_time(at_of, name="time")
    asked = items.map_async(service.ask, name="ask", capacity=3, **options)
    asked.to(af.CollectSink[Item](), name="out")
    if options:
        asked.side(FAILED).to(af.CollectSink[object](), name="failed")
    return flow


@virtual_time
async def test_an_epoch_waits_for_its_slowest_call_with_bounded_calls_in_flight() -> None:
    service, began = Service(), asyncio.get_running_loop().time()

    results, [report] = await epoch(asking(service), VirtualClock())

    assert sorted(results["out"], key=repr) == sorted(ITEMS, key=repr)
    assert service.most == 3
    assert asyncio.get_running_loop().time() - began >= 36_000
    calls = report.counted["ask"].calls
    assert (calls.calls, calls.in_flight, calls.waiting) == (len(ITEMS), 0, 0)


@virtual_time
async def test_a_timeout_bounds_the_epoch_and_the_slow_record_is_a_dead_letter() -> None:
    service, began = Service(), asyncio.get_running_loop().time()
    flow = asking(service, timeout=timedelta(seconds=30), on_error=af.calls.DeadLetter(FAILED))

    results, [report] = await epoch(flow, VirtualClock())

    assert asyncio.get_running_loop().time() - began < 40
    assert sorted(results["out"], key=repr) == sorted(set(ITEMS) - {SLOW}, key=repr)
    assert [(one.value, one.error) for one in results["failed"]] == [(SLOW, "TimeoutError")]
    assert report.counted["ask"].sides == {"failed": 1}
    assert report.counted["ask"].calls.timeouts == 1


class SkewedClock(VirtualClock):
    """The clock of an executor that is wrong by ``skew`` milliseconds."""

    def __init__(self, skew: int) -> None:
        super().__init__()
        self._skew = skew

    def now(self) -> Timestamp:
        return super().now() + self._skew


class Timed(af.KeyedProcess[int, Item, tuple[int, int]]):
    """Tells when a timer fires, 50 ms after a record."""

    def process(self, value: Item, ctx: af.Context[int]) -> None:
        ctx.set_event_timer(value.at + 50)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[tuple[int, int]]:
        return [(ctx.key, at)]


def keyed(build: str) -> af.Flow:
    flow = af.Flow("keyed")
    by_key = flow.source(ITEMS, name="items").event_time(at_of, name="time").key_by(key_of)
    windows = by_key.window(af.Tumbling(millis(100)))
    stream: af.Stream[Any] = (
        by_key.process(Timed(), name="step")
        if build == "timers"
        else windows.fold(int, lambda n, item: n + item.n, name="step")
    )
    stream.to(af.CollectSink[Any](), name="out")
    return flow


@pytest.mark.parametrize("build", ["timers", "windows"])
@virtual_time
async def test_results_of_an_epoch_do_not_depend_on_the_clocks_of_executors(build: str) -> None:
    hour = 3_600_000

    skewed = [await epoch(keyed(build), SkewedClock(skew)) for skew in (0, -hour, hour)]

    (expected, reports), *others = skewed
    assert expected["out"]
    for results, some in others:
        assert results == expected
        assert [one.state for one in some] == [one.state for one in reports]
