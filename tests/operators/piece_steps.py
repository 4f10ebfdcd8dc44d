"""Steps that fire, expire or clean up at a watermark or by the clock, by name, as the front door makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import aflow as af
from aflow.operators.base import Operator

Keyed = af.KeyedStream[int, int]
Make = Callable[[Keyed, Keyed, af.Stream[int]], Any]


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


TOLD: Final = af.Tag[int]("told")


class Rings(af.KeyedProcess[int, int, object]):
    """Register timers at several times, in handlers of timers too, and delete some."""

    last = af.ValueState[int]("last", of=int)

    def process(self, value: int, ctx: af.Context[int]) -> list[object]:
        ctx.state(self.last).set(value)
        ctx.set_event_timer((value // 10) * 10)
        ctx.set_processing_timer(ctx.processing_time + value % 7 + 1)
        if value % 5 == 0:
            ctx.delete_event_timer((value // 10 + 1) * 10)
        return [("record", value)]

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[object]:
        last = ctx.state(self.last).get(0)
        if ctx.timer_domain is af.TimeDomain.EVENT and last % 3 == 0:
            ctx.set_event_timer(at)  # once more in this pass
            ctx.set_event_timer(at + 10)
            ctx.state(self.last).set(last + 1)
        ctx.side(TOLD, ctx.key)
        return [("timer", at, ctx.key, ctx.watermark)] * (last % 3)


class Both(af.CoProcess[int, int, int, object]):
    """Register a timer for each record of either side."""

    def process_left(self, value: int, ctx: af.Context[int]) -> None:
        ctx.set_event_timer(value // 10 * 10)

    def process_right(self, value: int, ctx: af.Context[int]) -> None:
        ctx.set_event_timer(value // 10 * 10 + 5)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[object]:
        return [(at, ctx.key)]


class Ruled(af.BroadcastProcess[int, int, int, object]):
    """Register a timer for each record."""

    rules = af.BroadcastState("rules", key=str, of=int)

    def process(self, value: int, ctx: af.BroadcastContext[int]) -> None:
        ctx.set_event_timer(value // 10 * 10)

    def process_broadcast(self, value: int, ctx: af.ControlContext) -> None:
        ctx.state(self.rules).put("rule", value)

    def on_timer(self, at: int, ctx: af.BroadcastContext[int]) -> list[object]:
        return [(at, ctx.key, ctx.state(self.rules).get("rule"))]


class Cleared(af.WindowFunction[int, list[int], object]):
    """State of windows and of keys."""

    seen = af.ValueState[int]("seen", of=int)

    def process(self, value: list[int], ctx: af.WindowContext[int]) -> list[object]:
        before = ctx.state(self.seen).get(0)
        ctx.state(self.seen).set(before + len(value))
        return [(ctx.key, ctx.window.start, number, before) for number in value]


def plus(total: int, value: int) -> int:
    return total + value


def listed(records: list[int], value: int) -> list[int]:
    records.append(value)
    return records


def joined(records: list[int], others: list[int]) -> list[int]:
    records.extend(others)
    return records


def fold(windows: Any, **options: Any) -> Make:
    """Folds that can be merged, into lists that are changed in place."""
    return lambda keyed, other, control: keyed.window(windows, **options).fold(
        list[int], listed, merge=joined, name="step"
    )


def unmerged(windows: Any, **options: Any) -> Make:
    return lambda keyed, other, control: keyed.window(windows, **options).fold(
        int, plus, name="step"
    )


def applied(windows: Any, **options: Any) -> Make:
    return lambda keyed, other, control: keyed.window(windows, **options).apply(
        lambda records: list(records), name="step"
    )


tumbling = af.Tumbling(millis(10))
sliding = af.Sliding(millis(20), millis(5))
pairs = af.Sliding(millis(25), millis(10))
gaps = af.Sliding(millis(5), millis(10))
session = af.Session(millis(7))
continuous = af.triggers.ContinuousEventTime(millis(5))
later = millis(15)

CASES: Final[Mapping[str, Make]] = {
    "tumbling": fold(tumbling),
    "tumbling, kept": fold(tumbling, lateness=later),
    "tumbling, not merged": unmerged(tumbling, lateness=later),
    "tumbling, lists": applied(tumbling),
    "sliding": fold(sliding),
    "sliding, kept": fold(sliding, lateness=later),
    "sliding, not merged": unmerged(sliding, lateness=later),
    "paired windows": fold(pairs, lateness=later),
    "gaps": fold(gaps, lateness=later),
    "sessions": fold(session),
    "sessions, kept": fold(session, lateness=later),
    "lists of sessions": lambda keyed, other, control: keyed.sessions(millis(7), name="step"),
    "dynamic sessions": applied(
        af.windows.DynamicSession[int](lambda n: millis(n % 5 + 1)), lateness=later
    ),
    "continuous": applied(tumbling, trigger=continuous, lateness=later),
    "continuous sessions": applied(session, trigger=continuous, lateness=later),
    "count": applied(tumbling, trigger=af.triggers.Count(2)),
    "purging": applied(af.Global(), trigger=af.triggers.Purging(continuous)),
    "processing time": applied(
        tumbling, trigger=af.triggers.Purging(af.triggers.ContinuousProcessingTime(millis(3)))
    ),
    "early": applied(sliding, trigger=af.triggers.EventTime(early=continuous)),
    "evictor": applied(sliding, evictor=af.evictors.Count(2)),
    "function": lambda keyed, other, control: keyed.window(tumbling, lateness=later).process(
        Cleared(), name="step"
    ),
    "timers": lambda keyed, other, control: keyed.process(Rings(), name="step"),
    "two inputs": lambda keyed, other, control: keyed.connect(other).process(Both(), name="step"),
    "broadcast": lambda keyed, other, control: keyed.connect_broadcast(control).process(
        Ruled(), name="step"
    ),
    "inner": lambda keyed, other, control: keyed.interval_join(
        other, between=(millis(-5), millis(9))
    ).inner(lambda one, two: (one, two), name="step"),
    "full": lambda keyed, other, control: keyed.interval_join(
        other, between=(millis(-5), millis(9))
    ).full(lambda one, two: (one, two), name="step"),
    "as of": lambda keyed, other, control: keyed.as_of_join(other, tolerance=millis(20)).left(
        lambda one, two: (one, two), name="step"
    ),
    "as of, for ever": lambda keyed, other, control: keyed.as_of_join(other).inner(
        lambda one, two: (one, two), name="step"
    ),
    "co-group": lambda keyed, other, control: keyed.co_group(
        other, tumbling, into=lambda ones, twos: (ones, twos), name="step", lateness=later
    ),
    "window join": lambda keyed, other, control: keyed.window_join(other, session).full(
        lambda one, two: (one, two), name="step"
    ),
    "deduplicate": lambda keyed, other, control: keyed.deduplicate(within=millis(20), name="step"),
}


def operator(case: str) -> Operator:
    """Return a new operator of a case."""
    flow = af.Flow("cases")
    numbers, others = (flow.source([1], name=name).event_time(lambda n: n) for name in "ab")
    stream = CASES[case](numbers.key_by(lambda n: n % 4), others.key_by(lambda n: n % 4), others)
    stream.to(af.CollectSink[Any](), name="sink")
    (node,) = (node for node in flow.graph if node.name == "step")
    assert node.operator is not None
    return node.operator()
