"""``keyed_window``: count and sum in tumbling event-time windows of 10 s for 1,000 keys, 1 s disorder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import aflow as af
from bench.events import DISORDER, WINDOW, Event, HandWritten, Row, make_events
from bench.harness import Measurement, compare, run_async

Totals = tuple[int, int]


def add(so_far: Totals, event: Event) -> Totals:
    """Add one event."""
    return so_far[0] + 1, so_far[1] + event["value"]


def windowed(
    events: af.Stream[Any], /
) -> af.streams.WindowResults[Event, af.Windowed[str, Totals]]:
    """Return the measured pipeline."""
    return (
        events.event_time(lambda e: e["ts"], max_delay=timedelta(milliseconds=DISORDER))
        .key_by(lambda e: e["key"])
        .window(af.Tumbling(timedelta(milliseconds=WINDOW)))
        .fold(lambda: (0, 0), add, name="totals")
    )


def measure(records: int, rounds: int) -> Measurement:
    """Measure against a dict for each window and a heap by hand, without a function call for a record."""
    events = make_events(records)

    def ours() -> list[af.Windowed[str, Totals]]:
        flow, rows = af.Flow("keyed-window"), af.CollectSink[af.Windowed[str, Totals]]()
        flow.source(events).pipe(windowed).to(rows)
        run_async(flow.run())
        return rows.values

    def by_hand() -> list[Row]:
        program = HandWritten()
        program.add(events)
        return program.finish()

    return compare(
        "keyed_window", records, ours, by_hand, at_least=0.68, rounds=rounds, canonical=as_rows
    )


def as_rows(results: Sequence[Row | af.Windowed[str, Totals]]) -> list[Row]:
    """Return the results of either program as sorted rows."""
    return sorted(as_row(row) if isinstance(row, af.Windowed) else row for row in results)


def as_row(result: af.Windowed[str, Totals]) -> Row:
    """Return the result of a window in the form of the hand-written program."""
    return (result.key, result.window.start, *result.value)
