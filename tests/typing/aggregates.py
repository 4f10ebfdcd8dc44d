"""Inferred types of ready-made aggregates. Nothing here runs: `make types` checks it.

Lambdas have no annotations here, since users write none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, assert_type

import aflow as af
from aflow.state.cells import AggregatingCell


@dataclass(frozen=True)
class Sale:
    shop: str
    items: int
    price: float


class Totals(NamedTuple):
    n: int
    mean: float
    best: Sale


PerShop = af.WindowedStream[str, Sale]
Ints = af.WindowedStream[str, int]
Floats = af.WindowedStream[str, float]
Counts = af.streams.WindowResults[Sale, af.Windowed[str, int]]
Numbers = af.streams.WindowResults[Sale, af.Windowed[str, float]]
Sales = af.streams.WindowResults[Sale, af.Windowed[str, Sale]]
ListOfSales = af.streams.WindowResults[Sale, af.Windowed[str, list[Sale]]]
Prices = af.streams.WindowResults[Sale, af.Windowed[str, list[float]]]
Texts = af.streams.WindowResults[Sale, af.Windowed[str, str]]


def numbers_follow_what_is_picked(sales: PerShop, ints: Ints, floats: Floats) -> None:
    assert_type(sales.aggregate(af.aggregates.count(), name="a"), Counts)
    assert_type(sales.aggregate(af.aggregates.sum(lambda s: s.items), name="a"), Counts)
    assert_type(sales.aggregate(af.aggregates.sum(lambda s: s.price), name="a"), Numbers)
    assert_type(sales.aggregate(af.aggregates.sum(lambda s: s.price > 5), name="a"), Counts)
    assert_type(sales.aggregate(af.aggregates.mean(lambda s: s.price), name="a"), Numbers)
    assert_type(sales.aggregate(af.aggregates.mean(lambda s: s.items), name="a"), Numbers)
    assert_type(
        ints.aggregate(af.aggregates.sum(), name="a"),
        af.streams.WindowResults[int, af.Windowed[str, int]],
    )
    assert_type(
        floats.aggregate(af.aggregates.sum(), name="a"),
        af.streams.WindowResults[float, af.Windowed[str, float]],
    )
    assert_type(
        ints.aggregate(af.aggregates.mean(float), name="a"),
        af.streams.WindowResults[int, af.Windowed[str, float]],
    )


def extremes_are_values_or_records(sales: PerShop, ints: Ints) -> None:
    assert_type(sales.aggregate(af.aggregates.min(lambda s: s.price), name="a"), Numbers)
    assert_type(sales.aggregate(af.aggregates.max(lambda s: s.items), name="a"), Counts)
    assert_type(sales.aggregate(af.aggregates.max(by=lambda s: s.price), name="a"), Sales)
    assert_type(
        sales.aggregate(af.aggregates.min(by=lambda s: s.price, stored_as=Sale), name="a"), Sales
    )
    assert_type(
        sales.aggregate(af.aggregates.max(lambda s: s.shop, by=lambda s: s.price), name="a"), Texts
    )
    assert_type(
        ints.aggregate(af.aggregates.min(), name="a"),
        af.streams.WindowResults[int, af.Windowed[str, int]],
    )
    assert_type(
        sales.aggregate(af.aggregates.top_k(3, by=lambda s: s.price), name="a"), ListOfSales
    )
    assert_type(
        sales.aggregate(
            af.aggregates.top_k(3, by=lambda s: s.items, of=lambda s: s.price), name="a"
        ),
        Prices,
    )
    assert_type(sales.aggregate(af.aggregates.top_k(3, of=lambda s: s.price), name="a"), Prices)


def what_is_kept_is_a_value_or_the_record(sales: PerShop) -> None:
    assert_type(sales.aggregate(af.aggregates.first(), name="a"), Sales)
    assert_type(sales.aggregate(af.aggregates.first(stored_as=Sale), name="a"), Sales)
    assert_type(sales.aggregate(af.aggregates.last(lambda s: s.shop), name="a"), Texts)
    assert_type(sales.aggregate(af.aggregates.collect(), name="a"), ListOfSales)
    assert_type(sales.aggregate(af.aggregates.collect(lambda s: s.price), name="a"), Prices)


def sketches_give_plain_numbers(sales: PerShop, floats: Floats) -> None:
    assert_type(sales.aggregate(af.aggregates.distinct(), name="a"), Counts)
    assert_type(sales.aggregate(af.aggregates.distinct(lambda s: s.shop), name="a"), Counts)
    assert_type(
        sales.aggregate(af.aggregates.distinct(lambda s: s.shop, approximate=True), name="a"),
        Counts,
    )
    assert_type(sales.aggregate(af.aggregates.quantile(0.5, lambda s: s.price), name="a"), Numbers)
    assert_type(
        sales.aggregate(
            af.aggregates.quantile([0.5, 0.9], lambda s: s.price, error=0.05), name="a"
        ),
        Prices,
    )
    assert_type(
        floats.aggregate(af.aggregates.quantile(0.5), name="a"),
        af.streams.WindowResults[float, af.Windowed[str, float]],
    )


def fields_give_what_they_are_made_into(sales: PerShop) -> None:
    assert_type(
        sales.aggregate(
            af.aggregates.fields(
                Totals,
                n=af.aggregates.count(),
                mean=af.aggregates.mean(lambda s: s.price),
                best=af.aggregates.max(by=lambda s: s.price),
            ),
            name="totals",
        ),
        af.streams.WindowResults[Sale, af.Windowed[str, Totals]],
    )


def price(sale: Sale) -> float:
    return sale.price


class Means(af.KeyedProcess[str, Sale, float]):
    #: The type of records is not known here, so a lambda is not possible.
    mean = af.AggregatingState("mean", af.aggregates.mean(price))

    def process(self, value: Sale, ctx: af.Context[str]) -> None:
        mean = ctx.state(self.mean)
        assert_type(mean, AggregatingCell[Sale, float])
        mean.add(value)


def without_a_step_an_annotation_says_what_records_are() -> None:
    totals: af.Aggregate[Sale, list[Any], Totals] = af.aggregates.fields(
        Totals,
        n=af.aggregates.count(),
        mean=af.aggregates.mean(lambda s: s.price),
        best=af.aggregates.max(by=lambda s: s.price),
    )
    assert_type(totals.result(totals.create()), Totals)
