"""The open windows of a key for readers: their contents and firings, without any effect on the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.windows.assigners import SessionWindows, SlidingWindows, TumblingWindows
from aflow.machines.windows.triggers import EventTime
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.accumulation import Accumulation, folding, reducing
from aflow.operators.base import Operator
from aflow.operators.windows.factory import window_operator
from aflow.operators.windows.logic import WindowLogic
from aflow.operators.windows.open_windows import WINDOWS, joined_ranges, merged_panes
from aflow.state.readable_state import ABSENT, KeySelection
from tests.operators.backends import BackendHarness

Harness = BackendHarness[int, Windowed[Any, Any]]


def parity(number: int) -> int:
    return number % 2


def fifth(number: int) -> int:
    return number % 5


def same_number(number: int) -> int:
    return number


def same(_: int) -> str:
    return "k"


def joined(a: list[int], b: list[int]) -> list[int]:
    a += b
    return a


def appended(numbers: list[int], number: int) -> list[int]:
    numbers.append(number)
    return numbers


def lists() -> Accumulation:
    """Return an accumulation whose accumulators are changed in place."""
    return folding(list[int], appended, joined)


@given(
    st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, 9), min_size=1), max_size=8),
    st.sets(st.integers(-6, 12)),
    st.integers(1, 6),
    st.booleans(),
)
def test_windows_are_merged_from_their_panes_which_stay_as_they_are(
    panes: dict[int, list[int]], starts: set[int], size: int, summed: bool
) -> None:
    accumulation = reducing(lambda a, b: a + b) if summed else lists()

    def make(numbers: list[int]) -> Any:
        return sum(numbers) if summed else list(numbers)

    parts = [(start, make(panes[start])) for start in sorted(panes)]

    found = dict(merged_panes(parts, sorted(starts), size, accumulation))

    expected = {
        start: make(
            [number for at in sorted(panes) if start <= at < start + size for number in panes[at]]
        )
        for start in starts
        if any(start <= at < start + size for at in panes)
    }
    assert found == expected
    assert parts == [(start, make(panes[start])) for start in sorted(panes)]
    assert not any(held is part for held in found.values() for _, part in parts if not summed)


def state(harness: Harness, key: object) -> Any:
    view = harness.operator.readable_state()
    assert view is not None
    found = view.read(WINDOWS, key)
    return None if found is ABSENT else found


def send(harness: Harness, *records: tuple[int, int]) -> None:
    for value, at in records:
        harness.push(value, at)


def keys(harness: Harness) -> list[Any]:
    view = harness.operator.readable_state()
    assert view is not None
    selection = KeySelection(100)
    for _ in selection.fill(view.scan(WINDOWS, selection)):
        pass
    return [key for key in selection if view.read(WINDOWS, key) is not ABSENT]


def step(assigner: Any, *, general: bool = False) -> Callable[[], Operator]:
    """Return a factory of windows of records with lateness; ``general`` ones have no fast operator."""

    class Trigger(EventTime[Any]):
        pass

    trigger = Trigger() if general else EventTime[Any]()
    return lambda: window_operator(
        WindowLogic(assigner=assigner, trigger=trigger, accumulation=lists(), lateness=20)
    )


ASSIGNERS = [
    pytest.param(TumblingWindows(10), id="tumbling"),
    pytest.param(SlidingWindows(10, 5), id="sliding"),
    pytest.param(SessionWindows(10), id="session"),
]


@pytest.mark.parametrize("general", [False, True], ids=["fast", "general"])
@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_a_window_counts_its_firings_until_it_is_cleaned_up(assigner: Any, general: bool) -> None:
    with Harness(step(assigner, general=general), key=parity) as harness:
        send(harness, (2, 30), (3, 31))
        harness.watermark(29)
        before = [(one.value, one.firing) for one in state(harness, 0)]
        harness.watermark(45)
        fired = [(one.value, one.firing) for one in state(harness, 0)]
        send(harness, (4, 32))
        again = [(one.value, one.firing) for one in state(harness, 0)]
        other = [(one.value, one.firing) for one in state(harness, 1)]
        listed = keys(harness)
        harness.watermark(100)

        assert {firing for _, firing in before} == {0}
        assert fired == [(value, 1) for value, _ in before]
        assert (again[-1], other[-1]) == (([2, 4], 2), ([3], 1))
        assert listed == [0, 1]
        assert state(harness, 0) is None
        assert keys(harness) == []


@pytest.mark.parametrize("general", [False, True], ids=["fast", "general"])
def test_a_window_that_is_cleaned_up_is_not_open_although_its_records_are_in_another(
    general: bool,
) -> None:
    make = step(SlidingWindows(10, 5), general=general)
    with Harness(make, key=parity) as harness:
        send(harness, (2, 30))
        harness.watermark(53)
        before = [one.window.start for one in state(harness, 0)]
        harness.watermark(54)
        after = [one.window.start for one in state(harness, 0)]

    assert (before, after) == ([25, 30], [30])


@pytest.mark.parametrize("general", [False, True], ids=["fast", "general"])
@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_reads_change_neither_results_nor_snapshots(assigner: Any, general: bool) -> None:
    def run(*, reads: bool) -> tuple[Any, Any]:
        with Harness(step(assigner, general=general), key=fifth) as harness:
            for number in range(40):
                send(harness, (number, 3 * number))
                if reads:
                    for key in range(6):
                        for one in state(harness, key) or ():
                            one.value.append(99)
                    keys(harness)
                if number % 10 == 9:
                    harness.watermark(3 * number - 15)
            return harness.values, harness.snapshot()

    assert run(reads=True) == run(reads=False)


def test_windows_are_results_without_their_last_records() -> None:
    with Harness(step(TumblingWindows(10)), key=same) as harness:
        send(harness, (1, 3), (2, 13), (3, 4))

        assert state(harness, "k") == [
            Windowed("k", TimeWindow(0, 10), [1, 3], 0),
            Windowed("k", TimeWindow(10, 20), [2], 0),
        ]


@given(starts=st.lists(st.integers(0, 30)), length=st.integers(0, 6), step=st.integers(1, 4))
def test_joined_ranges_have_each_number_once_and_in_order(
    starts: list[int], length: int, step: int
) -> None:
    ranges = [range(start * step, (start + length) * step, step) for start in sorted(starts)]

    assert joined_ranges(ranges) == sorted(set[int]().union(*ranges))


@pytest.mark.parametrize("general", [False, True], ids=["fast", "general"])
@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_a_key_that_moves_to_a_new_window_during_a_scan_is_found(
    assigner: Any, general: bool
) -> None:
    with Harness(step(assigner, general=general), key=same_number) as harness:
        send(harness, (1, 1), (2, 12))
        view = harness.operator.readable_state()
        assert view is not None
        scan = view.scan(WINDOWS, KeySelection(100))
        found = list(next(scan))
        send(harness, (2, 52))
        harness.watermark(45)
        for some in scan:
            found += some

        assert 2 in found


def test_a_key_whose_fired_session_ends_during_a_scan_is_found_in_its_next_session() -> None:
    with Harness(step(SessionWindows(10)), key=same_number) as harness:
        send(harness, (2, 1))
        harness.watermark(15)
        send(harness, (1, 40))
        view = harness.operator.readable_state()
        assert view is not None
        scan = view.scan(WINDOWS, KeySelection(100))
        found = list(next(scan))
        send(harness, (2, 60))
        harness.watermark(45)
        for some in scan:
            found += some

        assert set(found) == {1, 2}
