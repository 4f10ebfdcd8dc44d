"""The pipeline that is killed: all kinds of state, and sinks that write exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aflow as af
from aflow_connectors.files import JsonLinesSink, JsonLinesSource
from aflow_connectors.sqlite import SqliteSink
from bench.crash.outputs import DATABASE, TABLE
from bench.crash.records import MAX_DELAY, Order, Reading
from bench.crash.service import RETRY, parts, priced, scored, worth
from bench.crash.settings import Settings
from bench.crash.throttle import Orders, Slow, Throttled

#: Milliseconds of the buckets of ``Buckets``.
BUCKET: Final = 20_000
_AFTER: Final = 5_000

_Row = tuple[object, ...]


def _second(seconds: int) -> timedelta:
    return timedelta(seconds=seconds)


class Buckets(af.KeyedProcess[tuple[int, int], Reading, _Row]):
    """Sum readings by device and bucket of event time: emit a row when the bucket ends, and another one later.

    The output depends on the readings only, since all readings of a bucket precede its timers.
    """

    values = af.ListState[int]("values", of=int)
    tens = af.MapState[str, int]("tens", key=str, of=int)
    total = af.ReducingState[int]("total", lambda one, other: one + other, of=int)
    rows = af.ValueState[int]("rows", of=int)

    def process(self, value: Reading, ctx: af.Context[tuple[int, int]]) -> None:
        ctx.state(self.values).add(value.value)
        tens = ctx.state(self.tens)
        ten = str(value.value % 10)
        tens.put(ten, (tens.get(ten) or 0) + 1)
        ctx.state(self.total).add(value.value)
        end = (ctx.key[1] + 1) * BUCKET
        ctx.set_event_timer(end)
        ctx.set_event_timer(end + _AFTER)

    def on_timer(self, at: int, ctx: af.Context[tuple[int, int]]) -> Iterable[_Row]:
        rows = (ctx.state(self.rows).get() or 0) + 1
        ctx.state(self.rows).set(rows)
        row = (
            *ctx.key,
            at,
            rows,
            ctx.state(self.total).get(),
            sorted(ctx.state(self.values).get()),
            sorted(ctx.state(self.tens).items()),
        )
        if at % BUCKET:
            self._clear(ctx)
        return [row]

    def _clear(self, ctx: af.Context[tuple[int, int]]) -> None:
        ctx.state(self.values).clear()
        ctx.state(self.tens).clear()
        ctx.state(self.total).clear()
        ctx.state(self.rows).clear()


def build(settings: Settings) -> af.Flow:
    """Build the flow. Each sink writes below ``settings.outputs``, into a folder of its name or a table."""
    flow = af.Flow("killed")
    readings, orders = _sources(flow, settings)
    outputs = _Outputs(Path(settings.outputs))
    by_device = readings.key_by(lambda reading: reading.device)
    orders_by_device = orders.key_by(lambda order: order.device)
    _windows(by_device, outputs)
    _joins(by_device, orders_by_device, outputs)
    _calls(readings, orders_by_device, outputs)
    buckets = readings.key_by(lambda reading: (reading.device, reading.at // BUCKET))
    outputs.rows(buckets.process(Buckets(), name="buckets"))
    outputs.rows(orders_by_device.fold(_zero_sums, _more_orders, name="totals"))
    once = readings.key_by(lambda reading: reading.id).deduplicate(
        name="once", within=timedelta(minutes=2)
    )
    once.to(SqliteSink(outputs.folder / DATABASE, TABLE), name="table")
    copies = JsonLinesSink[Reading](outputs.folder / "copies")
    slow = Slow(copies, settings.write_us / 1e6)
    once.rebalance(1).to(slow if settings.slow else copies, name="copies")
    return flow


def _zero_sums() -> tuple[int, int, int]:
    return 0, 0, 0


def _more_orders(so_far: tuple[int, int, int], order: Order) -> tuple[int, int, int]:
    """Return device, count, and a number that depends on the order of the records."""
    return order.device, so_far[1] + 1, so_far[2] * 31 % 9973 + order.price


def _sources(flow: af.Flow, settings: Settings) -> tuple[af.Stream[Reading], af.Stream[Order]]:
    files = JsonLinesSource(settings.inputs, of=Reading, concurrency=None)
    generated = Orders(settings.orders, endless=settings.endless)
    delay = timedelta(milliseconds=MAX_DELAY)
    readings = flow.source(Throttled(files) if settings.slow else files, name="readings")
    orders = flow.source(Throttled(generated) if settings.slow else generated, name="orders")
    return (
        readings.event_time(lambda reading: reading.at, max_delay=delay),
        orders.event_time(lambda order: order.at, max_delay=delay),
    )


class _Outputs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def rows(self, stream: af.Stream[Any], name: str | None = None) -> None:
        """Write JSON lines into the folder ``name``, by default the name of the step."""
        name = name or stream.step_input.edge.origin.name
        stream.to(JsonLinesSink(self.folder / name), name=f"{name} sink")

    def windows(self, results: af.Stream[af.Windowed[int, Any]]) -> None:
        """Write the results of windows."""
        name = results.step_input.edge.origin.name
        self.rows(results.map(_as_row), name)


def _as_row(result: af.Windowed[int, Any]) -> _Row:
    return (result.key, result.window.start, result.window.end, result.firing, result.value)


def _windows(readings: af.KeyedStream[int, Reading], outputs: _Outputs) -> None:
    def more(so_far: tuple[int, int], reading: Reading) -> tuple[int, int]:
        return so_far[0] + 1, so_far[1] + reading.value

    def both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]

    tumbling = readings.window(af.Tumbling(_second(10)))
    outputs.windows(tumbling.fold(lambda: (0, 0), more, name="tumbling"))
    sliding = readings.window(af.Sliding(_second(15), _second(5)))
    outputs.windows(sliding.fold(lambda: (0, 0), more, merge=both, name="sliding"))
    # Panes of two lengths and many firings: subtasks with different watermarks are restored.
    panes = readings.window(af.Sliding(_second(7), _second(2)))
    outputs.windows(panes.fold(lambda: (0, 0), more, merge=both, name="panes"))
    sessions = readings.sessions(_second(2), name="sessions", of=Reading)
    outputs.rows(
        sessions.map(
            lambda one: (one.key, one.window.start, one.window.end, sorted(r.id for r in one.value))
        ),
        "sessions",
    )


def _joins(
    readings: af.KeyedStream[int, Reading],
    orders: af.KeyedStream[int, Order],
    outputs: _Outputs,
) -> None:
    def pair(reading: Reading, order: Order | None) -> _Row:
        ordered = None if order is None else (order.at, order.price)
        return reading.id, reading.at, reading.device, ordered

    joined = readings.interval_join(
        orders, between=(-_second(1), _second(2)), of=Reading, other_of=Order
    ).inner(pair, name="interval")
    outputs.rows(joined)
    as_of = readings.as_of_join(orders, of=Reading, other_of=Order).left(pair, name="as of")
    outputs.rows(as_of)
    groups = readings.co_group(
        orders,
        af.Tumbling(_second(7)),
        into=lambda some, others: (
            sorted(one.id for one in some),
            sorted(one.price for one in others),
        ),
        name="groups",
        of=Reading,
        other_of=Order,
    )
    outputs.windows(groups)


def _calls(
    readings: af.Stream[Reading], orders: af.KeyedStream[int, Order], outputs: _Outputs
) -> None:
    """Add async steps in all three orders; the windows after one of them would miss records overtaken by a
    watermark."""

    def more(so_far: tuple[int, int], reading: Reading) -> tuple[int, int]:
        return so_far[0] + 1, so_far[1] + reading.value

    asked = readings.map_async(scored, name="ask", capacity=20, retry=RETRY)
    windows = asked.key_by(lambda one: one.device).window(af.Tumbling(_second(10)))
    outputs.windows(windows.fold(lambda: (0, 0), more, name="asked"))
    worthy = readings.rebalance().filter_async(
        worth, name="worth", capacity=20, ordered=False, retry=RETRY
    )
    split = worthy.flat_map_async(parts, name="parts", capacity=10, ordered=False, retry=RETRY)
    outputs.rows(split)
    outputs.rows(orders.map_async(priced, name="priced", capacity=20, retry=RETRY, of=Order))
