"""Inferred types of windows, triggers and joins. Nothing here runs: `make types` checks it.

Lambdas have no annotations here, since users write none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_type

import aflow as af

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Click:
    user: str
    page: str
    at: datetime
    patience: timedelta


@dataclass(frozen=True)
class Order:
    user: str
    amount: float


Clicks = af.Stream[Click]
ByUser = af.KeyedStream[str, Click]
OrdersByUser = af.KeyedStream[str, Order]
Windows = af.WindowedStream[str, Click]


# ------------------------------------------------------------------------------------------------------------- windows


def all_kinds_of_windows_keep_key_and_record(users: ByUser) -> None:
    assert_type(users.window(af.Tumbling(MINUTE)), Windows)
    assert_type(users.window(af.Sliding(MINUTE, MINUTE / 2)), Windows)
    assert_type(users.window(af.Session(MINUTE)), Windows)
    assert_type(users.window(af.windows.DynamicSession(lambda c: c.patience)), Windows)
    assert_type(users.window(af.Count(10, slide=5)), Windows)
    assert_type(users.window(af.Tumbling(MINUTE, domain=af.TimeDomain.PROCESSING)), Windows)
    assert_type(
        users.window(af.Tumbling(MINUTE, stagger=af.windows.WindowStagger.NATURAL)), Windows
    )
    assert_type(users.window(af.Global(), trigger=af.triggers.Count(3)), Windows)
    assert_type(
        users.window(
            af.Tumbling(MINUTE),
            trigger=af.triggers.EventTime(
                early=af.triggers.ContinuousProcessingTime(MINUTE), late=af.triggers.Count(10)
            ),
            evictor=af.evictors.Time(MINUTE, after_function=True),
            lateness=MINUTE,
        ),
        Windows,
    )


class FirstOfMonth(af.windows.WindowAssigner[Click]):
    def assign(self, value: Click, timestamp: int) -> Sequence[af.TimeWindow]:
        return [af.TimeWindow(timestamp, timestamp + 1)]


class OnPage(af.triggers.Trigger[Click]):
    def on_element(
        self, value: Click, timestamp: int, window: af.TimeWindow, ctx: af.triggers.TriggerContext
    ) -> af.triggers.TriggerResult:
        seen = ctx.get("seen", 0)
        assert_type(seen, int)
        ctx.put("seen", seen + 1)
        return af.triggers.TriggerResult.FIRE


class Newest(af.evictors.Evictor[Click]):
    def before(
        self,
        elements: Sequence[af.evictors.Element[Click]],
        window: af.TimeWindow,
        ctx: af.evictors.EvictorContext,
    ) -> Sequence[af.evictors.Element[Click]]:
        assert_type(elements[0].value, Click)
        assert_type(ctx.key, Hashable)
        assert_type((ctx.watermark, ctx.processing_time), tuple[int, int])
        return elements[-1:]


def what_users_write_themselves_fits(users: ByUser) -> None:
    windows = users.window(FirstOfMonth(), trigger=OnPage(), evictor=Newest())
    assert_type(windows, Windows)


class Report(af.WindowFunction[str, int, tuple[str, int]]):
    seen = af.ValueState("seen", of=int)

    def process(self, value: int, ctx: af.WindowContext[str]) -> Iterable[tuple[str, int]]:
        assert_type(ctx.key, str)
        assert_type(ctx.window, af.TimeWindow)
        assert_type(ctx.state(self.seen).get(), int | None)
        assert_type(ctx.window_state(self.seen).get(0), int)
        yield ctx.key, value


class Pages(af.WindowFunction[str, list[Click], str]):
    def process(self, value: list[Click], ctx: af.WindowContext[str]) -> Iterable[str]:
        return [click.page for click in value]


def functions_of_windows_say_what_comes_out(windows: Windows) -> None:
    folded = windows.fold(int, lambda n, c: n + len(c.page), name="n", merge=lambda a, b: a + b)
    assert_type(folded, af.streams.WindowResults[Click, af.Windowed[str, int]])
    assert_type(folded.late, Clicks)
    then = windows.fold(int, lambda n, c: n + 1, name="r", then=Report())
    assert_type(then, af.streams.WindowResults[Click, tuple[str, int]])
    assert_type(
        windows.apply(lambda clicks: clicks[0].page, name="a"),
        af.streams.WindowResults[Click, af.Windowed[str, str]],
    )
    assert_type(windows.process(Pages(), name="p"), af.streams.WindowResults[Click, str])
    assert_type(
        windows.reduce(lambda a, b: a, name="f"),
        af.streams.WindowResults[Click, af.Windowed[str, Click]],
    )


def windows_of_everything_have_no_key(clicks: Clicks) -> None:
    counted = clicks.window_all(af.Count(5)).fold(int, lambda n, c: n + 1, name="five")
    assert_type(counted, af.streams.WindowResults[Click, af.Windowed[None, int]])


def sessions_are_lists(users: ByUser) -> None:
    assert_type(
        users.sessions(MINUTE, name="s"),
        af.streams.WindowResults[Click, af.Windowed[str, list[Click]]],
    )


# --------------------------------------------------------------------------------------------------------------- joins


def the_kind_of_a_join_says_which_side_may_be_missing(users: ByUser, orders: OrdersByUser) -> None:
    between = (-MINUTE, MINUTE)
    inner = users.interval_join(orders, between=between).inner(
        lambda c, o: (c.page, o.amount), name="i"
    )
    assert_type(inner, af.streams.JoinResults[Click, Order, tuple[str, float]])
    assert_type(inner.late_left, Clicks)
    assert_type(inner.late_right, af.Stream[Order])
    left = users.interval_join(orders, between=between).left(
        lambda c, o: (c.page, o.amount if o else None), name="l"
    )
    assert_type(left, af.streams.JoinResults[Click, Order, tuple[str, float | None]])
    full = users.window_join(orders, af.Tumbling(MINUTE)).full(
        lambda c, o: (c.page if c else None, o.amount if o else None), name="f"
    )
    assert_type(full, af.streams.JoinResults[Click, Order, tuple[str | None, float | None]])
    as_of = users.as_of_join(orders, tolerance=MINUTE).inner(
        lambda c, o: c.page * int(o.amount), name="a"
    )
    assert_type(as_of, af.streams.JoinResults[Click, Order, str])
    grouped = users.co_group(
        orders, af.Session(MINUTE), into=lambda cs, os: len(cs) + len(os), name="g"
    )
    assert_type(grouped, af.streams.JoinResults[Click, Order, af.Windowed[str, int]])


class Spent(af.CoProcess[str, Click, Order, float]):
    total = af.ValueState("total", of=float)

    def process_left(self, value: Click, ctx: af.Context[str]) -> Iterable[float] | None:
        return None

    def process_right(self, value: Order, ctx: af.Context[str]) -> Iterable[float] | None:
        return [value.amount]


def connected_streams_give_what_the_function_gives(users: ByUser, orders: OrdersByUser) -> None:
    assert_type(users.connect(orders), af.streams.ConnectedStreams[str, Click, Order])
    assert_type(users.connect(orders).process(Spent(), name="spent"), af.Stream[float])


class Blocked(af.BroadcastProcess[str, Click, Order, str]):
    blocked = af.BroadcastState("blocked", key=str, of=bool)

    def process(self, value: Click, ctx: af.BroadcastContext[str]) -> Iterable[str] | None:
        assert_type(ctx.state(self.blocked).get(value.user, False), bool)
        return [value.page]

    def process_broadcast(self, value: Order, ctx: af.ControlContext) -> Iterable[str] | None:
        ctx.state(self.blocked).put(value.user, True)
        return None


def a_control_stream_need_not_be_keyed(users: ByUser, orders: af.Stream[Order]) -> None:
    results = users.connect_broadcast(orders).process(Blocked(), name="blocked")
    assert_type(results, af.Stream[str])


def small_keyed_steps(users: ByUser) -> None:
    assert_type(users.deduplicate(name="once", within=MINUTE), Clicks)
    assert_type(users.top(3, by=lambda c: c.at, name="top"), af.Stream[tuple[Click, ...]])


def clicks_of_now(clicks: Clicks) -> None:
    assert_type(clicks.ingestion_time(), Clicks)
    assert_type(
        clicks.event_time(
            lambda c: c.at, align=af.watermarks.Alignment("clicks", max_drift=MINUTE)
        ),
        Clicks,
    )
