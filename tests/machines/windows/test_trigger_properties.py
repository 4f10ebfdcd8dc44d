"""Triggers without memory and timers after their windows were cleared, in any history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.windows.assigners import SessionWindows, TumblingWindows
from aflow.machines.windows.merging_window_set import MergingWindowSet, merge_touching
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    Count,
    Delta,
    EventTime,
    Never,
    ProcessingTime,
    Purging,
)
from aflow.model.windows import TimeWindow
from tests.machines.windows.trigger_driver import TriggerDriver

TENS: Final = TumblingWindows(10)

EVERY: Final = st.integers(1, 12).map(lambda every: timedelta(milliseconds=every))

simple: Final[st.SearchStrategy[Trigger[Any]]] = st.one_of(
    st.just(EventTime[Any]()),
    st.just(ProcessingTime()),
    EVERY.map(ContinuousEventTime),
    EVERY.map(ContinuousProcessingTime),
    st.integers(1, 4).map(Count),
    st.just(Never()),
)
merging: Final[st.SearchStrategy[Trigger[Any]]] = st.recursive(
    simple,
    lambda inner: st.one_of(
        inner.map(lambda trigger: Purging[Any](trigger)),
        st.tuples(st.none() | inner, st.none() | inner).map(lambda parts: EventTime[Any](*parts)),
    ),
    max_leaves=4,
)
separate: Final[st.SearchStrategy[Trigger[Any]]] = st.floats(0, 5).map(
    lambda threshold: EventTime[Any](early=Delta(threshold, lambda last, value: value - last))
)

#: Records (time, length of the window), and the advance of the watermark and the clock.
records: Final = st.tuples(st.just("record"), st.integers(-40, 40), st.integers(1, 15))
steps: Final = st.lists(
    records
    | st.tuples(st.sampled_from(["watermark", "clock"]), st.integers(0, 15), st.just(0))
    | st.tuples(st.just("clear"), st.integers(0, 5), st.just(0)),
    max_size=40,
)


class History:
    """A trigger with the windows of one key, called as by a window step; sessions if it supports merges."""

    def __init__(self, trigger: Trigger[Any]) -> None:
        self.driver = TriggerDriver(trigger)
        self.driver.watermark = self.driver.clock = -40
        self.windows = MergingWindowSet(merge_touching if trigger.merges else lambda some: [])
        #: Windows that were cleared or merged, and not created again.
        self.gone: set[TimeWindow] = set()

    def play(self, step: tuple[str, int, int]) -> None:
        word, number, length = step
        match word:
            case "record":
                self.record(number, length)
            case "watermark":
                self.driver.advance_watermark(self.driver.watermark + number)
            case "clock":
                self.driver.advance_clock(self.driver.clock + number)
            case _:
                for window in list(self.there())[number : number + 1]:
                    self.clear(window)

    def record(self, at: int, length: int) -> None:
        (own,) = (SessionWindows(length) if self.driver.trigger.merges else TENS).assign(None, at)
        window, merge = self.windows.add(own)
        if merge is not None:
            self.driver.merge(merge.sources, merge.target)
            self.gone.update(merge.sources)
        self.gone.discard(window)
        self.driver.element(window, at, value=at)

    def clear(self, window: TimeWindow) -> None:
        self.driver.clear(window)
        self.windows.retire(window)
        self.gone.add(window)

    def there(self) -> Iterator[TimeWindow]:
        return (window for window, _ in self.windows)


def leaves_its_end(trigger: Trigger[Any]) -> bool:
    """Return True for the trigger that does not delete the timer for a window's end, also if it purges."""
    while isinstance(trigger, Purging):
        trigger = trigger.trigger
    return isinstance(trigger, ContinuousEventTime)


@settings(max_examples=300, deadline=None)
@given(merging | separate, steps)
def test_removed_windows_have_neither_state_nor_timers(
    trigger: Trigger[Any], happens: list[tuple[str, int, int]]
) -> None:
    history = History(trigger)
    driver = history.driver

    for step in happens:
        history.play(step)

        assert driver.memory.keys() <= set(history.there())
    for window in list(history.there()):
        history.clear(window)
    assert driver.memory == {}
    left = {*driver.event, *driver.processing}
    if leaves_its_end(trigger):
        left -= {(window.max_timestamp, window) for window in history.gone}
    assert left == set()


@settings(max_examples=200, deadline=None)
@given(merging, steps)
def test_event_time_has_a_timer_for_the_end_of_each_window_that_has_not_ended(
    trigger: Trigger[Any], happens: list[tuple[str, int, int]]
) -> None:
    history = History(EventTime[Any](early=trigger))
    driver = history.driver

    for step in happens:
        history.play(step)

        for window in history.there():
            ended = window.max_timestamp <= driver.watermark
            assert ended or window.max_timestamp in driver.event.of(window)


@settings(max_examples=200, deadline=None)
@given(EVERY, steps, st.booleans())
def test_a_stored_multiple_has_a_timer(
    every: timedelta, happens: list[tuple[str, int, int]], on_the_clock: bool
) -> None:
    trigger = ContinuousProcessingTime(every) if on_the_clock else ContinuousEventTime(every)
    history = History(trigger)
    driver = history.driver
    timers = driver.processing if on_the_clock else driver.event

    for step in happens:
        history.play(step)

        for window, names in driver.memory.items():
            assert names["next"] in timers.of(window)


@settings(max_examples=200, deadline=None)
@given(EVERY, steps)
def test_a_late_trigger_has_a_timer_for_its_stored_multiple(
    every: timedelta, happens: list[tuple[str, int, int]]
) -> None:
    history = History(EventTime[Any](late=ContinuousProcessingTime(every)))
    driver = history.driver

    for step in happens:
        history.play(step)

        for window, names in driver.memory.items():
            assert names["late.next"] in driver.processing.of(window)
