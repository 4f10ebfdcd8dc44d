"""Completed checkpoints that are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.checkpoints.kept import CompletedCheckpoints, Generations


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


def test_checkpoints_that_could_not_be_restored_are_removed_before_older_ones() -> None:
    completed = CompletedCheckpoints(2, known=[1, 2, 3, 4], restored=2)

    assert completed.add(5) == (1, 3, 4)
    assert completed.ids == (2, 5)


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


def test_the_last_checkpoint_before_the_newest_independent_one_is_kept_too() -> None:
    completed = CompletedCheckpoints(2, known=[1, 2])

    gone = [
        completed.add(number, independent=number % 4 == 3)  # 3, 7 and 11
        for number in range(3, 13)
    ]

    assert gone == [(1,), (), (3,), (4,), (2, 5), (), (7,), (8,), (6, 9), ()]
    assert completed.ids == (10, 11, 12)


@given(
    keep=st.integers(1, 4),
    known=st.sets(st.integers(1, 5)),
    independent=st.lists(st.booleans(), min_size=1, max_size=30),
)
def test_one_that_shares_no_file_with_the_newest_is_kept_as_soon_as_there_is_one(
    keep: int, known: set[int], independent: list[bool]
) -> None:
    completed = CompletedCheckpoints(keep, known)
    generation = dict.fromkeys(known, 0)
    number, latest = 5, 0
    for one in [True, *independent]:
        number, latest = number + 1, latest + one
        generation[number] = latest
        completed.add(number, independent=one)

        others = [each for each in completed.ids if generation[each] < latest]
        assert bool(others) == any(each < latest for each in generation.values())
        assert set(sorted(generation)[-keep:]) <= set(completed.ids)
        assert len(completed.ids) <= keep + 1


def test_a_checkpoint_is_independent_if_all_of_its_files_are_new() -> None:
    generations = Generations(3, restored=["old"])

    found = [
        generations.completed(files)
        for files in (["old", "1"], ["old", "2"], ["3", "4"], ["3", "5"], ["5", "6"], ["4", "7"])
    ]

    assert found == [False, False, True, False, False, False]


def test_the_files_are_due_to_be_replaced_after_a_restore_and_each_nth_checkpoint() -> None:
    generations = Generations(2, restored=["old"])
    due = [generations.is_due]
    generations.replaced()

    for files in (["old", "1"], ["2"], ["2", "3"]):
        generations.completed(files)
        due.append(generations.is_due)

    assert due == [True, False, False, True]


def test_replacing_that_failed_remains_due() -> None:
    generations = Generations(1)
    generations.completed(["1"])
    generations.completed(["1", "2"])

    assert generations.is_due
    assert generations.completed(["3"])


def test_without_a_number_no_checkpoint_is_independent_or_has_to_be() -> None:
    generations = Generations(None, restored=["old"])

    assert not any(generations.completed([str(number)]) for number in range(50))
    assert not generations.is_due
