"""Inferred types of state. Nothing here runs: `make types` checks it."""

from __future__ import annotations

from typing import assert_type

from aflow.model.tags import Tag
from aflow.operators.context import Context
from aflow.state.aggregate import Aggregate
from aflow.state.cells import AggregatingCell, ListCell, MapCell, ReducingCell, ValueCell
from aflow.state.specs import AggregatingState, ListState, MapState, ReducingState, ValueState


class Mean(Aggregate[float, tuple[float, int], float]):
    def create(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, acc: tuple[float, int], value: float) -> tuple[float, int]:
        return acc[0] + value, acc[1] + 1

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        return a[0] + b[0], a[1] + b[1]

    def result(self, acc: tuple[float, int]) -> float:
        return acc[0] / acc[1]


class Declarations:
    last = ValueState("last", of=str)
    untyped = ValueState[tuple[str, int]]("untyped")
    recent = ListState("recent", of=str)
    shops = MapState("by shop", key=str, of=int)
    longest = ReducingState("longest", lambda a, b: a if len(a) >= len(b) else b, of=str)
    highest = ReducingState[int]("highest", max)
    mean = AggregatingState("mean", Mean())


def a_value_is_there_or_none_or_the_default(ctx: Context[str], d: Declarations) -> None:
    assert_type(ctx.state(d.last), ValueCell[str])
    assert_type(ctx.state(d.last).get(), str | None)
    assert_type(ctx.state(d.last).get(""), str)
    assert_type(ctx.state(d.last).get(0), str | int)
    assert_type(ctx.state(d.untyped).get(), tuple[str, int] | None)


def lists_and_maps_know_what_they_hold(ctx: Context[str], d: Declarations) -> None:
    assert_type(ctx.state(d.recent), ListCell[str])
    assert_type(ctx.state(d.recent).get(), list[str])
    assert_type(ctx.state(d.shops), MapCell[str, int])
    assert_type(ctx.state(d.shops).get("x"), int | None)
    assert_type(ctx.state(d.shops).get("x", 0), int)
    assert_type(ctx.state(d.shops).items(), list[tuple[str, int]])
    for shop in ctx.state(d.shops):
        assert_type(shop, str)


def reductions_and_aggregates_know_their_results(ctx: Context[str], d: Declarations) -> None:
    assert_type(ctx.state(d.longest), ReducingCell[str])
    assert_type(ctx.state(d.highest).get(), int | None)
    assert_type(ctx.state(d.mean), AggregatingCell[float, float])
    assert_type(ctx.state(d.mean).get(), float | None)


def the_context_knows_the_key(ctx: Context[tuple[str, int]]) -> None:
    assert_type(ctx.key, tuple[str, int])
    assert_type(ctx.timestamp, int | None)
    assert_type(ctx.watermark, int)
    assert_type(ctx.processing_time, int)


def a_side_output_takes_what_its_tag_says(ctx: Context[str], bad: Tag[str]) -> None:
    ctx.side(bad, "x")
