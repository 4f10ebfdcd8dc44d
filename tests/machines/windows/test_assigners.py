"""The windows of a timestamp."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError
from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.model.windows import TimeWindow

timestamps = st.integers(MIN_TIMESTAMP, MAX_TIMESTAMP) | st.integers(-50, 50)


@st.composite
def tumbling(draw: st.DrawFn) -> TumblingWindows:
    size = draw(st.integers(1, 20))
    return TumblingWindows(size, draw(st.integers(1 - size, size - 1)))


@st.composite
def sliding(draw: st.DrawFn) -> SlidingWindows:
    slide = draw(st.integers(1, 20))
    return SlidingWindows(draw(st.integers(1, 50)), slide, draw(st.integers(1 - slide, slide - 1)))


@given(tumbling(), timestamps)
def test_a_tumbling_window_contains_its_timestamp(windows: TumblingWindows, at: int) -> None:
    (window,) = windows.assign(None, at)

    assert window.start <= at <= window.max_timestamp
    assert window.end - window.start == windows.size
    assert (window.start - windows.offset) % windows.size == 0
    assert window.start == windows.start_of(at)


@given(tumbling(), timestamps)
def test_tumbling_windows_partition_time(windows: TumblingWindows, at: int) -> None:
    (window,) = windows.assign(None, at)

    assert (
        windows.assign(None, window.start) == windows.assign(None, window.max_timestamp) == [window]
    )
    assert windows.assign(None, window.end) == [TimeWindow(window.end, window.end + windows.size)]


@given(sliding(), timestamps)
def test_a_timestamp_is_in_exactly_the_sliding_windows_of_the_grid_that_contain_it(
    windows: SlidingWindows, at: int
) -> None:
    grid = [
        TimeWindow(start, start + windows.size)
        for start in range(at - windows.size + 1, at + 1)
        if (start - windows.offset) % windows.slide == 0
    ]

    assert windows.assign(None, at) == grid


@given(sliding(), timestamps)
def test_the_start_of_a_sliding_window_is_the_latest_on_the_grid(
    windows: SlidingWindows, at: int
) -> None:
    start = windows.start_of(at)

    assert start <= at < start + windows.slide
    assert (start - windows.offset) % windows.slide == 0


def test_a_timestamp_between_sliding_windows_is_in_none() -> None:
    windows = SlidingWindows(size=5, slide=10)

    assert windows.assign(None, 4) == [TimeWindow(0, 5)]
    assert windows.assign(None, 5) == []


def test_a_size_that_is_no_multiple_of_the_slide_has_two_numbers_of_windows() -> None:
    windows = SlidingWindows(size=5, slide=2)

    assert windows.assign(None, 4) == [TimeWindow(0, 5), TimeWindow(2, 7), TimeWindow(4, 9)]
    assert windows.assign(None, 5) == [TimeWindow(2, 7), TimeWindow(4, 9)]


@pytest.mark.parametrize(
    ("size", "offset", "complaint"),
    [
        (0, 0, "size of a window must be longer than 0 ms, not 0 ms"),
        (-5, 0, "not -5 ms"),
        (5, 5, "offset 5 ms must be shorter than size, which is 5 ms"),
        (5, -7, "offset -2 ms gives the same windows"),
    ],
    ids=str,
)
def test_invalid_tumbling_windows_are_refused(size: int, offset: int, complaint: str) -> None:
    with pytest.raises(FlowDefinitionError, match=complaint):
        TumblingWindows(size, offset)


@pytest.mark.parametrize(
    ("size", "slide", "offset", "complaint"),
    [
        (0, 5, 0, "size of a window"),
        (5, 0, 0, "slide of a window"),
        (5, -5, 0, "slide of a window"),
        (20, 10, 10, "shorter than slide, which is 10 ms"),
        (20, 10, -11, "offset -1 ms gives the same windows"),
    ],
    ids=str,
)
def test_invalid_sliding_windows_are_refused(
    size: int, slide: int, offset: int, complaint: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=complaint):
        SlidingWindows(size, slide, offset)


@given(tumbling(), st.integers(-50, 50), st.integers(-3, 3))
def test_a_refused_offset_means_the_windows_that_the_message_names(
    windows: TumblingWindows, at: int, turns: int
) -> None:
    shifted = windows.offset + turns * windows.size
    try:
        TumblingWindows(windows.size, shifted)
    except FlowDefinitionError as exc:
        named = int(str(exc).rsplit("; offset ", 1)[1].split(" ")[0])

        assert TumblingWindows(windows.size, named).assign(None, at) == windows.assign(None, at)
