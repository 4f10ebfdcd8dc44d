"""A record is late in a stream of micro-batches if it is late in a live job whose time advances between the batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

import aflow as af
from aflow import aggregates
from aflow.backfill.epoch_time import EpochTime, EpochWatermarks
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import Partition, StateReader
from aflow.backfill.fragments import Fragment, FragmentPlan
from aflow.model.key_groups import KeyGroupRange
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.state.snapshot import OperatorSnapshot, merge
from aflow.testing import At, ScriptedSource, VirtualClock, Watermark, virtual_time
from aflow.testing.scripted_source import Line
from tests.backfill.items import Item, Items, Row, at_of, keyed, millis
from tests.backfill.locally import run_locally
from tests.backfill.steps import of_window, plus

#: The watermark of an epoch is that of the rule of ``EpochTime`` for this ``max_delay`` (ms).
DELAY = 25

Streams = dict[str, Items]


def row_of(item: Item) -> Row:
    return item.at, item.key, item.n


def number_of(item: Item) -> int:
    return item.n


def half(item: Item) -> int:
    return item.key // 2


def tumbling(items: Items) -> Streams:
    sums = keyed(items).window(af.Tumbling(millis(40))).fold(int, plus, name="sums", of=int)
    return {"sums": sums.map(of_window), "late": sums.late}


def lenient(items: Items) -> Streams:
    windows = keyed(items).window(af.Sliding(millis(60), millis(30)), lateness=millis(20))
    sums = windows.fold(int, plus, name="sums", of=int)
    return {"sums": sums.map(of_window), "late": sums.late}


def sessions(items: Items) -> Streams:
    windows = keyed(items).window(af.Session(millis(15)), lateness=millis(10))
    sums = windows.fold(int, plus, name="sums", merge=int.__add__, of=int)
    return {"sums": sums.map(of_window), "late": sums.late}


def chained(items: Items) -> Streams:
    """Windows over the results of windows, which a late record of theirs may correct too late."""
    inner = keyed(items).window(af.Tumbling(millis(20)), lateness=millis(40))
    sums = inner.fold(int, plus, name="sums", of=int)
    outer = sums.map(of_window).key_by(half, name="half").window(af.Tumbling(millis(60)))
    totals = outer.fold(int, plus, name="totals", of=int)
    return {"totals": totals.map(of_window), "late": sums.late, "late sums": totals.late}


def summed(items: Items) -> Streams:
    """Windows that backfills aggregate in parts, and whose late records are records."""
    windows = keyed(items).window(af.Tumbling(millis(40)))
    sums = windows.aggregate(aggregates.sum(number_of), name="sums")
    return {"sums": sums.map(of_window), "late": sums.late}


def corrected(items: Items) -> Streams:
    """The same, whose results each late record corrects."""
    windows = keyed(items).window(af.Sliding(millis(60), millis(30)), lateness=millis(70))
    sums = windows.aggregate(aggregates.sum(number_of), name="sums")
    return {"sums": sums.map(of_window)}


def in_parts(items: Items) -> Streams:
    """Windows that are aggregated in parts here too: late records have no effect."""
    windows = keyed(items).window(af.Sliding(millis(60), millis(30)))
    return {"sums": windows.aggregate(aggregates.sum(number_of), name="sums").map(of_window)}


Build = Callable[[Items], Streams]


def flow_of(build: Build, source: Any, sinks: dict[str, af.CollectSink[Row]]) -> af.Flow:
    """The flow over watermarks of its source, which a live job follows and a stream replaces."""
    flow = af.Flow("late")
    items: Items = flow.source(source, name="items").event_time(
        at_of, source_watermarks=True, name="time"
    )
    for name, stream in build(items).items():
        sink = sinks.setdefault(f"{name} out", af.CollectSink[Row]())
        stream.map(row_of, name=f"row of {name}").to(sink, name=f"{name} out")
    return flow


def batches_of(random: Random) -> list[list[Item]]:
    """Records in the order of arrival, up to 120 ms late, in batches of any size; each batch in the order of time."""
    items = [Item(random.randrange(4), random.randrange(50), at) for at in range(0, 900, 2)]
    items.sort(key=lambda item: item.at + random.choice([0, 0, 0, 20, 120]))
    ends = sorted(random.choices(range(len(items)), k=8))
    return [
        sorted(items[begin:end], key=at_of)
        for begin, end in zip([0, *ends], [*ends, None], strict=True)
    ]


def watermarks_of(batches: Sequence[Sequence[Item]]) -> list[EpochWatermarks]:
    """The watermarks of the epoch of each batch."""
    time = EpochTime({"time": DELAY + 1})
    watermark, earned, epochs = MIN_TIMESTAMP, dict[str, int](), list[EpochWatermarks]()
    for batch in batches:
        epochs.append(time.watermarks(watermark, {}, earned).stream)
        watermark = epochs[-1].after
        earned = time.earned(earned, {"time": max(map(at_of, batch))} if batch else {})
    return epochs


async def live(
    build: Build, batches: Sequence[Sequence[Item]], watermarks: Sequence[EpochWatermarks]
) -> dict[str, list[Row]]:
    """Results of a live job that gets the watermark of each epoch after its batch."""
    lines: list[Line[Item]] = []
    for batch, epoch in zip(batches, watermarks, strict=True):
        lines += [At(item, item.at) for item in batch]
        if epoch.after > MIN_TIMESTAMP:
            lines.append(Watermark(epoch.after))
    sinks: dict[str, af.CollectSink[Row]] = {}
    flow = flow_of(build, ScriptedSource(*lines), sinks)
    await flow.run(options=af.Options(clock=VirtualClock()))
    return {name: sorted(sink.values) for name, sink in sinks.items()}


class Chain:
    """Epochs on any number of partitions, each with the state of the preceding one."""

    def __init__(self, build: Build, random: Random) -> None:
        self.results: dict[str, list[Row]] = {}
        self._random = random
        self._plan: FragmentPlan = plan_fragments(
            flow_of(build, list[Item](), {}).graph, can_be_late=True
        )
        self._state: dict[str, OperatorSnapshot] = {}

    async def run(self, batch: Sequence[Item], watermarks: EpochWatermarks) -> None:
        subtasks = self._random.choice([1, 2, 3])
        partition = Partition(
            subtasks=subtasks, key_groups=self._plan.key_groups, watermarks=watermarks
        )
        options = af.Options(clock=VirtualClock(), batch_records=self._random.choice([1, 7, 1024]))
        results, left = await run_locally(
            self._plan,
            {"items": batch},
            lambda fragment, groups: partition,
            self._restored,
            options=options,
        )
        for name, rows in results.items():
            self.results.setdefault(name, []).extend(rows)
        for head in {one.head.name for one, _, _ in left if one.keyed}:
            parts = (ran.state[head] for one, _, ran in left if one.head.name == head)
            self._state[head] = merge(parts)

    def _restored(self, fragment: Fragment, groups: KeyGroupRange) -> StateReader | None:
        state = self._state.get(fragment.head.name)
        return None if state is None else lambda: state.restricted_to(groups)


async def in_epochs(
    build: Build,
    batches: Sequence[Sequence[Item]],
    watermarks: Sequence[EpochWatermarks],
    random: Random,
) -> dict[str, list[Row]]:
    """Results of a stream."""
    chain = Chain(build, random)
    for batch, epoch in zip(batches, watermarks, strict=True):
        await chain.run(batch, epoch)
    await chain.run([], EpochWatermarks(watermarks[-1].after, MAX_TIMESTAMP))
    return {name: sorted(rows) for name, rows in chain.results.items()}


@pytest.mark.parametrize(
    "build", [tumbling, lenient, sessions, chained, summed, corrected, in_parts]
)
def test_the_same_records_are_late_as_in_a_live_job(build: Build) -> None:
    random = Random(7)  # a session ends at the watermark of an epoch
    batches = [*batches_of(random), []]
    watermarks = watermarks_of(batches)
    expected = virtual_time.run(lambda: live(build, batches, watermarks))

    found = virtual_time.run(lambda: in_epochs(build, batches, watermarks, random))

    assert found == expected
    assert all(expected.values()), "nothing is late, so nothing is tested"


def test_a_record_is_late_for_a_step_without_state_too() -> None:
    """A step that is new in the flow has no state with the watermark of the preceding epoch."""

    async def main() -> dict[str, list[Row]]:
        chain = Chain(tumbling, Random(1))
        await chain.run([Item(1, 5, 50), Item(1, 7, 90)], EpochWatermarks(before=85, after=130))
        return chain.results

    found = virtual_time.run(main)

    # Of the windows from 40 and from 80, the first one has ended at 85.
    assert found["late out"] == [(50, 1, 5)]
    assert [(at, key) for at, key, _ in found["sums out"]] == [(119, 1)]
