"""Windows that depend on the data, the global window, and custom assigners."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow.machines.windows.assigners import (
    DynamicSessionWindows,
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.merging_window_set import Merged, MergingWindowSet
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow

timestamps = st.integers(MIN_TIMESTAMP, MAX_TIMESTAMP) | st.integers(-50, 50)

own_gap = DynamicSessionWindows[Any](lambda gap: gap)


@given(timestamps, st.integers(1, 50))
def test_a_session_begins_with_its_record_and_ends_a_gap_after_it(at: int, gap: int) -> None:
    expected = [TimeWindow(at, at + gap)]

    assert SessionWindows(gap).assign(None, at) == expected
    assert own_gap.assign(gap, at) == expected


def test_records_exactly_a_gap_apart_are_in_one_session_and_further_apart_in_two() -> None:
    windows = SessionWindows(5)
    first, at_gap, behind = (windows.assign(None, at)[0] for at in (-3, 2, 3))

    assert windows.merge([first, at_gap]) == [Merged(TimeWindow(-3, 7), [first, at_gap])]
    assert windows.merge([first, behind]) == []


def test_a_later_record_with_a_smaller_gap_never_ends_a_session_earlier() -> None:
    windows = MergingWindowSet(own_gap.merge)

    for gap, at in ((100, 0), (1, 10), (5, 98)):
        windows.add(own_gap.assign(gap, at)[0])

    assert [window for window, _ in windows] == [TimeWindow(0, 103)]


@pytest.mark.parametrize("gap", [0, -1], ids=str)
def test_a_dynamic_gap_that_is_not_positive_names_its_value(gap: int) -> None:
    windows = DynamicSessionWindows[str](lambda value: gap)

    with pytest.raises(
        FlowDefinitionError, match=rf"longer than 0 ms, not {gap} ms as after 'flight 7'"
    ):
        windows.assign("flight 7", 5)


@pytest.mark.parametrize("gap", [2.5, None, True, "9"], ids=str)
def test_a_dynamic_gap_that_is_no_whole_number_is_refused(gap: object) -> None:
    windows = DynamicSessionWindows[str](lambda value: cast("int", gap))

    with pytest.raises(
        FlowDefinitionError, match=rf"whole number of ms, not '?{gap}'? as after 'flight 7'"
    ):
        windows.assign("flight 7", 5)


@pytest.mark.parametrize("gap", [0, -1], ids=str)
def test_a_fixed_gap_that_is_not_positive_is_refused_at_once(gap: int) -> None:
    with pytest.raises(FlowDefinitionError, match=f"gap of a window .* not {gap} ms"):
        SessionWindows(gap)


@given(timestamps)
def test_all_time_is_in_the_global_window(at: int) -> None:
    (window,) = GlobalWindows().assign(None, at)

    assert window == GLOBAL_WINDOW
    assert window.start <= at <= window.max_timestamp


@pytest.mark.parametrize(
    ("windows", "merging"),
    [
        (TumblingWindows(5), False),
        (SlidingWindows(5, 2), False),
        (GlobalWindows(), False),
        (SessionWindows(5), True),
        (own_gap, True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_only_sessions_merge_and_event_time_is_the_default(
    windows: WindowAssigner[Any], merging: bool
) -> None:
    assert windows.merging is merging
    assert windows.domain is TimeDomain.EVENT


@pytest.mark.parametrize(
    ("of_events", "of_the_clock"),
    [
        (TumblingWindows(5, 2), TumblingWindows(5, 2, TimeDomain.PROCESSING)),
        (SlidingWindows(5, 3, 1), SlidingWindows(5, 3, 1, TimeDomain.PROCESSING)),
        (SessionWindows(5), SessionWindows(5, TimeDomain.PROCESSING)),
        (own_gap, DynamicSessionWindows[Any](lambda gap: gap, TimeDomain.PROCESSING)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_windows_of_processing_time_have_the_grid_of_event_time(
    of_events: WindowAssigner[Any], of_the_clock: WindowAssigner[Any]
) -> None:
    assert of_the_clock.domain is TimeDomain.PROCESSING
    assert of_the_clock.merging is of_events.merging
    for at in (-7, 0, 12):
        assert of_the_clock.assign(4, at) == of_events.assign(4, at)


def test_a_custom_assigner_is_of_event_time_and_does_not_merge_by_default() -> None:
    class Days(WindowAssigner[object]):
        def assign(self, value: object, timestamp: int) -> list[TimeWindow]:
            return [TimeWindow(0, 5)]

    days = Days()

    assert (days.domain, days.merging) == (TimeDomain.EVENT, False)
    assert days.merge([TimeWindow(0, 5), TimeWindow(5, 6)]) == [
        Merged(TimeWindow(0, 6), [TimeWindow(0, 5), TimeWindow(5, 6)])
    ]
