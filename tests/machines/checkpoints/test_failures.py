"""The limit of failed checkpoints."""

from __future__ import annotations

from aflow.machines.checkpoints.coordinator import FailureCounter


def test_the_first_failure_is_too_much_when_none_is_tolerated() -> None:
    assert FailureCounter(0).failed(1)


def test_as_many_failures_as_are_tolerated_are_not_too_many() -> None:
    failures = FailureCounter(2)

    assert [failures.failed(number) for number in (1, 2, 3)] == [False, False, True]


def test_a_success_begins_a_new_count() -> None:
    failures = FailureCounter(1)
    failures.failed(1)
    failures.succeeded(2)

    assert failures.count == 0
    assert [failures.failed(number) for number in (3, 4)] == [False, True]


def test_a_failure_of_one_that_is_older_than_the_last_success_is_not_counted() -> None:
    failures = FailureCounter(0)
    failures.succeeded(5)

    assert not failures.failed(4)
    assert failures.count == 0
