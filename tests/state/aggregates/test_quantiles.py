"""Quantiles: exact for few values, within the error for many; refused arguments."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aflow import aggregates
from aflow.errors import FlowDefinitionError
from aflow.model.codecs import CodecError
from tests.state.aggregates.laws import Agg, added, restored

pytestmark = pytest.mark.usefixtures("sketches")


def of(aggregate: Agg, values: list[Any]) -> Any:
    return aggregate.result(added(aggregate, values))


def scattered(n: int) -> int:
    return n * 37 % 30_000


def test_quantiles_are_values_of_the_records() -> None:
    ranks = aggregates.quantile([0, 0.25, 0.5, 0.75, 1])

    assert of(ranks, [4, 1, 3, 2]) == [1.0, 1.0, 2.0, 3.0, 4.0]
    assert of(aggregates.quantile(0.5), [True, 3]) == 1.0


def test_nan_is_skipped_unless_there_is_nothing_else() -> None:
    assert of(aggregates.quantile(0.5), [math.nan, 1.0, math.nan]) == 1.0
    assert math.isnan(of(aggregates.quantile(0.5), [math.nan]))
    assert [str(q) for q in of(aggregates.quantile([0.1, 0.2]), [])] == ["nan", "nan"]


@pytest.mark.parametrize("error", [0.1, 0.02])
def test_ranks_are_within_the_error(error: float) -> None:
    """The sketch is random. The error holds in 99 of 100 cases; twice the error is exceeded once in millions."""
    ranks = [0, 0.1, 0.5, 0.9, 0.99, 1]
    aggregate = aggregates.quantile(ranks, scattered, error=error)

    parts = [added(aggregate, range(10_000 * n, 10_000 * (n + 1))) for n in range(3)]
    whole = aggregate.merge(aggregate.merge(parts[0], parts[1]), restored(aggregate, parts[2]))

    found = aggregate.result(whole)
    assert [value / 30_000 for value in found] == pytest.approx(ranks, abs=2 * error)
    assert (found[0], found[-1]) == (0, 29_999)


@pytest.mark.parametrize("q", [95, -0.1, math.nan, "0.5", [], [0.5, 2], [None]])
def test_a_rank_is_from_0_to_1(q: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="q must be a number from 0 to 1"):
        aggregates.quantile(q)


@pytest.mark.parametrize("error", [0, 1, -1, 1e-9, math.nan, "1%"])
def test_an_error_is_one_that_a_sketch_can_guarantee(error: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="error must be a fraction of all values"):
        aggregates.quantile(0.5, error=error)


def test_a_value_that_is_no_number_is_refused_and_shown() -> None:
    with pytest.raises(TypeError, match=r"'12\.5' is not a float"):
        of(aggregates.quantile(0.5), ["12.5"])


def test_other_bytes_are_no_sketch() -> None:
    aggregate: Any = aggregates.quantile(0.5)

    with pytest.raises(CodecError, match="no KLL sketch"):
        aggregate.codec.decode(b"?")
