"""Source subtasks without a split do not hold event time back, whenever they start, end or become idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

import pytest

import aflow as af
from aflow.connect import Position, Reader, Source, Split
from aflow.runtime.splits import SplitQueue
from aflow.testing import FlowDriver, Pause, ScriptedSource, run_flow, virtual_time

Record: TypeAlias = tuple[int, int]

#: The last record is late: its window ends at 3,000 and the watermark is 5,999.
RECORDS: Sequence[Record] = [(1, 0), (3, 6000), (0, 3000 - 1)]
SEEDS = (None, *range(12))


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class OnDemand(ScriptedSource[Record]):
    """Deals its splits out on demand, one at a time to a subtask."""

    concurrency = 1  # type: ignore[assignment]


class Discovering(ScriptedSource[Record]):
    """A source with discovery, so that subtasks without a split do not end."""

    discover_every = timedelta(seconds=10)


class DiscoveringOnDemand(OnDemand):
    discover_every = timedelta(seconds=10)


class Appearing(Source[Record]):
    """A source without splits until they are listed a second time."""

    discover_every = timedelta(seconds=1)

    def __init__(self, records: Sequence[Record]) -> None:
        self._script = ScriptedSource(*records)
        self._asked = 0

    async def splits(self) -> Sequence[Split]:
        self._asked += 1
        return await self._script.splits() if self._asked > 1 else []

    async def reader(self, split: Split, position: Position | None) -> Reader[Record]:
        return await self._script.reader(split, position)


Make: TypeAlias = Callable[..., Source[Record]]


def windowed(
    source: Source[Record], *, step_between: bool = False
) -> tuple[af.Flow, af.CollectSink[Record]]:
    """A flow with windows of 3 s, and its late records."""
    flow, late = af.Flow("few splits"), af.CollectSink[Record]()
    records = flow.source(source, name="source")
    if step_between:
        records = records.map(lambda r: r, name="between")
    windows = (
        records.event_time(lambda r: r[1], name="time")
        .key_by(lambda r: r[0])
        .window(af.Tumbling(millis(3000)))
        .apply(len, name="windows")
    )
    windows.to(af.CollectSink[af.Windowed[int, int]](), name="out")
    windows.late.to(late, name="late")
    return flow, late


@pytest.mark.parametrize("chaining", [True, False])
@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
@pytest.mark.parametrize("make", [ScriptedSource[Record], OnDemand])
def test_with_one_split_lateness_is_the_same_for_any_parallelism_and_scheduling(
    make: Make, parallelism: int, chaining: bool
) -> None:
    options = af.Options(chaining=chaining)

    found: list[Sequence[Record]] = []
    for seed in SEEDS:
        flow, late = windowed(make(*RECORDS), step_between=True)
        run_flow(flow, parallelism=parallelism, options=options, seed=seed)
        found.append(late.values)

    assert found == [[RECORDS[-1]]] * len(SEEDS)


@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize("make", [Discovering, DiscoveringOnDemand, Appearing])
def test_subtasks_that_wait_for_a_split_to_be_discovered_hold_nothing_back(
    make: Make, parallelism: int
) -> None:
    found: list[Sequence[Record]] = []
    for seed in SEEDS:
        source = make(RECORDS) if make is Appearing else make(*RECORDS)
        flow, late = windowed(source)
        found.append(_late_before_the_stop(flow, late, parallelism, seed))

    assert found == [[RECORDS[-1]]] * len(SEEDS)


def _late_before_the_stop(
    flow: af.Flow, late: af.CollectSink[Record], parallelism: int, seed: int | None
) -> Sequence[Record]:
    async def main() -> Sequence[Record]:
        async with FlowDriver(flow, parallelism=parallelism) as driver:
            await driver.advance(timedelta(seconds=5))
            return list(late.values)

    return virtual_time.run(main, seed=seed)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_an_input_of_a_union_without_any_split_holds_nothing_back(parallelism: int) -> None:
    found: list[Sequence[Record]] = []
    for seed in SEEDS:
        flow, late = af.Flow("union"), af.CollectSink[Record]()
        time = af.Stream[Record].event_time
        full = time(flow.source(ScriptedSource(*RECORDS), name="full"), lambda r: r[1], name="t1")
        empty = time(flow.source(NoSplits(), name="empty"), lambda r: r[1], name="t2")
        windows = (
            empty.union(full)
            .key_by(lambda r: r[0])
            .window(af.Tumbling(millis(3000)))
            .apply(len, name="windows")
        )
        windows.to(af.CollectSink[af.Windowed[int, int]](), name="out")
        windows.late.to(late, name="late")
        run_flow(flow, parallelism=parallelism, seed=seed)
        found.append(late.values)

    assert found == [[RECORDS[-1]]] * len(SEEDS)


class NoSplits(ScriptedSource[Record]):
    async def splits(self) -> Sequence[Split]:
        return []


def test_a_join_without_a_split_on_the_right_finds_the_same_records_late() -> None:
    found: list[Sequence[Record]] = []
    for seed in SEEDS:
        flow, late = af.Flow("join"), af.CollectSink[Record]()
        left = flow.source(ScriptedSource(*RECORDS), name="l").event_time(lambda r: r[1], name="lt")
        right = flow.source(NoSplits(), name="r").event_time(lambda r: r[1], name="rt")
        joined = (
            left.key_by(lambda r: r[0])
            .interval_join(right.key_by(lambda r: r[0]), between=(millis(-1), millis(1)))
            .full(lambda one, other: (one, other), name="join")
        )
        joined.to(af.CollectSink[object](), name="out")
        joined.late_left.to(late, name="late")
        run_flow(flow, parallelism=2, seed=seed)
        found.append(late.values)

    assert found == [[RECORDS[-1]]] * len(SEEDS)


def test_an_aligned_source_does_not_wait_for_subtasks_without_a_split() -> None:
    flow = af.Flow("aligned")
    align = af.watermarks.Alignment("all", max_drift=millis(1))
    source = Discovering(*RECORDS, Pause(timedelta(seconds=1)))
    flow.source(source, name="source").event_time(lambda r: r[1], align=align, name="time").to(
        out := af.CollectSink[Record](), name="out"
    )

    async def main() -> Sequence[Record]:
        async with FlowDriver(flow, parallelism=3, options=ONE_BY_ONE) as driver:
            await driver.settle()
            return list(out.values)

    assert virtual_time.run(main) == RECORDS


ONE_BY_ONE = af.Options(batch_records=1)


class FourAtATime(ScriptedSource[Record]):
    concurrency = 4  # type: ignore[assignment]

    async def splits(self) -> Sequence[Split]:
        return [Split(name) for name in "abcde"]


@pytest.mark.parametrize(
    ("parallelism", "dealt"),
    [(1, ["abcde"]), (2, ["ace", "bd"]), (6, ["a", "b", "c", "d", "e", ""])],
)
def test_splits_that_are_dealt_on_demand_are_dealt_in_turn_at_first(
    parallelism: int, dealt: Sequence[str]
) -> None:
    """Limit reading, or the subtask that starts first would read everything at once."""

    async def main() -> list[str]:
        queue = SplitQueue("source", FourAtATime(), parallelism)
        await queue.fill()
        return [await _taken(queue, subtask, len(dealt[subtask])) for subtask in range(parallelism)]

    assert virtual_time.run(main) == dealt


async def _taken(queue: SplitQueue, subtask: int, count: int) -> str:
    taken = [await queue.next(subtask) for _ in range(count)]
    return "".join(one.split.id for one in taken if one is not None)
