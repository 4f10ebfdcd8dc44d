"""For steps whose results depend on the watermark, history equals a live job with a watermark at each timestamp."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest

import aflow as af
from tests.backfill.comparison import Case, Results, together
from tests.backfill.items import Item, Items, drawn, keyed, millis, ticking
from tests.backfill.steps import of_window, plus
from tests.delayed_trigger import FiresAfterEach


class Told(af.KeyedProcess[int, Item, Item]):
    """Number of records of the key, and the time, when a record is processed and when a timer fires."""

    count = af.ValueState("count", of=int)

    def process(self, value: Item, ctx: af.Context[int]) -> list[Item]:
        count = ctx.state(self.count)
        count.set(count.get(0) + 1)
        ctx.set_event_timer(value.at + value.n % 30)
        ctx.set_event_timer(value.at - 10)
        if value.n % 3 == 0:
            ctx.delete_event_timer(value.at + value.n % 7)
        return [Item(value.key, count.get(0) * 1000 + ctx.watermark, value.at)]

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[Item]:
        count = ctx.state(self.count).get(0)
        if at % 4 == 0:
            ctx.set_event_timer(at + 3)
        return [Item(ctx.key, -count, at)]


def told(items: Items) -> Items:
    return keyed(items).process(Told(), name="told")


class ToldAsync(af.AsyncKeyedProcess[int, Item, Item]):
    """The same, awaited."""

    count = af.ValueState("count", of=int)

    async def process(self, value: Item, ctx: af.AsyncContext[int]) -> list[Item]:
        count = ctx.state(self.count)
        count.set(count.get(0) + 1)
        ctx.set_event_timer(value.at + value.n % 30)
        return [Item(value.key, count.get(0), value.at)]

    async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> list[Item]:
        return [Item(ctx.key, -ctx.state(self.count).get(0), at)]


def told_async(items: Items) -> Items:
    return keyed(items).process_async(ToldAsync(), name="told")


def continuous(items: Items) -> Items:
    trigger = af.triggers.EventTime(early=af.triggers.ContinuousEventTime(millis(20)))
    windows = keyed(items).window(af.Tumbling(millis(100)), trigger=trigger)
    return windows.fold(int, plus, name="continuous").map(of_window)


def continuous_for_ever(items: Items) -> Items:
    trigger = af.triggers.ContinuousEventTime(millis(50))
    windows = keyed(items).window(af.Global(), trigger=trigger)
    return windows.fold(int, plus, name="continuous").map(of_window)


def of_a_user(items: Items) -> Items:
    windows = keyed(items).window(af.Tumbling(millis(100)), trigger=FiresAfterEach(5))
    return windows.fold(int, plus, name="moments").map(of_window)


FLOWS: dict[str, Callable[[Items], Items]] = {
    flow.__name__: flow for flow in (told, told_async, continuous, continuous_for_ever, of_a_user)
}


@cache
def case_of(flow: str) -> tuple[Case, Results]:
    """A flow over some items, and its live results with a watermark at each timestamp."""
    items = drawn(Random(flow), 120, keys=3)
    case = Case(lambda streams: {"out": FLOWS[flow](streams["items"])}, {"items": items})
    return case, case.live({"items": ticking(items)}, batch=1)


@pytest.mark.parametrize("batch", [1, 1024])
@pytest.mark.parametrize("flow", FLOWS)
def test_time_passes_at_each_moment(flow: str, batch: int) -> None:
    case, expected = case_of(flow)

    found = case.over_history(batch=batch, block=13)

    assert found == expected
    assert len(found["out"]) > 20


@pytest.mark.parametrize("flow", FLOWS)
def test_time_passes_at_each_moment_on_both_sides_of_the_end_of_history(
    flow: str, tmp_path: Path
) -> None:
    case, expected = case_of(flow)

    past = case.over_history(until=317, savepoint=tmp_path / "savepoint")
    ticking_on = {"items": ticking(case.sources["items"])}
    live = case.live(ticking_on, savepoint=tmp_path / "savepoint", batch=1)

    assert together(past, live) == expected
