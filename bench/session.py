"""``session``: count and sum in sessions of some 13 events each, for 10,000 keys, 1 s disorder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from heapq import heappop, heappush
from typing import Any

import aflow as af
from bench.events import DISORDER, Event, make_events
from bench.harness import Measurement, compare, run_async
from bench.keyed_window import Totals, add

KEYS = 10_000
#: Events per millisecond of event time: one a second for each key.
RATE = 10
#: Milliseconds. One in fifteen pauses of a key is longer.
GAP = 2700

Row = tuple[str, int, int, int, int]
"""Key, start, end, count, sum."""


def merge(a: Totals, b: Totals) -> Totals:
    """Return the sum of both."""
    return a[0] + b[0], a[1] + b[1]


def sessions(
    events: af.Stream[Any], /
) -> af.streams.WindowResults[Event, af.Windowed[str, Totals]]:
    """Return the measured pipeline."""
    return (
        events.event_time(lambda e: e["ts"], max_delay=timedelta(milliseconds=DISORDER))
        .key_by(lambda e: e["key"])
        .window(af.Session(timedelta(milliseconds=GAP)))
        .fold(lambda: (0, 0), add, merge=merge, name="totals")
    )


def measure(records: int, rounds: int) -> Measurement:
    """Measure against lists of sessions by key and a heap by hand, without a function call for most records."""
    events = make_events(records, keys=KEYS, rate=RATE, seed=11)

    def ours() -> list[af.Windowed[str, Totals]]:
        flow, rows = af.Flow("session"), af.CollectSink[af.Windowed[str, Totals]]()
        flow.source(events).pipe(sessions).to(rows)
        run_async(flow.run())
        return rows.values

    def by_hand() -> list[Row]:
        program = HandWritten()
        program.add(events)
        return program.finish()

    return compare(
        "session", records, ours, by_hand, at_least=0.50, rounds=rounds, canonical=as_rows
    )


def as_rows(results: Sequence[Row | af.Windowed[str, Totals]]) -> list[Row]:
    """Return the results of either program as sorted rows."""
    return sorted(as_row(row) if isinstance(row, af.Windowed) else row for row in results)


def as_row(result: af.Windowed[str, Totals]) -> Row:
    """Return the result of a session in the form of the hand-written program."""
    return (result.key, result.window.start, result.window.end, *result.value)


#: Start, end, count, sum, key; the end is 0 after the session was merged into another.
Session = list[Any]


class HandWritten:
    """Program by hand for this one job: the sessions of each key, newest last, and the times to check them."""

    def __init__(self) -> None:
        self.open: dict[str, list[Session]] = {}
        #: Sessions by the time to check them, with a heap of those times; a session may have been extended since.
        self.due: dict[int, list[Session]] = {}
        self.moments: list[int] = []
        self.rows: list[Row] = []

    def add(self, events: list[Event]) -> None:
        """Process events in the order of arrival."""
        sessions, moments = self.open, self.moments
        newest = -1
        for event in events:
            time, key = event["ts"], event["key"]
            if time > newest:
                newest = time
                if moments and moments[0] < newest - DISORDER:
                    self.fire(newest - DISORDER - 1)
            of_key = sessions.get(key)
            if of_key is not None:
                session = of_key[-1]
                if session[0] <= time <= session[1]:
                    session[2] += 1
                    session[3] += event["value"]
                    if time + GAP > session[1]:
                        session[1] = time + GAP
                    continue
            self.place(key, time, event["value"])

    def place(self, key: str, time: int, value: int) -> None:
        """Add an event that is not in the newest session of its key: start a session, or merge one or two."""
        of_key = self.open.setdefault(key, [])
        start, end, number = time, time + GAP, 1
        for session in [one for one in of_key if one[0] <= end and time <= one[1]]:
            start, end = min(start, session[0]), max(end, session[1])
            number, value = number + session[2], value + session[3]
            session[1] = 0
            of_key.remove(session)
        session = [start, end, number, value, key]
        of_key.append(session)
        if len(of_key) > 1:
            of_key.sort()
        self.check_at(session, end - 1)

    def check_at(self, session: Session, moment: int) -> None:
        """Register a session to be checked at ``moment``."""
        some = self.due.get(moment)
        if some is None:
            self.due[moment] = [session]
            heappush(self.moments, moment)
        else:
            some.append(session)

    def fire(self, watermark: int) -> None:
        """Emit the results of the sessions that end."""
        moments = self.moments
        while moments and moments[0] <= watermark:
            moment = heappop(moments)
            for session in self.due.pop(moment):
                start, end, number, total, key = session
                if end - 1 > moment:
                    self.check_at(session, end - 1)
                elif end:
                    self.rows.append((key, start, end, number, total))
                    of_key = self.open[key]
                    if len(of_key) == 1:
                        del self.open[key]
                    else:
                        of_key.remove(session)

    def finish(self) -> list[Row]:
        """Return all rows, including those of open sessions."""
        self.fire(2**63 - 1)
        return self.rows
