"""Distinct values: equality, and the error of the approximate count."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from aflow import aggregates
from aflow.errors import FlowDefinitionError
from aflow.model.codecs import CodecError
from tests.state.aggregates.laws import Agg, added, checked_merge, restored


def counted(values: list[Any], *, approximate: bool) -> int:
    aggregate: Agg = aggregates.distinct(approximate=True) if approximate else aggregates.distinct()
    result: int = aggregate.result(added(aggregate, values))
    return result


def test_equal_values_are_one_value() -> None:
    assert counted([1, 1.0, True, "1", b"1", None, (1, 2), (1, 2)], approximate=False) == 5


@pytest.mark.usefixtures("sketches")
def test_equal_numbers_are_one_value_in_a_sketch_too() -> None:
    assert counted([1, 1.0, True, "1", b"1", None, (1, 2), (1, 2)], approximate=True) == 5
    assert counted([2**70, float(2**70), 2**70 + 1, -(2**70)], approximate=True) == 3
    assert counted([0.0, -0.0, 0, False, ""], approximate=True) == 2
    assert counted(["", "0", b"", ()], approximate=True) == 4
    assert counted([Decimal("0.1"), 0.1, float("inf"), float("-inf")], approximate=True) == 4


def test_all_nan_are_one_value_before_and_after_a_restore() -> None:
    aggregate = aggregates.distinct()

    acc = added(aggregate, [float("nan"), float("nan"), 1.0])
    acc = added(aggregate, [float("nan"), -float("nan")], restored(aggregate, acc))

    assert aggregate.result(aggregate.merge(acc, restored(aggregate, acc))) == 2


@pytest.mark.usefixtures("sketches")
def test_an_approximate_count_has_an_error_of_a_few_percent_in_four_kilobytes() -> None:
    aggregate = aggregates.distinct(approximate=True)

    parts = [added(aggregate, range(10_000 * n, 10_000 * (n + 2))) for n in range(9)]
    whole = aggregate.create()
    for part in parts:
        whole = checked_merge(aggregate, whole, part)

    # Three standard errors. Hashes are the same in each run, and so is the result.
    assert aggregate.result(whole) == pytest.approx(100_000, rel=3 * 0.0163)
    assert aggregate.result(restored(aggregate, whole)) == aggregate.result(whole)
    codec: Any = aggregate
    assert len(codec.codec.encode(whole)) < 4200


@pytest.mark.usefixtures("sketches")
def test_a_set_is_refused_by_a_sketch() -> None:
    with pytest.raises(TypeError, match="sorted tuple"):
        counted([frozenset({1, 2})], approximate=True)


@pytest.mark.usefixtures("sketches")
def test_other_bytes_are_no_sketch() -> None:
    aggregate: Any = aggregates.distinct(approximate=True)

    with pytest.raises(CodecError, match="no HLL sketch"):
        aggregate.codec.decode(b"?")


def test_a_sketch_stores_nothing_by_type() -> None:
    make: Any = aggregates.distinct

    with pytest.raises(FlowDefinitionError, match="stored_as"):
        make(approximate=True, stored_as=str)
