"""Completed checkpoints that are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.checkpoints.coordinator import CompletedCheckpoints


def test_the_oldest_is_superfluous_when_there_are_more_than_are_kept() -> None:
    completed = CompletedCheckpoints(2)

    assert [completed.add(number) for number in (1, 2, 3)] == [(), (), (1,)]
    assert completed.ids == (2, 3)


def test_checkpoints_of_an_earlier_attempt_count_and_are_removed_first() -> None:
    completed = CompletedCheckpoints(2, known=[5, 3])

    assert completed.add(7) == (3,)
    assert completed.ids == (5, 7)


def test_surplus_checkpoints_of_an_earlier_attempt_are_removed_with_the_next_one() -> None:
    completed = CompletedCheckpoints(1, known=[1, 2, 3])

    assert completed.ids == (1, 2, 3)
    assert completed.add(4) == (1, 2, 3)


def test_one_that_completes_after_newer_ones_is_superfluous_itself() -> None:
    completed = CompletedCheckpoints(1, known=[4])

    assert completed.add(3) == (3,)
    assert completed.ids == (4,)


@given(st.integers(1, 4), st.lists(st.integers(0, 50), unique=True))
def test_the_newest_are_kept_and_the_others_are_removed_once(keep: int, numbers: list[int]) -> None:
    completed = CompletedCheckpoints(keep)

    gone = [each for number in numbers for each in completed.add(number)]

    assert completed.ids == tuple(sorted(numbers)[-keep:])
    assert sorted([*gone, *completed.ids]) == sorted(numbers)
