"""Every keyed step, restored from subtasks with different watermarks, has the results of a run without a restore.

Former subtasks get records and watermarks of their own. Their snapshots are restored with another parallelism, and
watermarks start again at the smallest one. The reference is the former subtasks, which continue with the same records
and watermarks. For each key both must emit the same results, with the same timestamps, and the same side outputs.
"""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.windows.assigners import (
    DynamicSessionWindows,
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
)
from aflow.machines.windows.triggers import ContinuousEventTime, Count, EventTime, Purging
from aflow.model.batch import Batch
from aflow.model.key_groups import key_group, ranges
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.operators.accumulation import folding
from aflow.operators.base import Operator, TwoInputOperator
from aflow.operators.context import Context
from aflow.operators.joins.as_of import AsOfJoinOperator
from aflow.operators.joins.co_group import CoGroupOperator
from aflow.operators.joins.interval import IntervalJoinOperator
from aflow.operators.joins.join import Join
from aflow.operators.keyed_function import (
    CoProcess,
    CoProcessOperator,
    KeyedProcess,
    KeyedProcessOperator,
)
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.operators.windows.sessions import SessionAggregateOperator
from aflow.operators.windows.window_operator import WindowOperator
from aflow.state.backend_choice import DiskEngine, OnDisk
from aflow.state.snapshot import OperatorSnapshot, merge
from tests.operators.driver import Driver
from tests.operators.joins.backends import with_backend
from tests.operators.windows.window_steps import logic

Event = tuple[str, int]

#: Key groups are few, so that neighbouring groups have different watermarks.
GROUPS = 8
KEYS = "abcdefgh"

ON_DISK = OnDisk(DiskEngine.SQLITE, resident=1)

SUM = folding(int, lambda total, event: total + event[1], lambda a, b: a + b)


class Late(KeyedProcess[str, Event, Any]):
    """Emits for each record if it is late, and sets a timer after the watermark of its key."""

    def process(self, value: Event, ctx: Context[str]) -> list[Any]:
        assert ctx.timestamp is not None
        ctx.set_event_timer(max(ctx.timestamp, ctx.watermark) + 1 + value[1] % 9)
        return [(ctx.key, value, ctx.timestamp <= ctx.watermark)]

    def on_timer(self, at: Timestamp, ctx: Context[str]) -> list[Any]:
        return [(ctx.key, at)]


class LateOfBoth(CoProcess[str, Event, Event, Any]):
    def process_left(self, value: Event, ctx: Context[str]) -> list[Any]:
        assert ctx.timestamp is not None
        ctx.set_event_timer(max(ctx.timestamp, ctx.watermark) + 3)
        return [(ctx.key, value, ctx.timestamp <= ctx.watermark)]

    def process_right(self, value: Event, ctx: Context[str]) -> list[Any]:
        return self.process_left(value, ctx)

    def on_timer(self, at: Timestamp, ctx: Context[str]) -> list[Any]:
        return [(ctx.key, at)]


def windows(**parts: Any) -> Callable[[], Operator]:
    made = logic(**parts)
    return lambda: WindowOperator(made)


def pair(left: Event | None, right: Event | None) -> Any:
    return (left or right or ("", 0))[0], left, right


def sizes(lefts: Sequence[Any], rights: Sequence[Any]) -> tuple[int, int]:
    return len(lefts), len(rights)


def gap_of(event: Event) -> int:
    return 1 + event[1] % 4


OPERATORS: Mapping[str, Callable[[], Operator]] = {
    "tumbling": lambda: PaneAggregateOperator(TumblingWindows(5), SUM),
    "tumbling, late": lambda: PaneAggregateOperator(TumblingWindows(5), SUM, lateness=7),
    "sliding": lambda: PaneAggregateOperator(SlidingWindows(6, 2), SUM, shared=False, lateness=3),
    "panes": lambda: PaneAggregateOperator(SlidingWindows(12, 4), SUM),
    "panes, short": lambda: PaneAggregateOperator(SlidingWindows(7, 2), SUM),
    "panes, late": lambda: PaneAggregateOperator(SlidingWindows(6, 2), SUM, lateness=6),
    "sessions": lambda: SessionAggregateOperator(3, SUM),
    "sessions, late": lambda: SessionAggregateOperator(3, SUM, lateness=8),
    "general": windows(assigner=TumblingWindows(5)),
    "general, late": windows(assigner=SlidingWindows(6, 2), lateness=4),
    "general, early": windows(trigger=EventTime(early=Count(2), late=Count(2)), lateness=4),
    "general, continuous": windows(
        trigger=ContinuousEventTime(timedelta(milliseconds=3)), lateness=4
    ),
    "general, merging": windows(assigner=SessionWindows(3), lateness=4),
    "general, gaps": windows(assigner=DynamicSessionWindows(gap_of)),
    "general, global": windows(assigner=GlobalWindows(), trigger=Purging(Count(2))),
    "timers": lambda: KeyedProcessOperator(Late()),
    "timers, two inputs": lambda: CoProcessOperator(LateOfBoth()),
    "interval": lambda: IntervalJoinOperator(-3, 2, pair),
    "interval, outer": lambda: IntervalJoinOperator(-3, 2, pair, kind=Join.FULL),
    "interval on disk": lambda: with_backend(IntervalJoinOperator(-3, 2, pair), ON_DISK),
    "interval on disk, outer": lambda: with_backend(
        IntervalJoinOperator(-3, 2, pair, kind=Join.FULL), ON_DISK
    ),
    "as of": lambda: AsOfJoinOperator(pair, kind=Join.LEFT),
    "as of on disk": lambda: with_backend(AsOfJoinOperator(pair, kind=Join.LEFT), ON_DISK),
    "as of on disk, recent": lambda: with_backend(
        AsOfJoinOperator(pair, kind=Join.LEFT, tolerance=6), ON_DISK
    ),
    "co-group": lambda: CoGroupOperator(
        WindowLogic(assigner=TumblingWindows(5), trigger=EventTime(), lateness=3), sizes
    ),
}


@dataclass(frozen=True)
class Records:
    """A batch; each record has a key, a number and a timestamp relative to the watermark of its former subtask."""

    events: Sequence[tuple[str, int, int]]
    right: bool


@dataclass(frozen=True)
class Advance:
    """The watermark of former subtask ``subtask`` advances; after the restore, that of all subtasks."""

    subtask: int
    by: int


Step = Records | Advance

EVENTS = st.tuples(st.sampled_from(KEYS), st.integers(1, 40), st.integers(-6, 12))
BATCHES = st.builds(Records, st.lists(EVENTS, min_size=1, max_size=6), st.booleans())
ADVANCES = st.builds(Advance, st.integers(0, 2), st.integers(1, 9))
STORIES = st.lists(st.one_of(BATCHES, ADVANCES), max_size=8)


class Subtasks:
    """All subtasks of a step."""

    def __init__(
        self, make: Callable[[], Operator], parallelism: int, restored: OperatorSnapshot | None
    ) -> None:
        self.drivers = [
            Driver(make, subtask=subtask, parallelism=parallelism, key_groups=GROUPS)
            for subtask in range(parallelism)
        ]
        for driver in self.drivers:
            if restored is not None:
                driver.restore(restored)
        self._shares = ranges(GROUPS, parallelism)

    def owner(self, key: Hashable) -> int:
        group = key_group(key, GROUPS)
        return next(n for n, share in enumerate(self._shares) if group in share)

    def push(self, events: Iterable[tuple[str, int, Timestamp]], *, right: bool) -> None:
        shares: dict[int, list[tuple[str, int, Timestamp]]] = {}
        for event in events:
            shares.setdefault(self.owner(event[0]), []).append(event)
        for subtask, some in shares.items():
            operator = self.drivers[subtask].operator
            batch = Batch[Any](
                [(key, number) for key, number, _ in some],
                [at for _, _, at in some],
                [key for key, _, _ in some],
            )
            if not isinstance(operator, TwoInputOperator):
                operator.process(batch)
            elif right:
                operator.process_right(batch)
            else:
                operator.process_left(batch)

    def watermark(self, timestamp: Timestamp) -> None:
        for driver in self.drivers:
            driver.operator.on_watermark(timestamp)

    def snapshot(self) -> OperatorSnapshot:
        return merge([driver.snapshot() for driver in self.drivers])

    def emitted(self) -> Bag[Any]:
        """All results and all records of side outputs."""
        found = Bag[Any](record for driver in self.drivers for record in driver.new_records())
        for driver in self.drivers:
            for tag in driver.recorder.sides:
                found.update((tag, record) for record in driver.side_records(tag))
            driver.recorder.sides.clear()
        return found


class Life:
    """Former subtasks with watermarks of their own, and the subtasks that were restored from them."""

    def __init__(self, make: Callable[[], Operator], parallelism: int) -> None:
        self._make = make
        self.former = Subtasks(make, parallelism, None)
        self.own = [0] * parallelism
        for driver in self.former.drivers:
            driver.watermark(0)
        self.restored: Subtasks | None = None
        self.common = 0

    def restore(self, parallelism: int) -> None:
        snapshot = (self.restored or self.former).snapshot()
        if self.restored is None:
            self.common = min(self.own)
            self.former.emitted()
        self.restored = Subtasks(self._make, parallelism, snapshot)

    def live(self, step: Step) -> None:
        if isinstance(step, Records):
            events = [
                (key, number, max(0, self.own[self.former.owner(key)] + ahead))
                for key, number, ahead in step.events
            ]
            self.former.push(events, right=step.right)
            if self.restored is not None:
                self.restored.push(events, right=step.right)
        elif self.restored is None:
            subtask = step.subtask % len(self.own)
            self.own[subtask] += step.by
            self.former.drivers[subtask].watermark(self.own[subtask])
        else:
            self.advance(self.common + step.by)

    def advance(self, timestamp: Timestamp) -> None:
        """Advance the watermark of the input after the restore; a former subtask may be ahead of it."""
        assert self.restored is not None
        self.common = timestamp
        self.restored.watermark(timestamp)
        self.own = [max(one, timestamp) for one in self.own]
        self.former.watermark(timestamp)

    def check(self) -> None:
        assert self.restored is not None
        assert self.restored.emitted() == self.former.emitted()


@pytest.mark.parametrize("name", OPERATORS)
@given(
    before=STORIES,
    between=STORIES,
    after=STORIES,
    parallelism=st.tuples(st.integers(2, 3), st.integers(1, 4), st.integers(1, 4)),
)
@settings(max_examples=30, deadline=None)
def test_a_step_restored_from_subtasks_with_different_watermarks_emits_the_same_results(
    name: str,
    before: list[Step],
    between: list[Step],
    after: list[Step],
    parallelism: tuple[int, int, int],
) -> None:
    check_restored(name, before, between, after, parallelism)


def check_restored(
    name: str,
    before: list[Step],
    between: list[Step],
    after: list[Step],
    parallelism: tuple[int, int, int],
) -> None:
    life = Life(OPERATORS[name], parallelism[0])
    for step in before:
        life.live(step)
    life.restore(parallelism[1])
    for step in between:
        life.live(step)
    life.check()

    # A subtask whose groups are still ahead is restored again.
    life.restore(parallelism[2])
    for step in after:
        life.live(step)
    life.advance(MAX_TIMESTAMP)

    life.check()
