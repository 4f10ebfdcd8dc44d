"""Windows with evictors keep records: ``of`` is their type, and does not affect the type of results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import aflow as af


@dataclass(frozen=True)
class Sale:
    amount: int


@dataclass(frozen=True)
class Sum:
    amount: int = 0


Sales = af.KeyedStream[str, Sale]
Sums = af.streams.WindowResults[Sale, af.Windowed[str, Sum]]


def added(total: Sum, sale: Sale) -> Sum:
    return Sum(total.amount + sale.amount)


def records_may_be_declared_in_place_of_accumulators(sales: Sales) -> None:
    last = sales.window(af.Count(3, slide=1))
    assert_type(last.fold(Sum, added, name="sum", of=Sale), Sums)
    assert_type(last.fold(Sum, added, name="sum", of=Sum), Sums)


def so_they_may_for_aggregates(sales: Sales, mean: af.Aggregate[Sale, Sum, float]) -> None:
    last = sales.window(af.Count(3, slide=1))
    means = last.aggregate(mean, name="mean", of=Sale)
    assert_type(means, af.streams.WindowResults[Sale, af.Windowed[str, float]])
