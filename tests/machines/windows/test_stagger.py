"""The shift of the windows of a subtask."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.windows.assigners import TumblingWindows
from aflow.machines.windows.stagger import WindowStagger


@pytest.mark.parametrize(
    ("stagger", "by"),
    [(WindowStagger.ALIGNED, 0), (WindowStagger.RANDOM, 75), (WindowStagger.NATURAL, 30)],
)
def test_the_shift_of_each_stagger(stagger: WindowStagger, by: int) -> None:
    assert stagger.shift(100, now=1_030, random=0.75) == by


@given(
    stagger=st.sampled_from(WindowStagger),
    size=st.integers(1, 10**15),
    now=st.integers(-(10**15), 10**15),
    random=st.floats(0, 1, exclude_max=True),
)
def test_a_shift_is_shorter_than_the_window(
    stagger: WindowStagger, size: int, now: int, random: float
) -> None:
    assert 0 <= stagger.shift(size, now, random) < size


@given(
    size=st.integers(1, 1_000),
    offset=st.integers(-999, 999),
    by=st.integers(0, 999),
    at=st.integers(-(10**6), 10**6),
)
def test_shifted_windows_start_later_by_the_shift(size: int, offset: int, by: int, at: int) -> None:
    windows = TumblingWindows(size, offset % size, stagger=WindowStagger.RANDOM)

    (window,) = windows.shifted(by).assign(None, at)

    assert window.start <= at < window.end
    assert (window.start - offset - by) % size == 0
