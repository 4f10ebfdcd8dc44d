"""``sliding``: windows of 60 s every second, against tumbling windows of 10 s over the same events.

There are 5 events a millisecond of 100 keys. A million events last 200 s and give some 26,000 results of 60 panes
each, so records dominate the time, not results.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import partial
from statistics import median

import aflow as af
from bench.events import DISORDER, Event, Row, make_events
from bench.harness import Budget, Measurement, run_async, timed
from bench.keyed_window import Totals, as_rows

KEYS = 100
#: Events per millisecond of event time.
RATE = 5
#: Sizes and slide in seconds.
SLIDING, SLIDE, TUMBLING = 60, 1, 10


class CountAndSum:
    """An aggregate of two numbers."""

    def create(self) -> Totals:
        return 0, 0

    def add(self, acc: Totals, value: Event) -> Totals:
        return acc[0] + 1, acc[1] + value["value"]

    def merge(self, a: Totals, b: Totals) -> Totals:
        return a[0] + b[0], a[1] + b[1]

    def result(self, acc: Totals) -> Totals:
        return acc


def measure(records: int, rounds: int) -> Measurement:
    """Measure one aggregate over both kinds of windows in turn, each verified by plain sums."""
    events = make_events(records, keys=KEYS, rate=RATE, seed=13)
    programs: dict[str, af.Sliding | af.Tumbling] = {
        "sliding": af.Sliding(timedelta(seconds=SLIDING), timedelta(seconds=SLIDE)),
        "keyed_window": af.Tumbling(timedelta(seconds=TUMBLING)),
    }
    expected = {
        "sliding": expected_rows(events, SLIDING, SLIDE),
        "keyed_window": expected_rows(events, TUMBLING, TUMBLING),
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds + 1):
        for name, windows in programs.items():
            seconds, results = timed(partial(run, events, windows))
            if as_rows(results) != expected[name]:
                raise SystemExit(
                    f"{name}: a different result than the plain sums; nothing was measured"
                )
            if number:  # the first run is a warm-up
                times[name].append(seconds)
    ours, keyed_window = median(times["sliding"]), median(times["keyed_window"])
    return Measurement(
        "sliding",
        {
            "records": records,
            "results": len(expected["sliding"]),
            "seconds": round(ours, 4),
            "records_per_s": round(records / ours),
            "ns_per_record": round(ours / records * 1e9),
            "keyed_window_ns_per_record": round(keyed_window / records * 1e9),
            "times_keyed_window": round(ours / keyed_window, 3),
            "times_keyed_window_best": round(min(times["sliding"]) / min(times["keyed_window"]), 3),
            "rounds": rounds,
            "verified": True,
        },
        [Budget("times_keyed_window", at_most=2.0)],
    )


def run(events: list[Event], windows: af.Sliding | af.Tumbling) -> list[af.Windowed[str, Totals]]:
    """Return the results of all windows."""
    flow, rows = af.Flow("sliding"), af.CollectSink[af.Windowed[str, Totals]]()
    timed_events = flow.source(events).event_time(
        lambda e: e["ts"], max_delay=timedelta(milliseconds=DISORDER)
    )
    timed_events.key_by(lambda e: e["key"]).window(windows).aggregate(
        CountAndSum(), name="totals"
    ).to(rows)
    run_async(flow.run())
    return rows.values


def expected_rows(events: list[Event], size: int, slide: int) -> list[Row]:
    """Return the expected rows from counts and sums by second; ``size`` and ``slide`` are in seconds."""
    totals: defaultdict[str, defaultdict[int, list[int]]] = defaultdict(
        lambda: defaultdict(lambda: [0, 0])
    )
    for event in events:
        held = totals[event["key"]][event["ts"] // 1000]
        held[0] += 1
        held[1] += event["value"]
    rows: list[Row] = []
    for key, seconds in totals.items():
        windows: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        for second, (number, total) in seconds.items():
            first = (second - size) // slide + 1
            for start in range(first * slide, second + 1, slide):
                windows[start][0] += number
                windows[start][1] += total
        rows += [(key, start * 1000, number, total) for start, (number, total) in windows.items()]
    return sorted(rows)
