"""A pipeline for each public step. Its results must not depend on the batches of its records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import aflow as af
from tests.backfill import keyed_steps, pair_steps, steps
from tests.backfill.items import Item, Items, keyed, millis
from tests.delayed_trigger import FiresAfterEach

Build = Callable[[Items], af.Stream[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """``build`` adds the step to a stream of items."""

    build: Build
    ordered: bool = True
    """False where results of calls, inputs or outputs that run side by side are mixed."""
    in_time: bool = False
    """True for steps that are given items in the order of time: what they emit for others depends on it."""
    mixed: bool = False
    """True if the step mixes inputs, or records of several subtasks, in an order that is not defined."""


def step(make: Callable[[Items, str], Items], **how: bool) -> Case:
    """A step that is tested over history too."""
    return Case(lambda items: make(items, "step"), **how)


def pair(make: Callable[[Items, Items, str], Items]) -> Case:
    """A step that reads odd items and even ones as two inputs."""
    return Case(
        lambda items: make(
            items.filter(lambda item: item.n % 2 == 1),
            items.filter(lambda item: item.n % 2 == 0),
            "step",
        ),
        ordered=False,
        in_time=True,
        mixed=True,
    )


class Marked(af.KeyedProcess[int, Item, tuple[str, Item, int]]):
    """Count the items of a key, and emit the count by event timers: after each item, and at once for some."""

    count = af.ValueState("count", of=int)

    def process(self, value: Item, ctx: af.Context[int]) -> Iterable[tuple[str, Item, int]]:
        ctx.state(self.count).set(ctx.state(self.count).get(0) + 1)
        ctx.set_event_timer(value.at + (-30 if value.n % 7 == 0 else value.n % 11))
        if value.n % 5 == 0:
            ctx.delete_event_timer(value.at + 5)
        return [("item", value, ctx.watermark)]

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[tuple[str, Item, int]]:
        if at % 13 == 0:
            ctx.set_event_timer(at + 2)
        return [("timer", Item(ctx.key, ctx.state(self.count).get(0), at), ctx.watermark)]


class Told(af.KeyedProcess[str, Any, tuple[Any, ...]]):
    """Emit each record with the watermark that it meets, and by timers that are due soon, and at once."""

    def process(self, value: Any, ctx: af.Context[str]) -> Iterable[tuple[Any, ...]]:
        if ctx.timestamp is not None:
            ctx.set_event_timer(ctx.timestamp + 3)
            ctx.set_event_timer(ctx.timestamp - 7)
        return [("record", value, ctx.timestamp, ctx.watermark)]

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[tuple[Any, ...]]:
        return [("timer", ctx.key, at)]


class SoonAfter(FiresAfterEach):
    """Fire 3 ms after each record: by event timers that are at no multiples of a period."""

    def __init__(self) -> None:
        super().__init__(3)

    def __repr__(self) -> str:
        return "SoonAfter()"  # part of the names of tests


class Beside(af.BroadcastProcess[Any, Item, Item, tuple[str, Item]]):
    """Emit the records of both inputs; neither depends on the other."""

    def process(self, value: Item, ctx: af.BroadcastContext[Any]) -> Iterable[tuple[str, Item]]:
        return [("record", value)]

    def process_broadcast(self, value: Item, ctx: af.ControlContext) -> Iterable[tuple[str, Item]]:
        return [("control", value)]


def with_late(results: af.streams.WindowResults[Item, Any]) -> af.Stream[Any]:
    return results.map(str).union(results.late.map(lambda item: f"late {item}"))


def late(items: Items) -> af.Stream[Any]:
    windows = keyed(items).window(af.Tumbling(millis(40)), lateness=millis(6))
    return with_late(windows.fold(int, steps.plus, name="step"))


def windowed(windows: Any, **how: Any) -> Build:
    """Lists of items in windows, and the late items."""
    return lambda items: with_late(
        keyed(items).window(windows, **how).apply(steps.chained, name="step", of=Item)
    )


def by_kind(
    make: Callable[[af.WindowedStream[int, Item]], af.streams.WindowResults[Item, Any]],
) -> dict[str, Case]:
    """Return a case of ``make`` for each kind of windows."""
    return {
        kind: Case(
            lambda items, windows=windows: with_late(make(keyed(items).window(windows))),  # type: ignore[misc]
            ordered=False,
        )
        for kind, windows in WINDOWS.items()
    }


WINDOWS: Final[Mapping[str, Any]] = {
    "tumbling": af.Tumbling(millis(30)),
    "staggered": af.Tumbling(millis(30), stagger=af.windows.WindowStagger.RANDOM),
    "sliding": af.Sliding(millis(60), millis(20)),
    "with gaps": af.Sliding(millis(20), millis(60)),
    "session": af.Session(millis(7)),
    "dynamic session": af.windows.DynamicSession[Item](lambda item: millis(3 + item.n % 5 * 2)),
    "count": af.Count(3),
    "sliding count": af.Count(4, 2),
}

_ONE, _OTHER = af.Tag[Item]("one"), af.Tag[Item]("other")


class Parts(af.ProcessFunction[Item, Item]):
    """Send a third of the items to each of two side outputs."""

    def process(self, value: Item, ctx: af.ProcessContext) -> Iterable[Item]:
        if value.n % 3:
            ctx.side(_ONE if value.n % 3 == 1 else _OTHER, value)
            return []
        return [value]


def sides(items: Items) -> Items:
    parts = items.process(Parts(), name="step")
    return parts.side(_ONE).union(parts.side(_OTHER).map(lambda item: replace(item, n=-1)))


def controlled(items: Items) -> af.Stream[Any]:
    control = items.filter(lambda item: item.n % 2 == 0)
    return items.connect_broadcast(control).process(Beside(), name="step")


def controlled_by_key(items: Items) -> af.Stream[Any]:
    control = items.filter(lambda item: item.n % 2 == 0)
    return keyed(items).connect_broadcast(control).process(Beside(), name="step")


async def remainder(item: Item) -> Item:
    await asyncio.sleep(item.n % 3 / 1000)
    return replace(item, n=item.n % 7, at=0, key=0)


def cached(items: Items) -> af.Stream[Any]:
    """Records share the results of calls with an equal key."""
    cache = af.calls.Cache[Item, Item](3, key=lambda item: item.n % 7, ttl=millis(2))
    return items.map_async(remainder, capacity=3, cache=cache, into=_beside, name="step")


def retried(items: Items) -> af.Stream[Any]:
    """Each second call fails at first."""
    failed = set[int]()

    async def at_second(item: Item) -> Item:
        if item.n % 2 and item.n not in failed:
            failed.add(item.n)
            raise ConnectionError
        return await remainder(item)

    retry = af.Retry(attempts=3, delay=millis(1), jitter=0.0)
    return items.map_async(at_second, capacity=3, retry=retry, into=_beside, name="step")


def _beside(item: Item, result: Item) -> tuple[Item, Item]:
    return item, result


#: Pipelines by the public method that they are about; several methods have several.
CASES: Final[Mapping[str, Sequence[Case]]] = {
    "Stream.map": [step(steps.mapped)],
    "Stream.filter": [step(steps.filtered)],
    "Stream.flat_map": [step(steps.doubled)],
    "Stream.map_batch": [step(steps.in_batches)],
    "Stream.process": [step(steps.parted, ordered=False)],
    "Stream.side": [Case(sides, ordered=False)],
    "Stream.event_time": [
        Case(lambda items: late(steps.timed_again(items, "time")), ordered=False),
        Case(
            lambda items: late(
                items.event_time(
                    lambda item: item.at, generator=lambda: af.watermarks.Punctuated(_punctuated)
                )
            ),
            ordered=False,
        ),
    ],
    "Stream.ingestion_time": [
        Case(
            lambda items: (
                items.ingestion_time()
                .window_all(af.Tumbling(millis(10)))
                .apply(steps.chained, name="step", of=Item)
                .map(lambda one: one.value)
            )
        )
    ],
    "Stream.key_by": [step(keyed_steps.running)],
    "Stream.window_all": [step(keyed_steps.everything)],
    "Stream.union": [pair(pair_steps.union)],
    "Stream.connect_broadcast": [Case(controlled, ordered=False, mixed=True)],
    "Stream.rebalance": [step(steps.spread)],
    "Stream.broadcast": [
        Case(lambda items: items.broadcast(2).map(str), ordered=False, mixed=True)
    ],
    "Stream.partition_by": [
        Case(lambda items: items.partition_by(lambda item, _: 0, 2).map(str), mixed=True)
    ],
    "Stream.pipe": [Case(lambda items: items.pipe(lambda some: some.map(str)))],
    "Stream.to": [Case(lambda items: items)],
    "Stream.map_async": [
        step(steps.answered),
        step(steps.answered_unordered, ordered=False),
        step(steps.answered_at_last),
        step(steps.answered_or_not, ordered=False),
        step(steps.answered_instead),
        Case(cached),
        Case(retried),
    ],
    "Stream.filter_async": [step(steps.worthwhile)],
    "Stream.flat_map_async": [step(steps.copied)],
    "Stream.map_batch_async": [step(steps.answered_together)],
    "KeyedStream.map_async": [
        step(steps.answered_by_key, ordered=False),
        step(steps.answered_or_not_by_key, ordered=False),
    ],
    "KeyedStream.filter_async": [step(steps.worthwhile_by_key, ordered=False)],
    "KeyedStream.flat_map_async": [step(steps.copied_by_key, ordered=False)],
    "KeyedStream.map_batch_async": [step(steps.answered_together_by_key, ordered=False)],
    "KeyedStream.map": [step(keyed_steps.transformed)],
    "KeyedStream.filter": [step(keyed_steps.transformed)],
    "KeyedStream.flat_map": [step(keyed_steps.transformed)],
    "KeyedStream.process": [
        Case(lambda items: keyed(items).process(Marked(), name="step")),
        step(keyed_steps.later, ordered=False),
    ],
    "KeyedStream.process_async": [
        step(keyed_steps.handled, ordered=False),
        step(keyed_steps.handled_in_order, ordered=False),
    ],
    "KeyedStream.reduce": [step(keyed_steps.reduced)],
    "KeyedStream.fold": [step(keyed_steps.running)],
    "KeyedStream.window": [Case(windowed(some), ordered=False) for some in WINDOWS.values()],
    "KeyedStream.sessions": [
        Case(
            lambda items: with_late(keyed(items).sessions(millis(7), name="step", of=Item)),
            ordered=False,
        )
    ],
    "KeyedStream.deduplicate": [step(keyed_steps.once), step(keyed_steps.once_in_a_while)],
    "KeyedStream.top": [step(keyed_steps.best)],
    "KeyedStream.connect": [pair(pair_steps.both)],
    "KeyedStream.connect_broadcast": [Case(controlled_by_key, ordered=False, mixed=True)],
    "JoinedStreams.inner": [pair(pair_steps.pairs), pair(pair_steps.sessions_joined)],
    "JoinedStreams.left": [pair(pair_steps.pairs_or_left)],
    "JoinedStreams.right": [pair(pair_steps.pairs_or_right)],
    "JoinedStreams.full": [pair(pair_steps.pairs_or_either), pair(pair_steps.in_windows)],
    "AsOfJoinedStreams.inner": [pair(pair_steps.recent)],
    "AsOfJoinedStreams.left": [pair(pair_steps.as_of)],
    "KeyedStream.co_group": [pair(pair_steps.grouped), pair(pair_steps.grouped_sessions)],
    "WindowedStream.fold": list(
        by_kind(lambda some: some.fold(int, steps.plus, name="step", merge=_add)).values()
    ),
    "WindowedStream.reduce": list(
        by_kind(lambda some: some.reduce(keyed_steps._larger, name="step", of=Item)).values()  # pyright: ignore[reportPrivateUsage]
    ),
    "WindowedStream.aggregate": list(
        by_kind(lambda some: some.aggregate(af.aggregates.count(), name="step")).values()
    ),
    "WindowedStream.apply": list(
        by_kind(lambda some: some.apply(steps.chained, name="step", of=Item)).values()
    ),
    "WindowedStream.process": [
        step(keyed_steps.explained, ordered=False),
        step(keyed_steps.listed, ordered=False),
    ],
    "WindowResults.late": [Case(late, ordered=False)],
    "ConnectedStreams.process": [pair(pair_steps.both)],
    "BroadcastConnectedStreams.process": [
        Case(controlled, ordered=False, mixed=True),
        Case(controlled_by_key, ordered=False, mixed=True),
    ],
}

#: Public methods whose results may depend on the batches, with the reason.
EXEMPT: Final[Mapping[str, str]] = {
    "Stream.step_input": "adds no step",
    "KeyedStream.step_input": "adds no step",
    "KeyedStream.interval_join": "adds no step; the methods of JoinedStreams do",
    "KeyedStream.as_of_join": "adds no step; the methods of AsOfJoinedStreams do",
    "KeyedStream.window_join": "adds no step; the methods of JoinedStreams do",
    "JoinResults.late_left": "lateness between two inputs depends on which input is ahead",
    "JoinResults.late_right": "lateness between two inputs depends on which input is ahead",
}


def _add(one: int, other: int) -> int:
    return one + other


def _punctuated(item: Item, at: int) -> int | None:
    return at - 20 if item.n % 4 == 0 else None
