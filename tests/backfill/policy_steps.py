"""Steps that drop the items on which their functions fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import aflow as af
from tests.backfill.items import Item, Items, keyed, millis
from tests.backfill.pair_steps import PairStep
from tests.backfill.steps import M, Step, Unlucky, of_window, total

DROP: Final = af.calls.Drop()


def good(divisor: int) -> Callable[[Item], Item]:
    """Return a function that fails for one of ``divisor`` items, and returns the others."""

    def check(item: Item) -> Item:
        if item.n % divisor == 1:
            raise Unlucky(f"no {item.n}")
        return item

    return check


FIFTH: Final = good(5)
SEVENTH: Final = good(7)
NINTH: Final = good(9)


class Good(af.ProcessFunction[Item, Item]):
    def process(self, value: Item, ctx: af.ProcessContext) -> Iterable[Item]:
        return [FIFTH(value)]


class GoodTotals(af.WindowFunction[int, list[Item], Item]):
    def process(self, value: list[Item], ctx: af.WindowContext[int]) -> list[Item]:
        return [FIFTH(Item(ctx.key or 0, total(value), ctx.window.max_timestamp))]


class GoodSum(af.Aggregate[Item, int, int]):
    def create(self) -> int:
        return 0

    def add(self, acc: int, value: Item) -> int:
        return acc + FIFTH(value).n

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


def good_total(items: Sequence[Item]) -> int:
    made = total(items)
    return FIFTH(Item(0, made, 0)).n


def larger(one: Item, other: Item) -> Item:
    return max(one, FIFTH(other), key=lambda item: (item.n, item.at))


def chained(so_far: Item, item: Item) -> Item:
    return replace(item, n=(so_far.n * 31 + FIFTH(item).n) % M)


def nothing() -> Item:
    return Item(0, 0, 0)


def stateless(items: Items, name: str) -> Items:
    return (
        items.event_time(lambda item: NINTH(item).at, max_delay=millis(1000), on_error=DROP)
        .filter(lambda item: FIFTH(item).n % 2 == 0, name=f"{name} filter", on_error=DROP)
        .flat_map(lambda item: [SEVENTH(item)] * 2, name=f"{name} flat_map", on_error=DROP)
        .map_batch(lambda some: [replace(NINTH(one), n=one.n + 1) for one in some], on_error=DROP)
        .process(Good(), name=name, on_error=DROP)
    )


def by_key(items: Items, name: str) -> Items:
    some = (
        keyed(items)
        .map(FIFTH, name=f"{name} map", on_error=DROP)
        .filter(lambda item: SEVENTH(item).n % 3 > 0, name=f"{name} filter", on_error=DROP)
        .flat_map(lambda item: [NINTH(item)] * 2, name=f"{name} flat_map", on_error=DROP)
    )
    windows = some.window(af.Tumbling(millis(100)))
    return windows.aggregate(GoodSum(), name=name, on_error=DROP).map(of_window)


def folded(items: Items, name: str) -> Items:
    return keyed(items).fold(nothing, chained, name=name, of=Item, on_error=DROP)


def reduced(items: Items, name: str) -> Items:
    return keyed(items).reduce(chained, name=name, of=Item, on_error=DROP)


def window_reduced(items: Items, name: str) -> Items:
    windows = keyed(items.filter(lambda item: item.n % 5 != 1)).window(af.Tumbling(millis(90)))
    return windows.reduce(larger, name=name, of=Item, on_error=DROP).map(
        lambda result: Item(result.key, result.value.n, result.window.max_timestamp)
    )


def window_applied(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(60)))
    return windows.apply(good_total, name=name, of=Item, on_error=DROP).map(of_window)


def window_processed(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(60)))
    return windows.process(GoodTotals(), name=name, of=Item, on_error=DROP)


def grouped(left: Items, right: Items, name: str) -> Items:
    groups = keyed(left).co_group(
        keyed(right),
        af.Tumbling(millis(60)),
        into=lambda lefts, rights: good_total([*lefts, *rights]),
        name=name,
        of=Item,
        other_of=Item,
        on_error=DROP,
    )
    return groups.map(of_window)


POLICIES: Sequence[Step] = [
    Step("failures of stateless steps dropped", stateless),
    Step("failures by key dropped", by_key),
    Step("failures of fold dropped", folded, needs_order=True),
    Step("failures of reduce dropped", reduced, needs_order=True),
    Step("failures of a window's reduce dropped", window_reduced),
    Step("failures of apply dropped", window_applied),
    Step("failures of a window function dropped", window_processed),
]

PAIR_POLICIES: Sequence[PairStep] = [PairStep("failures of co_group dropped", grouped)]
