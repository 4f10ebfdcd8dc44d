"""Event timers follow the order of the records alone: a specification that handles record by record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aflow as af
from aflow.connect import Source, Split
from aflow.testing import ScriptedSource

Record = tuple[str, int, int]
"""Key, time, and how long after it a timer is due; may be negative."""

Row = tuple[str, str, int, int]
"""Kind, key, time, and the number of records of the key before it."""

records = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(-30, 30)), max_size=40
)


COUNT = af.ValueState("count", of=int)


def handled(value: Record, ctx: af.Context[str]) -> list[Row]:
    ctx.state(COUNT).set(ctx.state(COUNT).get(0) + 1)
    ctx.set_event_timer(value[1] + value[2])
    return [("record", ctx.key, value[1], ctx.watermark)]


def fired(at: int, ctx: af.Context[str]) -> list[Row]:
    return [("timer", ctx.key, at, ctx.state(COUNT).get(0))]


class Counted(af.KeyedProcess[str, Record, Row]):
    count = COUNT

    def process(self, value: Record, ctx: af.Context[str]) -> Iterable[Row]:
        return handled(value, ctx)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[Row]:
        return fired(at, ctx)


class CountedLeft(af.CoProcess[str, Record, Record, Row]):
    count = COUNT

    def process_left(self, value: Record, ctx: af.Context[str]) -> Iterable[Row]:
        return handled(value, ctx)

    def process_right(self, value: Record, ctx: af.Context[str]) -> Iterable[Row]:
        return handled(value, ctx)

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[Row]:
        return fired(at, ctx)


class CountedByRules(af.BroadcastProcess[str, Record, Record, Row]):
    count = COUNT

    def process(self, value: Record, ctx: af.BroadcastContext[str]) -> Iterable[Row]:
        return handled(value, ctx)

    def process_broadcast(self, value: Record, ctx: af.ControlContext) -> Iterable[Row]:
        return [("control", value[0], value[1], ctx.watermark)]

    def on_timer(self, at: int, ctx: af.BroadcastContext[str]) -> Iterable[Row]:
        return fired(at, ctx)


class CountedAsync(af.AsyncKeyedProcess[str, Record, Row]):
    count = af.ValueState("count", of=int)

    async def process(self, value: Record, ctx: af.AsyncContext[str]) -> Iterable[Row]:
        await asyncio.sleep(0)
        ctx.state(self.count).set(ctx.state(self.count).get(0) + 1)
        ctx.set_event_timer(value[1] + value[2])
        return [("record", ctx.key, value[1], ctx.watermark)]

    async def on_timer(self, at: int, ctx: af.AsyncContext[str]) -> Iterable[Row]:
        return [("timer", ctx.key, at, ctx.state(self.count).get(0))]


def expected(arrived: list[Record], delay: int) -> list[Row]:
    rows: list[Row] = []
    counts: dict[str, int] = {}
    timers: set[tuple[int, str]] = set()
    watermark = -(2**63)

    def advance(to: int) -> None:
        for at, key in sorted(timer for timer in timers if timer[0] <= to):
            timers.discard((at, key))
            rows.append(("timer", key, at, counts[key]))

    for key, time, later in arrived:
        rows.append(("record", key, time, watermark))
        counts[key] = counts.get(key, 0) + 1
        timers.add((time + later, key))
        if time - delay - 1 > watermark:
            watermark = time - delay - 1
            advance(watermark)
    advance(2**63 - 1)
    return rows


class NoSplits(ScriptedSource[Record]):
    """A source without splits does not hold event time back."""

    async def splits(self) -> Sequence[Split]:
        return []


def by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    return found


@pytest.mark.slow
@given(
    arrived=records,
    delay=st.integers(0, 20),
    batch=st.sampled_from([1, 2, 7, 1024]),
    parallelism=st.sampled_from([1, 2]),
    chaining=st.booleans(),
    kind=st.sampled_from(
        ["process", "transactions", "on disk", "process_async", "left", "right", "broadcast"]
    ),
)
@settings(max_examples=200, deadline=None)
def test_timers_fire_where_the_watermark_of_the_preceding_record_makes_them_due(
    arrived: list[Record], delay: int, batch: int, parallelism: int, chaining: bool, kind: str
) -> None:
    flow, sink = af.Flow("timers"), af.CollectSink[Row]()

    def keyed(source: Source[Record], name: str) -> af.KeyedStream[str, Record]:
        timed = flow.source(source, name=name).event_time(
            lambda record: record[1], max_delay=timedelta(milliseconds=delay)
        )
        return timed.key_by(lambda record: record[0])

    by_name = keyed(af.IterableSource(arrived), "records")
    match kind:
        case "process" | "on disk":
            by_name.process(Counted(), name="counted").to(sink)
        case "transactions":
            by_name.process(Counted(), name="counted", on_error=af.calls.Drop()).to(sink)
        case "process_async":
            by_name.process_async(CountedAsync(), name="counted", of=tuple[str, int, int]).to(sink)
        case "broadcast":
            control = flow.source(NoSplits(), name="control")
            by_name.connect_broadcast(control).process(CountedByRules(), name="counted").to(sink)
        case _:
            sides = [by_name, keyed(NoSplits(), "nothing")]
            left, right = sides if kind == "left" else reversed(sides)
            left.connect(right).process(CountedLeft(), name="counted").to(sink)

    # One key is resident: the others are loaded again after each firing.
    state = af.backends.OnDisk(resident=1) if kind == "on disk" else af.backends.InMemory()
    options = af.Options(batch_records=batch, chaining=chaining, state=state)
    asyncio.run(flow.run(parallelism=parallelism, options=options))

    assert by_key(sink.values) == by_key(expected(arrived, delay))
