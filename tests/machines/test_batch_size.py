"""The size of the batches of a task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.batch_size import BatchSize


def test_the_first_batch_is_small_and_no_larger_than_the_most() -> None:
    assert (BatchSize(1024, budget=0.002).limit, BatchSize(7, budget=0.002).limit) == (32, 7)


def test_a_batch_that_took_too_long_bounds_the_next_one() -> None:
    size = BatchSize(1024, budget=0.002)

    size.took(32, 0.0032)

    assert size.limit == 20


def test_full_batches_that_take_little_time_double_the_bound_up_to_the_most() -> None:
    size = BatchSize(100, budget=0.002)
    limits: list[int] = []

    for _ in range(3):
        size.took(size.limit, 0.0001)
        limits.append(size.limit)

    assert limits == [64, 100, 100]


def test_batches_that_are_not_full_say_nothing_about_larger_ones() -> None:
    size = BatchSize(100, budget=0.002)

    size.took(31, 0.0001)

    assert size.limit == 32


def test_a_record_that_alone_takes_too_long_is_still_taken() -> None:
    size = BatchSize(100, budget=0.002)

    size.took(1, 5.0)

    assert size.limit == 1


@given(
    most=st.integers(1, 2000),
    steps=st.lists(st.tuples(st.integers(1, 2000), st.floats(0, 10))),
)
def test_the_bound_is_always_between_one_and_the_most(
    most: int, steps: list[tuple[int, float]]
) -> None:
    size = BatchSize(most, budget=0.002)

    for records, seconds in steps:
        size.took(records, seconds)

        assert 1 <= size.limit <= most


def test_a_batch_takes_no_longer_than_its_longest_time_however_large_the_budget() -> None:
    size = BatchSize(1024, budget=0.002, longest=0.0005)

    size.took(32, 0.001)

    assert size.limit == 16


def test_a_batch_takes_no_longer_than_a_budget_below_its_longest_time() -> None:
    size = BatchSize(1024, budget=0.00025, longest=0.0005)

    size.took(32, 0.0005)

    assert size.limit == 16
