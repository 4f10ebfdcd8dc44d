"""Late has one meaning for all steps: the timestamp is at or before the watermark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

import pytest

import aflow as af
from aflow.connect import Split
from aflow.testing import ScriptedSource

Record: TypeAlias = tuple[str, int]
Keyed: TypeAlias = af.KeyedStream[str, Record]
Step: TypeAlias = Callable[
    [Keyed, Callable[[], Keyed]], tuple[af.Stream[object], af.Stream[Record]]
]


class NoSplits(ScriptedSource[Record]):
    """A source without splits: it does not hold event time back, so lateness does not depend on the other input."""

    async def splits(self) -> Sequence[Split]:
        return []


MS = timedelta(milliseconds=1)
WATERMARK = 99


def tumbling(
    keyed: Keyed, other: Callable[[], Keyed]
) -> tuple[af.Stream[object], af.Stream[Record]]:
    results = keyed.window(af.Tumbling(MS)).apply(list, name="step")
    return results.map(lambda one: one), results.late


def sliding(
    keyed: Keyed, other: Callable[[], Keyed]
) -> tuple[af.Stream[object], af.Stream[Record]]:
    results = keyed.window(af.Sliding(MS, MS)).apply(list, name="step")
    return results.map(lambda one: one), results.late


def sessions(
    keyed: Keyed, other: Callable[[], Keyed]
) -> tuple[af.Stream[object], af.Stream[Record]]:
    results = keyed.sessions(MS, name="step")
    return results.map(lambda one: one), results.late


def interval_join(
    keyed: Keyed, other: Callable[[], Keyed]
) -> tuple[af.Stream[object], af.Stream[Record]]:
    results = keyed.interval_join(other(), between=(-MS, MS)).full(lambda one, _: one, name="step")
    return results.map(lambda one: one), results.late_left


def as_of_join(
    keyed: Keyed, other: Callable[[], Keyed]
) -> tuple[af.Stream[object], af.Stream[Record]]:
    results = keyed.as_of_join(other()).left(lambda one, _: one, name="step")
    return results.map(lambda one: one), results.late_left


def window_join(
    keyed: Keyed, other: Callable[[], Keyed]
) -> tuple[af.Stream[object], af.Stream[Record]]:
    results = keyed.window_join(other(), af.Tumbling(MS)).full(lambda one, _: one, name="step")
    return results.map(lambda one: one), results.late_left


def co_group(
    keyed: Keyed, other: Callable[[], Keyed]
) -> tuple[af.Stream[object], af.Stream[Record]]:
    results = keyed.co_group(other(), af.Tumbling(MS), into=lambda some, _: list(some), name="step")
    return results.map(lambda one: one), results.late_left


STEPS = [tumbling, sliding, sessions, interval_join, as_of_join, window_join, co_group]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize(("at", "is_late"), [(WATERMARK, True), (WATERMARK + 1, False)])
def test_a_record_is_late_if_and_only_if_it_is_at_or_before_the_watermark(
    step: Step, at: int, is_late: bool
) -> None:
    # The watermark of a step with sessions is 1 ms behind that of its input.
    first: Record = ("first", WATERMARK + (2 if step is sessions else 1))
    record: Record = ("second", at)
    flow = af.Flow("late")
    records: list[Record] = [first, record]
    timed = flow.source(records, name="records").event_time(lambda r: r[1], name="time")

    def nothing() -> Keyed:
        none = flow.source(NoSplits(), name="none").event_time(lambda r: r[1], name="no time")
        return none.key_by(lambda r: r[0], name="no key")

    results, late = step(timed.key_by(lambda r: r[0]), nothing)
    found, found_late = af.CollectSink[object](), af.CollectSink[Record]()
    results.to(found, name="found")
    late.to(found_late, name="late")

    asyncio.run(flow.run())

    assert found_late.values == [record] * is_late
    assert len(found.values) == 2 - is_late
