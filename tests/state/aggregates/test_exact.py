"""Exact sums in any order of addition, at the limits of floats."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow import aggregates
from aflow.state.aggregates import exact
from tests.state.aggregates.laws import Agg, added

MAX = 1.7976931348623157e308


def total_of(numbers: list[Any]) -> Any:
    aggregate: Agg = aggregates.sum()
    return aggregate.result(added(aggregate, numbers))


def nearest(numbers: list[float]) -> float:
    return float(sum(map(Fraction, numbers)))


def test_ints_are_added_as_ints_however_large() -> None:
    assert total_of([10**30, 1, True]) == 10**30 + 2
    assert type(total_of([])) is int


def test_small_numbers_are_not_lost_among_large_ones() -> None:
    assert total_of([1e16, *[1.0] * 1000, -1e16]) == 1000.0
    assert total_of([1e100, 1.0, -1e100, 1e-100]) == 1.0
    assert total_of([0.1] * 10) == 1.0


def test_a_float_among_ints_makes_the_sum_a_float_that_is_rounded_once() -> None:
    assert total_of([2**53, 1, 0.5]) == nearest([2**53, 1, 0.5]) == 2**53 + 2
    assert repr(total_of([1, -1, 0.0])) == "0.0"


@given(st.lists(st.integers() | st.floats(-1e300, 1e300), max_size=60))
@settings(max_examples=100)
def test_the_sum_is_the_float_nearest_to_the_exact_sum(numbers: list[float]) -> None:
    assert total_of([*numbers, 0.0]) == nearest(numbers)


def test_a_total_beyond_all_floats_is_infinite_as_long_as_it_is_beyond() -> None:
    assert total_of([MAX, MAX, -MAX]) == MAX
    assert total_of([MAX] * 40) == math.inf
    assert total_of([-MAX] * 40) == -math.inf
    assert total_of([*[-MAX] * 40, *[MAX] * 40, 1.0]) == 1.0
    assert total_of([*[MAX] * 40, *[-MAX] * 39, -1e300]) == nearest([MAX, -1e300])
    assert total_of([10**400, 1.0]) == math.inf
    assert total_of([10**400, 0.5, -(10**400)]) == 0.5
    assert total_of([10**400, math.inf]) == math.inf
    assert total_of([10**400, -math.inf]) == -math.inf


#: Intermediate sums exceed the largest float.
LARGE = st.floats(-MAX, MAX) | st.sampled_from([MAX, -MAX, 1.0, 0.1, 5e-324])


@given(st.lists(LARGE, max_size=60), st.randoms(use_true_random=False), st.data())
@settings(max_examples=100)
def test_no_order_and_no_parts_change_the_sum(
    numbers: list[float], random: Random, data: st.DataObject
) -> None:
    shuffled = random.sample(numbers, len(numbers))
    cut = data.draw(st.integers(0, len(numbers)))
    aggregate: Agg = aggregates.sum()
    parts = [added(aggregate, some) for some in (shuffled[:cut], shuffled[cut:])]

    assert aggregate.result(aggregate.merge(*parts)) == total_of(numbers)


@pytest.mark.parametrize("before", [0, 40])
def test_infinities_and_nan_are_added_as_floats(before: int) -> None:
    some = [0.1] * before

    assert total_of([math.inf, *some, 1.0]) == math.inf
    assert total_of([*some, -math.inf, MAX, MAX]) == -math.inf
    assert math.isnan(total_of([math.inf, *some, -math.inf]))
    assert math.isnan(total_of([math.nan, *some, math.inf]))


def test_a_total_of_many_floats_is_short() -> None:
    total = exact.nothing()
    for n in range(10_000):
        exact.plus(total, n / 7)

    assert len(total) <= 17
    assert exact.value(total) == nearest([n / 7 for n in range(10_000)])


@pytest.mark.parametrize("other", ["3", None, 1j])
def test_a_value_that_is_no_number_is_refused_and_named(other: object) -> None:
    with pytest.raises(TypeError, match=type(other).__name__):
        total_of([1, other])
