"""Steps for flows, each from items to items, with the conditions on the input under which the output is unique."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import aflow as af
from tests.backfill.items import Item, Items, keyed, millis

M = 1009


@dataclass(frozen=True, slots=True)
class Step:
    """``make(items, name)`` adds the step, or some."""

    name: str
    make: Callable[[Items, str], Items]
    needs_order: bool = False
    keeps_order: bool = False
    timeless: bool = False
    """True if its output is at the end of time, so that few steps can follow."""


def mapped(items: Items, name: str) -> Items:
    return items.map(lambda item: replace(item, n=item.n * 7 % M), name=name)


def filtered(items: Items, name: str) -> Items:
    return items.filter(lambda item: item.n % 3 != 1, name=name)


def doubled(items: Items, name: str) -> Items:
    return items.flat_map(
        lambda item: [replace(item, n=item.n + number) for number in range(item.n % 3)], name=name
    )


def in_batches(items: Items, name: str) -> Items:
    return items.map_batch(lambda some: [replace(one, n=one.n ^ 1) for one in some], name=name)


def with_other_keys(items: Items, name: str) -> Items:
    return items.map(lambda item: replace(item, key=item.n % 4), name=name)


def spread(items: Items, name: str) -> Items:
    return items.rebalance()


def timed_again(items: Items, name: str) -> Items:
    moved = items.map(lambda item: replace(item, at=(item.at * 7 + item.n) % 600))
    return moved.event_time(lambda item: item.at, max_delay=millis(1000), name=name)


EVEN = af.Tag[Item]("even")


class Parted(af.ProcessFunction[Item, Item]):
    def process(self, value: Item, ctx: af.ProcessContext) -> list[Item] | None:
        assert ctx.timestamp == value.at
        if value.n % 2:
            return [value]
        ctx.side(EVEN, value)
        return None


def parted(items: Items, name: str) -> Items:
    odd = items.process(Parted(), name=name)
    return odd.side(EVEN).map(lambda item: replace(item, n=item.n + 1)).union(odd)


class Unavailable(Exception):
    """The service has failed."""


async def asked(item: Item) -> Item:
    """A slow service."""
    await asyncio.sleep((0, 0, 0.001, 0.004, 0.03)[item.n % 5])
    return replace(item, n=item.n * 31 % M)


async def asked_in_vain(item: Item) -> Item:
    """A service that fails for every fourth item."""
    await asyncio.sleep((0, 0.002)[item.n % 2])
    if item.n % 4 == 0:
        raise Unavailable(f"{item.n} is unknown")
    return replace(item, n=item.n * 29 % M)


class Flaky:
    """A service that fails at first, now and then."""

    def __init__(self) -> None:
        self.failed: set[Item] = set()

    async def ask(self, item: Item) -> Item:
        await asyncio.sleep(0.001)
        if item.n % 3 == 0 and item not in self.failed:
            self.failed.add(item)
            raise Unavailable(f"not now: {item.n}")
        return replace(item, n=item.n * 13 % M)


async def worthy(item: Item) -> bool:
    await asyncio.sleep((0, 0.003, 0.001)[item.n % 3])
    return item.n % 4 != 2


async def copies(item: Item) -> AsyncIterator[Item]:
    for number in range(item.n % 3):
        await asyncio.sleep(0.001)
        yield replace(item, n=item.n + number)


async def asked_together(items: list[Item]) -> Sequence[Item | Exception]:
    await asyncio.sleep(0.002)
    return [replace(item, n=item.n * 17 % M) for item in items]


RETRY = af.Retry(attempts=3, delay=millis(2), jitter=0)
FAILED = af.Tag[af.calls.FailedCall[Item]]("failed")


def answered(items: Items, name: str) -> Items:
    return items.map_async(asked, name=name, capacity=3)


def answered_unordered(items: Items, name: str) -> Items:
    return items.map_async(asked, name=name, capacity=5, ordered=False, of=Item)


def answered_at_last(items: Items, name: str) -> Items:
    return items.map_async(Flaky().ask, name=name, capacity=4, retry=RETRY)


def answered_if_known(items: Items, name: str) -> Items:
    return items.map_async(
        asked_in_vain, name=name, capacity=4, retry=RETRY, on_error=af.calls.Drop()
    )


def answered_or_not(items: Items, name: str) -> Items:
    """A failed item continues beside the others."""
    answers = items.map_async(
        asked_in_vain, name=name, capacity=4, ordered=False, on_error=af.calls.DeadLetter(FAILED)
    )
    return answers.side(FAILED).map(lambda failed: replace(failed.value, n=-1)).union(answers)


def answered_instead(items: Items, name: str) -> Items:
    fallback = af.calls.Fallback[Item](lambda item, _: replace(item, n=0))
    return items.map_async(asked_in_vain, name=name, capacity=2, on_error=fallback)


def worthwhile(items: Items, name: str) -> Items:
    return items.filter_async(worthy, name=name, capacity=2, of=Item)


def copied(items: Items, name: str) -> Items:
    return items.flat_map_async(copies, name=name, capacity=3, of=Item)


def answered_together(items: Items, name: str) -> Items:
    return items.map_batch_async(
        asked_together, name=name, size=4, delay=timedelta(milliseconds=1), capacity=2, of=Item
    )


def answered_by_key(items: Items, name: str) -> Items:
    return keyed(items).map_async(asked, name=name, capacity=4, of=Item)


def worthwhile_by_key(items: Items, name: str) -> Items:
    return keyed(items).filter_async(worthy, name=name, capacity=3, of=Item)


def copied_by_key(items: Items, name: str) -> Items:
    return keyed(items).flat_map_async(copies, name=name, capacity=3, of=Item)


def answered_together_by_key(items: Items, name: str) -> Items:
    return keyed(items).map_batch_async(
        asked_together, name=name, size=3, delay=millis(2), capacity=2, of=Item
    )


def answered_or_not_by_key(items: Items, name: str) -> Items:
    answers = keyed(items).map_async(
        asked_in_vain, name=name, capacity=4, on_error=af.calls.DeadLetter(FAILED), of=Item
    )
    return answers.side(FAILED).map(lambda failed: replace(failed.value, n=-1)).union(answers)


class Unlucky(Exception):
    """The error of a bad item."""


def lucky(item: Item) -> Item:
    if item.n % 4 == 1:
        raise Unlucky(f"no {item.n}")
    return item


def lucky_key(item: Item) -> int:
    return lucky(item).key


def zero_instead(item: Item, error: BaseException) -> Item:
    return replace(item, n=0)


class LuckySums(af.KeyedProcess[int, Item, Item]):
    """Sum the items of a key; state changes before the error."""

    total = af.ValueState("total", of=int)

    def process(self, value: Item, ctx: af.Context[int]) -> Iterable[Item]:
        total = (ctx.state(self.total).get() or 0) + value.n
        ctx.state(self.total).set(total % M)
        return [replace(lucky(value), n=total % M)]


def with_letters(results: Items) -> Items:
    """Failed items continue beside the others."""
    return results.side(FAILED).map(lambda failed: replace(failed.value, n=-1)).union(results)


LETTERS = af.calls.DeadLetter(FAILED)


def mapped_or_not(items: Items, name: str) -> Items:
    return with_letters(items.map(lucky, name=name, on_error=LETTERS))


def mapped_if_lucky(items: Items, name: str) -> Items:
    return items.map(lucky, name=name, on_error=af.calls.Drop())


def mapped_instead(items: Items, name: str) -> Items:
    return items.map(lucky, name=name, on_error=af.calls.Fallback[Item](zero_instead))


def keyed_if_lucky(items: Items, name: str) -> Items:
    keys = items.key_by(lucky_key, on_error=af.calls.Drop())
    return keys.process(LuckySums(), name=name)


def summed_or_not(items: Items, name: str) -> Items:
    return with_letters(keyed(items).process(LuckySums(), name=name, on_error=LETTERS))


def window_of_lucky(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(40)))
    sums = windows.fold(
        int, lambda total, item: total + lucky(item).n, name=name, on_error=af.calls.Drop()
    )
    return sums.map(of_window)


STATELESS: Sequence[Step] = [
    Step("map to dead letters", mapped_or_not),
    Step("map dropped", mapped_if_lucky, keeps_order=True),
    Step("map fallback", mapped_instead, keeps_order=True),
    Step("map", mapped, keeps_order=True),
    Step("filter", filtered, keeps_order=True),
    Step("flat_map", doubled),
    Step("map_batch", in_batches, keeps_order=True),
    Step("other keys", with_other_keys),
    Step("rebalance", spread),
    Step("side output", parted),
    Step("another time", timed_again),
    Step("map_async", answered, keeps_order=True),
    Step("map_async unordered", answered_unordered),
    Step("retries", answered_at_last, keeps_order=True),
    Step("dropped", answered_if_known, keeps_order=True),
    Step("dead letters", answered_or_not),
    Step("fallback", answered_instead, keeps_order=True),
    Step("filter_async", worthwhile, keeps_order=True),
    Step("flat_map_async", copied),
    Step("map_batch_async", answered_together, keeps_order=True),
    Step("map_async by key", answered_by_key, keeps_order=True),
    Step("filter_async by key", worthwhile_by_key, keeps_order=True),
    Step("flat_map_async by key", copied_by_key),
    Step("map_batch_async by key", answered_together_by_key, keeps_order=True),
    Step("dead letters by key", answered_or_not_by_key),
]


def of_window(result: af.Windowed[Any, int]) -> Item:
    """Result of a window."""
    n = result.value * 10 + result.firing
    return Item(result.key or 0, n % 100_003, result.window.max_timestamp)


def plus(so_far: int, item: Item) -> int:
    return so_far + item.n


def total(items: Sequence[Item]) -> int:
    return sum(item.n for item in items)


def chained(items: Sequence[Item]) -> int:
    """A number that depends on the order."""
    so_far = 7
    for item in items:
        so_far = (so_far * 31 + item.n) % M
    return so_far
