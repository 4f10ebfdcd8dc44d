"""Steps with every public option of their method that other steps here do not use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import aflow as af
from tests.backfill.items import Item, Items, at_of, key_of, keyed, millis
from tests.backfill.keyed_steps import InOrderAsked
from tests.backfill.pair_steps import PairStep
from tests.backfill.policy_steps import PAIR_POLICIES, POLICIES
from tests.backfill.steps import M, Step, Unavailable, of_window, plus, total

#: Later than any call here, on every clock.
NEVER = datetime(9000, 1, 1, tzinfo=UTC)


# -- Calls.


class Service:
    """Opened by a ``Resource``. Fails at first for some."""

    def __init__(self) -> None:
        self.failed: set[Item] = set()

    async def number(self, item: Item) -> int:
        await asyncio.sleep((0, 0.001, 0.004)[item.n % 3])
        if item.n % 5 == 0 and item not in self.failed:
            self.failed.add(item)
            raise Unavailable(f"not now: {item.n}")
        return item.n * 31 % M


@asynccontextmanager
async def opened() -> AsyncGenerator[Service]:
    yield Service()


async def number(item: Item, service: Service) -> int:
    return await service.number(item)


async def numbers(items: list[Item], service: Service) -> Sequence[int | BaseException]:
    return await asyncio.gather(*map(service.number, items), return_exceptions=True)


async def is_odd(item: Item, service: Service) -> bool:
    return await service.number(item) % 2 == 1


async def twice(item: Item, service: Service) -> list[Item]:
    n = await service.number(item)
    return [replace(item, n=n), replace(item, n=n + 1)]


def with_number(item: Item, n: int) -> Item:
    return replace(item, n=n)


def itself(item: Item) -> Item:
    return item


def never(item: Item) -> datetime:
    return NEVER


def one(item: Item) -> float:
    return 1.0


def is_negative(result: object) -> bool:
    return type(result) is int and result < 0


def negated(item: Item, error: BaseException) -> Item:
    return replace(item, n=-item.n)


class FourCalls:
    """A limiter of a user: four calls run at once."""

    def __init__(self, settings: af.calls.Adaptive) -> None:
        self.limit = 4

    def ended(self, now: float, latency: float, ok: bool, in_flight: int) -> None:
        """The limit does not adapt."""


def service() -> af.Resource[Service]:
    return af.Resource(opened, shared="service", name="the service")


def policies() -> dict[str, Any]:
    """All options of a call but ``ordered``, ``cache`` and those of storing, with all of theirs."""
    return {
        "capacity": af.calls.Adaptive(start=3, least=2, most=7, on=Unavailable, limiter=FourCalls),
        "timeout": millis(60_000),
        "attempt_timeout": millis(30_000),
        "deadline": never,
        "retry": af.Retry(
            attempts=4,
            delay=millis(2),
            factor=1.5,
            max_delay=millis(5),
            jitter=0.0,
            on=Unavailable,
            on_result=is_negative,
        ),
        "on_error": af.calls.Fallback(negated),
        "rate": af.calls.RateLimit(1000, millis(10), burst=2000, shared="rate", cost=one),
        "breaker": af.calls.CircuitBreaker(
            failures=0.99,
            window=millis(1000),
            calls=1000,
            pause=millis(5),
            max_pause=millis(10),
            probes=2,
            on=Unavailable,
            fail_fast=True,
        ),
    }


def cache() -> af.calls.Cache[Item, Any]:
    return af.calls.Cache(
        50,
        ttl=millis(10_000),
        negative_ttl=millis(5_000),
        key=itself,
        negative=is_negative,
        errors=LookupError,
    )


def stored(*, pickled: bool) -> dict[str, Any]:
    return {"codec": af.Pickled[Item]()} if pickled else {"of": Item}


def stored_results(*, pickled: bool, of: object) -> dict[str, Any]:
    """``of`` is the type of results; None if there is nothing to declare."""
    how = {"result_codec": af.Pickled[Any]()} if pickled else {"result_of": of}
    return {"store_results": True, **({} if of is None else how)}


def calls(*, by_key: bool, pickled: bool) -> dict[str, Callable[[Items, str], Items]]:
    """A step for each method that calls, with all of its options."""

    def options(of: object) -> dict[str, Any]:
        ordered = {} if by_key else {"ordered": pickled}
        return {
            **policies(),
            **stored(pickled=pickled),
            **stored_results(pickled=pickled, of=of),
            **ordered,
            "cache": cache(),
            "using": service(),
        }

    def before(items: Items) -> Any:
        return keyed(items) if by_key else items

    return {
        "map_async": lambda items, name: before(items).map_async(
            number, into=with_number, name=name, **options(int)
        ),
        "flat_map_async": lambda items, name: before(items).flat_map_async(
            twice, name=name, **options(Item)
        ),
        "filter_async": lambda items, name: before(items).filter_async(
            is_odd, name=name, **options(None)
        ),
        "map_batch_async": lambda items, name: before(items).map_batch_async(
            numbers, size=3, delay=millis(1), into=with_number, name=name, **options(int)
        ),
    }


def handled(pickled: bool) -> Callable[[Items, str], Items]:
    def make(items: Items, name: str) -> Items:
        return keyed(items).process_async(
            InOrderAsked(), name=name, **policies(), **stored(pickled=pickled)
        )

    return make


CALLS = [
    Step(f"{method}{' by key' * by_key}, all options, {'codec' if pickled else 'of'}", make)
    for by_key in (False, True)
    for pickled in (False, True)
    for method, make in calls(by_key=by_key, pickled=pickled).items()
] + [
    Step(f"process_async, all options, {'codec' if pickled else 'of'}", handled(pickled), True)
    for pickled in (False, True)
]


# -- Time, keys and partitions.


class Trailing(af.watermarks.WatermarkGenerator[Item]):
    """Emits a watermark only on request, 1 s before the newest timestamp."""

    def __init__(self) -> None:
        self._newest: int | None = None

    def on_event(self, value: Item, timestamp: int) -> None:
        self._newest = timestamp if self._newest is None else max(self._newest, timestamp)

    def on_periodic(self) -> int | None:
        return None if self._newest is None else self._newest - 1000


def timed(items: Items, name: str) -> Items:
    aligned = items.event_time(
        at_of,
        max_delay=millis(1000),
        idle_after=millis(5_000),
        advance_when_idle=True,
        align=af.watermarks.Alignment("together", millis(100_000)),
        name=name,
    )
    return aligned.event_time(at_of, generator=Trailing, watermark_interval=millis(50))


def keyed_with_type(items: Items, name: str) -> Items:
    by_key = items.key_by(key_of, of=int, parallelism=2, name=f"{name} key")
    return by_key.window(af.Tumbling(millis(100))).fold(int, plus, name=name).map(of_window)


def keyed_stateless(items: Items, name: str) -> Items:
    """Change, drop and repeat records of a keyed stream; the window has the keys of before."""
    by_key = (
        keyed(items)
        .map(lambda item: replace(item, n=item.n * 7 % M), name=f"{name} map")
        .filter(lambda item: item.n % 5 != 0, name=f"{name} filter")
        .flat_map(lambda item: [item, item], name=f"{name} flat_map")
    )
    return by_key.window(af.Tumbling(millis(100))).fold(int, plus, name=name).map(of_window)


def spread(items: Items, name: str) -> Items:
    return (
        items.rebalance(parallelism=2)
        .partition_by(lambda item, count: item.n % count, parallelism=3)
        .pipe(_mapped, 7, name=name)
    )


def _mapped(items: Items, factor: int, *, name: str) -> Items:
    return items.map(lambda item: replace(item, n=item.n * factor % M), name=name)


# -- Windows and aggregates.


class Then(af.WindowFunction[int, Any, Item]):
    def process(self, value: Any, ctx: af.WindowContext[int]) -> list[Item]:
        n = value.n if isinstance(value, Item) else value
        return [Item(ctx.key or 0, n, ctx.window.max_timestamp)]


def all_together(items: Items, name: str) -> Items:
    windows = items.window_all(
        af.Tumbling(millis(80)),
        trigger=af.triggers.EventTime(late=af.triggers.Count(1)),
        evictor=af.evictors.Time(millis(60), after_function=False),
        lateness=millis(50),
    )
    return windows.apply(total, name=name, of=Item).map(of_window)


def folded(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(90)), lateness=millis(20))
    return windows.fold(int, plus, name=name, then=Then(), of=int)


def reduced(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Sliding(millis(90), millis(30)))
    return windows.reduce(_larger, name=name, then=Then(), of=Item)


def _larger(one: Item, other: Item) -> Item:
    return max(one, other, key=lambda item: (item.n, item.at))


def aggregated(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(90)))
    return windows.aggregate(af.aggregates.sum(_number), name=name, then=Then())


class Sum(af.Aggregate[Item, list[int], int]):
    """Accumulators without a type for storage."""

    def create(self) -> list[int]:
        return [0]

    def add(self, acc: list[int], value: Item) -> list[int]:
        return [acc[0] + value.n]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [a[0] + b[0]]

    def result(self, acc: list[int]) -> int:
        return acc[0]


def aggregated_of(items: Items, name: str) -> Items:
    windows = keyed(items).window(af.Session(millis(8)))
    return windows.aggregate(Sum(), name=name, of=list[int]).map(of_window)


def _number(item: Item) -> int:
    return item.n


def _some(**numbers: Any) -> int:
    listed = numbers.pop("collected"), numbers.pop("best")
    return sum(map(_flat, [*numbers.values(), *listed[0], *listed[1]])) % 100_003


def _flat(number: Any) -> int:
    if number is None:
        return 0
    if isinstance(number, Item):
        return number.n
    return round(float(number))


def every_aggregate(items: Items, name: str) -> Items:
    a = af.aggregates
    all_of_them = a.fields(
        _some,
        collected=a.collect(_number, stored_as=int),
        distinct=a.distinct(_number, approximate=False, stored_as=int),
        about=a.distinct(_number, approximate=True),
        first=a.first(_number, stored_as=int),
        last=a.last(_number, stored_as=int),
        largest=a.max(_number, stored_as=int),
        smallest=a.min(_number, stored_as=int),
        largest_item=a.max(by=_number, stored_as=Item),
        smallest_item=a.min(by=_number, stored_as=Item),
        mean=a.mean(_number),
        median=a.quantile(0.5, _number, error=0.01),
        best=a.top_k(2, by=_number, of=_number, stored_as=int),
    )
    windows = keyed(items).window(af.Tumbling(millis(100)))
    return windows.aggregate(all_of_them, name=name).map(of_window)


def evicted(items: Items, name: str) -> Items:
    """The evictors that other steps do not use, chained."""
    windows = keyed(items).window(
        af.Tumbling(millis(100)),
        evictor=af.evictors.Delta(500.0, _apart, after_function=True),
    )
    counted = keyed(items).window(
        af.Tumbling(millis(100)), evictor=af.evictors.Count(3, after_function=True)
    )
    one = windows.apply(total, name=name, of=Item).map(of_window)
    return one.union(counted.apply(total, name=f"{name} counted", of=Item).map(of_window))


def _apart(one: Item, other: Item) -> float:
    return abs(one.n - other.n)


OPTIONS: Sequence[Step] = [
    *CALLS,
    Step("event_time, all options", timed),
    Step("key_by, all options", keyed_with_type),
    Step("map, filter and flat_map by key", keyed_stateless),
    Step("partitions", spread),
    Step("window_all, all options", all_together),
    Step("fold, all options", folded),
    Step("reduce, all options", reduced),
    Step("aggregate with a function", aggregated),
    Step("aggregate with a type", aggregated_of),
    Step("every aggregate", every_aggregate, needs_order=True),
    Step("other evictors", evicted, needs_order=True),
    *POLICIES,
]


# -- Joins.


def _pair(one: Item, other: Item) -> Item:
    return Item(one.key, (one.n * 7 + other.n) % M, max(one.at, other.at) // 60 * 60 + 59)


def joined(left: Items, right: Items, name: str) -> Items:
    trigger: af.triggers.Trigger[Any] = af.triggers.EventTime()
    return (
        keyed(left)
        .window_join(
            keyed(right),
            af.Tumbling(millis(60)),
            trigger=trigger,
            lateness=millis(20),
            of=Item,
            other_of=Item,
        )
        .inner(_pair, name=name)
    )


def grouped(left: Items, right: Items, name: str) -> Items:
    groups = keyed(left).co_group(
        keyed(right),
        af.Tumbling(millis(60)),
        into=lambda lefts, rights: total(lefts) * 3 + total(rights),
        name=name,
        lateness=millis(20),
        of=Item,
        other_of=Item,
    )
    return groups.map(of_window)


def near(left: Items, right: Items, name: str) -> Items:
    return (
        keyed(left)
        .interval_join(
            keyed(right),
            between=(millis(-5), millis(15)),
            upper_inclusive=False,
            of=Item,
            other_of=Item,
        )
        .inner(lambda one, other: Item(one.key, one.n + other.n, max(one.at, other.at)), name=name)
    )


PAIR_OPTIONS: Sequence[PairStep] = [
    PairStep("window join, all options", joined, multiplies=True),
    PairStep("co-group, all options", grouped),
    PairStep("interval join, open end", near, multiplies=True),
    *PAIR_POLICIES,
]
