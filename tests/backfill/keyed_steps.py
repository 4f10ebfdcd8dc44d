"""Keyed steps: windows, state and timers, handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import aflow as af
from tests.backfill.items import Item, Items, keyed, millis
from tests.backfill.steps import (
    EVEN,
    FAILED,
    RETRY,
    M,
    Step,
    Unavailable,
    chained,
    keyed_if_lucky,
    of_window,
    plus,
    summed_or_not,
    total,
    window_of_lucky,
)


def tumbling(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(100), offset=millis(30)))
    return windows.fold(int, plus, name=name, of=int).map(of_window)


def lenient(items: Items, name: str) -> Items:
    """Keep late items, and those too late: over history there are none."""
    windows = keyed(items).window(af.Tumbling(millis(60)), lateness=millis(50))
    results = windows.reduce(_larger, name=name, of=Item)
    return results.map(_of_largest).union(results.late)


def transformed(items: Items, name: str) -> Items:
    """Map, filter and flat_map between key_by and windows: they keep the key."""
    doubled = keyed(items).map(lambda item: replace(item, n=item.n * 2))
    some = doubled.filter(lambda item: item.n % 3).flat_map(lambda item: [item] * (item.n % 4))
    windows = some.window(af.Tumbling(millis(80)))
    return windows.fold(int, plus, name=name, of=int).map(of_window)


def _larger(one: Item, other: Item) -> Item:
    return max(one, other, key=lambda item: (item.n, item.at))


def _of_largest(result: af.Windowed[int, Item]) -> Item:
    return Item(result.key, result.value.n + result.firing, result.window.max_timestamp)


def sliding(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Sliding(millis(120), millis(40)))
    return windows.aggregate(af.aggregates.count(), name=name).map(of_window)


def summed(items: Items, name: str) -> Items:
    """Floats whose sum is exact in any order."""
    windows = keyed(items).window(af.Tumbling(millis(70), offset=millis(-20)), lateness=millis(40))
    tenths = windows.aggregate(af.aggregates.sum(_tenths), name=name)
    return tenths.map(lambda one: of_window(replace_value(one, round(one.value * 10)))).union(
        tenths.late
    )


def _tenths(item: Item) -> float:
    return item.n / 10


def several(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Sliding(millis(100), millis(20), offset=millis(10)))
    some = af.aggregates.fields(
        _together, n=af.aggregates.count(), total=af.aggregates.sum(_number)
    )
    return windows.aggregate(some, name=name).map(of_window)


def _together(n: int, total: int) -> int:
    return n * 1000 + total


def _number(item: Item) -> int:
    return item.n


def sliding_folded(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Sliding(millis(90), millis(30)))
    return windows.fold(int, plus, name=name).map(of_window)


def sliding_applied(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Sliding(millis(100), millis(50), offset=millis(10)))
    return windows.apply(total, name=name, of=Item).map(of_window)


def sessions(items: Items, name: str) -> Items:
    found = keyed(items).sessions(millis(12), name=name, of=Item)
    return found.map(lambda one: of_window(replace_value(one, total(one.value))))


def replace_value(result: af.Windowed[Any, Any], value: int) -> af.Windowed[Any, int]:
    return af.Windowed(result.key, result.window, value, result.firing)


def sessions_folded(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Session(millis(7)))
    return windows.fold(int, plus, name=name, merge=lambda one, other: one + other).map(of_window)


def dynamic_sessions(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.windows.DynamicSession(lambda item: millis(3 + item.n % 17)))
    return windows.apply(total, name=name, of=Item).map(of_window)


class Explained(af.WindowFunction[int, int, Item]):
    """Tracks key, window, windows of the key, and parts."""

    windows = af.ValueState("windows", of=int)

    def process(self, value: int, ctx: af.WindowContext[int]) -> list[Item] | None:
        count = ctx.state(self.windows)
        count.set(count.get(0) + 1)
        item = Item(ctx.key, value * 10 + count.get(0), ctx.window.max_timestamp)
        if value % 2:
            return [item]
        ctx.side(EVEN, item)
        return None


def explained(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(50)))
    odd = windows.fold(int, plus, name=name, then=Explained())
    return odd.side(EVEN).map(lambda item: replace(item, n=-item.n)).union(odd)


class Listed(af.WindowFunction[int, list[Item], Item]):
    """All records of a window, with state that it clears at the end."""

    sums = af.ValueState("sums", of=int)
    gone = af.ValueState("gone", of=int)

    def process(self, value: list[Item], ctx: af.WindowContext[int]) -> list[Item]:
        cell = ctx.window_state(self.sums)
        cell.set(cell.get(0) + total(value))
        gone = ctx.state(self.gone).get(0)
        return [Item(ctx.key, cell.get(0) * 10 + min(gone, 1), ctx.window.max_timestamp)]

    def on_clear(self, ctx: af.WindowContext[int]) -> None:
        ctx.state(self.gone).set(1)


def listed(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(110)))
    return windows.process(Listed(), name=name, of=Item)


def lenient_sessions(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Session(millis(10)), lateness=millis(30))
    return windows.apply(total, name=name, of=Item).map(of_window)


def evicted_sessions(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Session(millis(15)), evictor=af.evictors.Time(millis(10)))
    return windows.apply(total, name=name, of=Item).map(of_window)


def evicted(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(100)), evictor=af.evictors.Time(millis(40)))
    return windows.apply(total, name=name, of=Item).map(of_window)


def evicted_by_count(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(100)), evictor=af.evictors.Count(2))
    return windows.apply(chained, name=name, of=Item).map(of_window)


def early(items: Items, name: str) -> Items:
    """One result for each three records, and one at the end."""
    trigger = af.triggers.EventTime(early=af.triggers.Count(3))
    windows = keyed(items).window(af.Tumbling(millis(150)), trigger=trigger)
    return windows.fold(int, plus, name=name).map(of_window)


def counted(items: Items, name: str) -> Items:
    return keyed(items).window(af.Count(3)).apply(chained, name=name, of=Item).map(of_window)


def counted_sliding(items: Items, name: str) -> Items:
    return keyed(items).window(af.Count(4, 2)).apply(chained, name=name, of=Item).map(of_window)


def changes(items: Items, name: str) -> Items:
    """Changes of plain values, since a trigger stores one and has no type for others."""
    trigger: af.triggers.Purging[int] = af.triggers.Purging(
        af.triggers.Delta(3000.0, lambda one, two: abs(one - two))
    )
    plain = items.map(lambda item: item.n * 10 + item.key).key_by(lambda value: value % 10)
    windows = plain.window(af.Global(), trigger=trigger)
    return windows.apply(_chained_values, name=name).map(of_window)


def _chained_values(values: Sequence[int]) -> int:
    return chained([Item(0, value, 0) for value in values])


def everything(items: Items, name: str) -> Items:
    windows = items.window_all(af.Tumbling(millis(80)))
    return windows.fold(int, plus, name=name).map(of_window)


def running(items: Items, name: str) -> Items:
    return keyed(items).fold(_nothing, _chained, name=name, of=Item)


def _nothing() -> Item:
    return Item(0, 0, 0)


def _chained(so_far: Item, item: Item) -> Item:
    return replace(item, n=(so_far.n * 31 + item.n) % M)


def reduced(items: Items, name: str) -> Items:
    return keyed(items).reduce(_chained, name=name, of=Item)


def best(items: Items, name: str) -> Items:
    top = keyed(items).top(3, by=lambda item: item.n, name=name, of=Item)
    return top.map(lambda some: replace(max(some, key=lambda one: one.at), n=total(some) % M))


def once(items: Items, name: str) -> Items:
    return items.key_by(lambda item: (item.key, item.n % 7)).deduplicate(name=name)


def once_in_a_while(items: Items, name: str) -> Items:
    return keyed(items).deduplicate(name=name, within=millis(37))


class Later(af.KeyedProcess[int, Item, Item]):
    """Some time after each item, the sum up to that moment; some sums are cleared."""

    sums = af.MapState("sums", key=int, of=int)
    count = af.ValueState("count", of=int, ttl=millis(1_000_000))

    def process(self, value: Item, ctx: af.Context[int]) -> list[Item]:
        assert ctx.key == value.key
        sums = ctx.state(self.sums)
        sums.put(value.at, sums.get(value.at, 0) + value.n)
        ctx.set_event_timer(value.at + 70)
        ctx.set_event_timer(value.at + 100 - value.at % 50)
        ctx.state(self.count).set(1)
        return [value] if value.n % 2 else []

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Item]:
        n = sum(n for then, n in ctx.state(self.sums).items() if at - 150 <= then <= at)
        if at % 50 == 0:
            ctx.side(EVEN, Item(ctx.key, n, at))
            ctx.set_event_timer(at + 51)
            return []
        return [Item(ctx.key, n + ctx.state(self.count).get(0), at)]


def later(items: Items, name: str) -> Items:
    told = keyed(items).process(Later(), name=name)
    return told.union(told.side(EVEN).map(lambda item: replace(item, n=-item.n)))


class Silent(af.KeyedProcess[int, Item, Item]):
    """Keys without items for a time: for items in order, since the next one deletes the timer."""

    last = af.ValueState("last", of=int)

    def process(self, value: Item, ctx: af.Context[int]) -> None:
        last = ctx.state(self.last)
        before = last.get()
        if before is not None and value.at < before + 45:
            ctx.delete_event_timer(before + 45)
        last.set(value.at)
        ctx.set_event_timer(value.at + 45)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Item]:
        last = ctx.state(self.last).get()
        assert last is not None
        return [Item(ctx.key, -1, at)]


class LaterAsked(af.AsyncKeyedProcess[int, Item, Item]):
    """The same as ``Later``, awaited."""

    sums = af.MapState("sums", key=int, of=int)

    async def process(self, value: Item, ctx: af.AsyncContext[int]) -> list[Item]:
        sums = ctx.state(self.sums)
        await asyncio.sleep((0, 0.001, 0.005)[value.n % 3])
        sums.put(value.at, sums.get(value.at, 0) + value.n)
        ctx.set_event_timer(value.at + 60)
        if value.n % 5 == 0:
            ctx.side(EVEN, value)
        return [value] if value.n % 2 else []

    async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> list[Item]:
        await asyncio.sleep((0, 0.002)[at % 2])
        n = sum(n for then, n in ctx.state(self.sums).items() if at - 150 <= then <= at)
        if at % 3 == 0:
            ctx.set_event_timer(at + 1)
        return [Item(ctx.key, n, at)]


def handled(items: Items, name: str) -> Items:
    told = keyed(items).process_async(LaterAsked(), name=name, capacity=3, of=Item)
    return told.union(told.side(EVEN).map(lambda item: replace(item, n=-item.n)))


class InOrderAsked(af.AsyncKeyedProcess[int, Item, Item]):
    """A running value; each result depends on earlier items."""

    value = af.ValueState("value", of=int)

    async def process(self, value: Item, ctx: af.AsyncContext[int]) -> Iterable[Item]:
        cell = ctx.state(self.value)
        await asyncio.sleep((0, 0.001, 0.005)[value.n % 3])
        cell.set((cell.get(3) * 31 + value.n) % M)
        return [replace(value, n=cell.get(0))]


def handled_in_order(items: Items, name: str) -> Items:
    return keyed(items).process_async(InOrderAsked(), name=name, capacity=3, of=Item)


class SometimesFailing(LaterAsked):
    """Fails for some items, at first or always."""

    async def process(self, value: Item, ctx: af.AsyncContext[int]) -> list[Item]:
        results = await super().process(value, ctx)
        if value.n % 4 == 0:
            raise Unavailable(f"{value.n} is unknown")
        return results


def handled_or_not(items: Items, name: str) -> Items:
    """A failed handler leaves no effects."""
    told = keyed(items).process_async(
        SometimesFailing(), name=name, capacity=3, retry=RETRY, on_error=af.calls.DeadLetter(FAILED)
    )
    failed = told.side(FAILED).map(lambda failed: replace(failed.value, n=-failed.value.n))
    return told.union(failed, told.side(EVEN))


def silent(items: Items, name: str) -> Items:
    return keyed(items).process(Silent(), name=name)


KEYED: Sequence[Step] = [
    Step("key dropped", keyed_if_lucky, needs_order=True),
    Step("process to dead letters", summed_or_not, needs_order=True),
    Step("window of good items", window_of_lucky, keeps_order=True),
    Step("tumbling", tumbling, keeps_order=True),
    Step("transformed", transformed, keeps_order=True),
    Step("lenient", lenient),
    Step("sliding", sliding, keeps_order=True),
    Step("summed", summed),
    Step("several", several, keeps_order=True),
    Step("sliding folded", sliding_folded, keeps_order=True),
    Step("sliding applied", sliding_applied, keeps_order=True),
    Step("sessions", sessions, keeps_order=True),
    Step("sessions folded", sessions_folded, keeps_order=True),
    Step("dynamic sessions", dynamic_sessions, keeps_order=True),
    Step("explained", explained),
    Step("listed", listed),
    Step("lenient sessions", lenient_sessions, keeps_order=True),
    Step("evicted sessions", evicted_sessions, keeps_order=True),
    Step("evicted", evicted),
    Step("evicted by count", evicted_by_count, needs_order=True),
    Step("early", early, needs_order=True),
    Step("counted", counted, needs_order=True, timeless=True),
    Step("counted sliding", counted_sliding, needs_order=True, timeless=True),
    Step("changes", changes, needs_order=True, timeless=True),
    Step("everything", everything),
    Step("running", running, needs_order=True, keeps_order=True),
    Step("reduced", reduced, needs_order=True, keeps_order=True),
    Step("best", best, needs_order=True),
    Step("once", once, needs_order=True),
    Step("once in a while", once_in_a_while, needs_order=True, keeps_order=True),
    Step("later", later),
    Step("silent", silent, needs_order=True),
    Step("handled", handled),
    Step("handled or not", handled_or_not),
    Step("handled in order", handled_in_order, needs_order=True, keeps_order=True),
]
