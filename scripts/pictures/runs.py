"""Runs for the pictures of the guide: each function runs flows and returns rows.

This module does not need matplotlib, so tests compare the rows with the guide. Times are in seconds: event time since
12:00:00, processing time since the start of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import aflow as af
from aflow.testing import At, FlowDriver, Pause, ScriptedSource, run_flow
from aflow.testing.virtual_time import run

NOON: Final = int(datetime(2025, 6, 1, 12, tzinfo=UTC).timestamp()) * 1000
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)

Row: TypeAlias = tuple[Any, ...]


class Visit(NamedTuple):
    """A visit of ``user`` at second ``at``."""

    user: str
    at: int


def time(visit: Visit) -> int:
    """Return the event time in epoch ms."""
    return NOON + visit.at * 1000


def seconds(timestamp: int) -> float:
    """Return the event time for a picture."""
    return (timestamp - NOON) / 1000


def visits(*at: int, user: str = "ada") -> list[Visit]:
    """Return visits of one user."""
    return [Visit(user, second) for second in at]


def paused(values: Iterable[Any], every: timedelta = SECOND) -> list[Any]:
    """Return a script with a pause of ``every`` after each value."""
    return [line for value in values for line in (value, Pause(every))]


#: In the order of arrival.
DISORDER: Final = visits(5, 18, 12, 31, 25, 48, 40, 66, 58, 75, 52, 62, 84)


class _ArrivalTimes(af.ProcessFunction[Visit, Row]):
    """Emit the event time, the arrival, and the watermark before each record."""

    def process(self, value: Visit, ctx: af.ProcessContext) -> Iterable[Row]:
        watermark = seconds(ctx.watermark) if ctx.watermark >= NOON - 60_000 else None
        yield value.at, ctx.processing_time / 1000, watermark


def event_time() -> list[Row]:
    """Return rows (event time, arrival, watermark before it or None, True if late for its minute)."""
    flow, seen, late = af.Flow("picture"), af.CollectSink[Row](), af.CollectSink[Visit]()
    timed = flow.source(ScriptedSource[Visit](*paused(DISORDER))).event_time(
        time, max_delay=timedelta(seconds=10)
    )
    timed.process(_ArrivalTimes(), name="seen").to(seen)
    counted = timed.key_by(lambda v: v.user).window(af.Tumbling(MINUTE))
    results = counted.fold(int, lambda n, v: n + 1, name="count")
    results.to(af.CollectSink[af.Windowed[str, int]]())
    results.late.to(late)
    run_flow(flow)
    return [(*row, Visit("ada", row[0]) in late.values) for row in seen.values]


#: Records of all kinds of windows, in the order of event time.
VISITS: Final = sorted(
    [*visits(4, 11, 17, 42, 50, 53, 95), *visits(8, 26, 33, 38, 71, 88, 99, 110, user="bob")],
    key=lambda visit: visit.at,
)
KINDS: Final[dict[str, af.Tumbling | af.Sliding | af.Session | af.Count]] = {
    "Tumbling(30 s)": af.Tumbling(30 * SECOND),
    "Sliding(60 s, 30 s)": af.Sliding(60 * SECOND, 30 * SECOND),
    "Session(15 s)": af.Session(15 * SECOND),
    "Count(3)": af.Count(3),
}


def windows() -> list[Row]:
    """Return rows (kind, key, start, end, seconds of the records); start and end are None for windows without time."""
    rows: list[Row] = []
    for kind, wanted in KINDS.items():
        flow, results = af.Flow("picture"), af.CollectSink[af.Windowed[str, list[int]]]()
        users = flow.source(VISITS).event_time(time, max_delay=SECOND).key_by(lambda v: v.user)
        users.window(wanted).apply(lambda vs: [v.at for v in vs], name="windows").to(results)
        run_flow(flow)
        rows += [(kind, one.key, *_span(one.window), one.value) for one in results.values]
    return sorted(rows, key=lambda row: (list(KINDS).index(row[0]), row[1], row[4]))


def _span(window: af.TimeWindow) -> tuple[float | None, float | None]:
    if window == af.windows.GLOBAL_WINDOW:
        return None, None
    return seconds(window.start), seconds(window.end)


#: In the order of arrival, one every five seconds; 38 and 57 arrive after the first result of their window.
ONE_WINDOW: Final = visits(3, 9, 14, 22, 27, 34, 41, 46, 55, 59, 72, 75, 38, 80, 57)


class _Firings(af.WindowFunction[str, int, Row]):
    """Emit each result, its processing time, and True if the watermark was past the end of the window."""

    def process(self, value: int, ctx: af.WindowContext[str]) -> Iterable[Row]:
        over = ctx.watermark >= ctx.window.end - 1
        yield ctx.processing_time / 1000, seconds(ctx.window.start), value, ctx.firing, over


def firings() -> list[Row]:
    """Return rows (processing time, start of the window, value, firing, True if the watermark was past its end)."""
    flow, results = af.Flow("picture"), af.CollectSink[Row]()
    script = ScriptedSource[Visit](*paused(ONE_WINDOW, 5 * SECOND))
    trigger = af.triggers.EventTime[Visit](early=af.triggers.ContinuousProcessingTime(20 * SECOND))
    (
        flow.source(script)
        .event_time(time, max_delay=timedelta(seconds=10))
        .key_by(lambda v: v.user)
        .window(af.Tumbling(MINUTE), trigger=trigger, lateness=MINUTE)
        .fold(int, lambda n, v: n + 1, name="count", then=_Firings())
        .to(results)
    )
    run_flow(flow)
    return [row for row in results.values if row[1] == 0]


def idleness() -> list[Row]:
    """Return rows (True with idle_after, processing time, watermark) of two splits, one of which becomes idle."""
    east = paused([At(second, NOON + second * 1000) for second in range(1, 25)])
    west = [*paused([At(second, NOON + second * 1000) for second in range(1, 7)]), Pause(MINUTE)]
    rows: list[Row] = []
    for after in (None, 4 * SECOND):
        flow = af.Flow("picture")
        source = ScriptedSource[int].of_splits({"east": east, "west": west})
        flow.source(source).event_time(idle_after=after, name="time").to(af.CollectSink[int]())
        rows += [(after is not None, *row) for row in _watermarks(flow, ["time"], 20)]
    return rows


def alignment() -> list[Row]:
    """Return rows (True if aligned, processing time, watermark of the fast source, of the slow source)."""
    rows: list[Row] = []
    for align in (None, af.watermarks.Alignment("sensors", max_drift=10 * SECOND)):
        flow = af.Flow("picture")
        for name, step in (("fast", 4), ("slow", 1)):
            script = paused([At(second, NOON + second * 1000) for second in range(0, 80, step)])
            timed = flow.source(ScriptedSource[int](*script), name=f"{name} source")
            timed.event_time(align=align, name=name).to(af.CollectSink[int]())
        rows += [(align is not None, *row) for row in _watermarks(flow, ["fast", "slow"], 19)]
    return rows


def _watermarks(flow: af.Flow, steps: list[str], until: int) -> list[Row]:
    """Return the watermarks of ``steps`` in the middle of each second."""

    async def main() -> list[Row]:
        rows: list[Row] = []
        async with FlowDriver(flow, options=af.Options(batch_records=1)) as driver:
            await driver.advance(SECOND / 2)
            for second in range(until):
                found = [driver.metrics.steps[step].watermark for step in steps]
                rows.append((second, *(None if at is None else seconds(at) for at in found)))
                await driver.advance(SECOND)
            await driver.job.cancel()
        return rows

    return run(main)


CLICKS: Final = visits(10, 28, 47, 70)
ORDERS: Final = visits(4, 16, 25, 39, 61, 90)
BETWEEN: Final = (-5, 15)


def interval_join() -> list[Row]:
    """Return rows (second of the left record, of the right one or None)."""
    flow, pairs = af.Flow("picture"), af.CollectSink[Row]()
    clicks = flow.source(CLICKS, name="clicks").event_time(time, name="click time")
    orders = flow.source(ORDERS, name="orders").event_time(time, name="order time")
    clicks.key_by(lambda v: v.user).interval_join(
        orders.key_by(lambda v: v.user), between=(BETWEEN[0] * SECOND, BETWEEN[1] * SECOND)
    ).left(lambda click, order: (click.at, order.at if order else None), name="join").to(pairs)
    run_flow(flow)
    return sorted(pairs.values, key=lambda row: (row[0], row[1] is None, row[1]))


class Rate(NamedTuple):
    """A rate, valid from second ``at``."""

    user: str
    at: int
    value: float


RATES: Final = [Rate("ada", 12, 1.08), Rate("ada", 40, 1.12), Rate("ada", 75, 1.05)]
PAYMENTS: Final = visits(6, 20, 33, 40, 58, 96, 103)
TOLERANCE: Final = 24


def as_of_join() -> list[Row]:
    """Return rows (second of the record, value of its version or None)."""
    flow, results = af.Flow("picture"), af.CollectSink[Row]()
    rates = flow.source(RATES, name="rates").event_time(
        lambda r: NOON + r.at * 1000, name="rate time"
    )
    payments = flow.source(PAYMENTS, name="payments").event_time(time, name="payment time")
    payments.key_by(lambda p: p.user).as_of_join(
        rates.key_by(lambda r: r.user), tolerance=TOLERANCE * SECOND
    ).left(lambda payment, rate: (payment.at, rate.value if rate else None), name="rate").to(
        results
    )
    run_flow(flow)
    return results.values


RUNS: Final[dict[str, Callable[[], list[Row]]]] = {
    "event-time": event_time,
    "idleness": idleness,
    "alignment": alignment,
    "windows": windows,
    "firings": firings,
    "interval-join": interval_join,
    "as-of-join": as_of_join,
}
"""Run of each picture, by the name of its file."""
