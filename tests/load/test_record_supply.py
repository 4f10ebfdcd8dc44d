"""The records of a load, and the trial that measures the speed of their generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aflow.bench.record_supply import RecordSupply


def generator() -> Iterator[int]:
    yield from range(100_000)


def identity(n: int) -> int:
    return n


SHARED = iter(range(10**9))


def shared() -> Iterator[int]:
    return SHARED


@pytest.mark.parametrize(
    "records", [identity, generator, [*range(500)], iter(range(10**6))], ids=range(4)
)
def test_the_load_begins_with_the_first_record_after_the_trial(records: Any) -> None:
    supply = RecordSupply(records, "numbers")

    assert supply.speed() > 0
    assert supply.take(3) + supply.take(400) == [*range(403)]
    assert supply.taken == 403


def test_a_function_that_returns_one_iterator_again_loses_no_record() -> None:
    supply = RecordSupply(shared, "numbers")
    supply.speed()

    assert supply.take(40_000) == [*range(40_000)]


def test_a_function_of_a_number_makes_records_near_their_time() -> None:
    made: list[int] = []

    def make(n: int) -> int:
        made.append(n)
        return len(made)

    supply = RecordSupply(make, "numbers")
    supply.speed()

    trial = len(made)
    assert supply.take(1) == [trial + 1]
    assert made[-1] == 0
