"""The size of the batches of a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.machines.batch_size import BatchSize
from aflow.machines.turns import Turn


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


def throughput(size: BatchSize, *, fixed: float, each: float, batches: int) -> float:
    """Process full batches with these costs (s), and return the records per second of the last half of them."""
    records = seconds = 0.0
    for number in range(batches):
        taken = size.limit
        took = fixed + taken * each
        size.took(taken, took)
        if number >= batches // 2:
            records += taken
            seconds += took
    return records / seconds


@pytest.mark.parametrize("fixed", [0.00005, 0.00013, 0.0002, 0.0003, 0.001])
def test_one_stall_in_a_short_turn_does_not_leave_batches_of_one_record(fixed: float) -> None:
    size = BatchSize(4096, budget=0.00025)
    size.took(32, 0.05)
    assert size.limit == 1

    found = throughput(size, fixed=fixed, each=0.000001, batches=600)

    # Thirty-two records to a batch, less the batches of trials.
    assert found > 0.9 * 32 / (fixed + 32 * 0.000001)


def test_fixed_costs_above_the_budget_do_not_make_batches_smaller() -> None:
    size = BatchSize(4096, budget=0.00025)

    throughput(size, fixed=0.0003, each=0.00001, batches=200)

    # Records take as long as the fixed costs, or somewhat longer in a trial.
    assert 25 <= size.limit <= 60


def test_records_that_take_too_long_are_taken_one_by_one_but_for_rare_trials() -> None:
    size = BatchSize(4096, budget=0.00025)
    taken: list[int] = []

    for _ in range(1000):
        taken.append(size.limit)
        size.took(size.limit, size.limit * 0.001)

    assert taken[0] == 32
    assert max(taken[1:]) == 2
    assert taken.count(2) == 16


def in_trial(size: BatchSize, seconds: float) -> None:
    """Begin a trial of batches of two records; each one before it took ``seconds``."""
    size.took(32, 1.0)
    for _ in range(4):
        assert size.limit == 1
        size.took(1, seconds)
    assert size.limit == 2


def test_stalls_before_a_trial_allow_no_long_batches() -> None:
    size = BatchSize(4096, budget=0.00025)
    in_trial(size, 0.05)
    size.took(2, 0.05)  # seems to cost nothing more

    taken: list[int] = []
    for _ in range(100):
        taken.append(size.limit)
        size.took(size.limit, size.limit * 0.0001)

    # Two fit into the budget, and the next trial is undone.
    assert (taken.count(2), taken.count(4)) == (96, 4)


def test_a_batch_that_is_not_full_does_not_end_a_trial() -> None:
    size = BatchSize(4096, budget=0.00025)
    in_trial(size, 0.0003)

    size.took(1, 0.0003)
    assert size.limit == 2

    size.took(2, 0.0003)
    for _ in range(4):
        assert size.limit == 2
        size.took(2, 0.0003)
    assert size.limit == 4


def test_a_stall_does_not_undo_a_trial() -> None:
    size = BatchSize(4096, budget=0.00025)
    in_trial(size, 0.0003)

    size.took(2, 0.05)
    size.took(2, 0.0003)

    for _ in range(4):
        assert size.limit == 2
        size.took(2, 0.0003)
    assert size.limit == 4


def test_a_single_stall_reduces_the_bound_to_a_half_and_a_second_one_to_what_would_have_fitted() -> (
    None
):
    size = BatchSize(32, budget=0.002)
    size.took(32, 0.001)

    size.took(32, 0.02)
    assert size.limit == 16

    size.took(16, 0.02)
    assert size.limit == 1


def test_a_long_batch_of_many_records_reduces_the_bound_to_what_would_have_fitted() -> None:
    size = BatchSize(4096, budget=0.002)
    while size.limit < 4096:
        size.took(size.limit, 0.0001)

    size.took(4096, 4096 * 0.00002)  # each record costs forty times as much

    assert size.limit == 100


def test_fixed_costs_do_not_let_a_batch_exceed_its_longest_time_but_in_trials() -> None:
    size = BatchSize(1024, budget=0.00025, longest=0.0005)
    size.took(32, 1.0)

    limits: list[int] = []
    for _ in range(400):
        limits.append(size.limit)
        size.took(size.limit, 0.00035 + size.limit * 0.000009)

    # Sixteen records take nearly 0.5 ms, and twice the fixed costs would be 0.7 ms.
    assert sum(limit > 16 for limit in limits[1:]) <= 8
    assert limits.count(16) > 300


def test_a_batch_above_its_longest_time_reduces_the_bound_though_its_fixed_costs_are_known() -> (
    None
):
    size = BatchSize(1024, budget=0.00025, longest=0.0005)
    size.took(32, 1.0)
    for _ in range(100):
        size.took(size.limit, 0.00035 + size.limit * 0.000009)
    settled = size.limit

    for _ in range(5):
        size.took(size.limit, 0.00062)  # less than twice the fixed costs

    assert settled == 16
    assert size.limit < 12


@pytest.mark.parametrize("fixed", [0.0002, 0.0003])
def test_a_longest_time_of_a_piece_does_not_leave_batches_of_one_record(fixed: float) -> None:
    size = BatchSize(4096, budget=0.00025, longest=0.0005)
    size.took(32, 0.05)

    found = throughput(size, fixed=fixed, each=0.00001, batches=600)

    assert found > 0.9 * 16 / (fixed + 16 * 0.00001)


@given(
    most=st.integers(1, 100),
    budgets=st.lists(st.sampled_from([0.00025, 0.002]), min_size=1),
    steps=st.lists(st.tuples(st.floats(0, 2.5), st.floats(0, 0.01)), max_size=60),
)
def test_trials_keep_the_bound_between_one_and_the_most(
    most: int, budgets: list[float], steps: list[tuple[float, float]]
) -> None:
    turn = Turn(0.00025)
    size = BatchSize(most, turn)

    for number, (share, seconds) in enumerate(steps):
        turn.seconds = budgets[number % len(budgets)]
        size.took(int(size.limit * share), seconds)

        assert 1 <= size.limit <= most
