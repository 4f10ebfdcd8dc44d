"""``session``: count and sum in sessions of some 13 events each, for 10,000 keys, 1 s disorder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from heapq import heappop, heappush
from typing import Any

import aflow as af
from bench.events import Event
from bench.harness import Measurement, compare, run_async

KEYS = 10_000
#: Events for each millisecond of event time: one a second for each key.
RATE = 10
#: Milliseconds. One in fifteen pauses of a key is longer.
GAP = 2700
#: Milliseconds by which an event may be behind an earlier one.
DISORDER = 1000

Totals = tuple[int, int]

Row = tuple[str, int, int, int, int]
"""Key, start, end, count, sum."""


def make_events(records: int) -> list[Event]:
    """``records`` events, each up to 1 s late; the same ones at every call."""
    chance = random.Random(11)
    return [
        Event(
            key=f"key-{chance.randrange(KEYS)}",
            ts=DISORDER + number // RATE - chance.randrange(DISORDER),
            value=number % 100,
        )
        for number in range(records)
    ]


def add(so_far: Totals, event: Event) -> Totals:
    """One more event."""
    return so_far[0] + 1, so_far[1] + event["value"]


def merge(a: Totals, b: Totals) -> Totals:
    """Both together."""
    return a[0] + b[0], a[1] + b[1]


def sessions(
    events: af.Stream[Any], /
) -> af.streams.WindowResults[Event, af.Windowed[str, Totals]]:
    """The pipeline that is measured."""
    return (
        events.event_time(lambda e: e["ts"], max_delay=timedelta(milliseconds=DISORDER))
        .key_by(lambda e: e["key"])
        .window(af.Session(timedelta(milliseconds=GAP)))
        .fold(lambda: (0, 0), add, merge=merge, name="totals")
    )


def measure(records: int, rounds: int) -> Measurement:
    """Lists of sessions by key and a heap by hand, no function called for a record that makes its session grow."""
    events = make_events(records)

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
    """Results of either program as sorted rows."""
    return sorted(as_row(row) if isinstance(row, af.Windowed) else row for row in results)


def as_row(result: af.Windowed[str, Totals]) -> Row:
    """A session's result as the hand-written program has it."""
    return (result.key, result.window.start, result.window.end, *result.value)


#: Start, end, count, sum, key; the end is 0 once the session is part of another.
Session = list[Any]


class HandWritten:
    """What an engineer would write for this one job: the sessions of a key, newest last, and when to look at them."""

    def __init__(self) -> None:
        self.open: dict[str, list[Session]] = {}
        #: Sessions by when to look at them, with a heap of those times; they may have grown since they were put in.
        self.due: dict[int, list[Session]] = {}
        self.moments: list[int] = []
        self.rows: list[Row] = []

    def add(self, events: list[Event]) -> None:
        """Take events in the order of their arrival."""
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
        """An event that is not in the newest session of its key: it begins one, or joins one or two."""
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
        self.look_at(session, end - 1)

    def look_at(self, session: Session, moment: int) -> None:
        """Remember to look at a session."""
        some = self.due.get(moment)
        if some is None:
            self.due[moment] = [session]
            heappush(self.moments, moment)
        else:
            some.append(session)

    def fire(self, watermark: int) -> None:
        """Give the results of the sessions that end."""
        moments = self.moments
        while moments and moments[0] <= watermark:
            moment = heappop(moments)
            for session in self.due.pop(moment):
                start, end, number, total, key = session
                if end - 1 > moment:
                    self.look_at(session, end - 1)
                elif end:
                    self.rows.append((key, start, end, number, total))
                    of_key = self.open[key]
                    if len(of_key) == 1:
                        del self.open[key]
                    else:
                        of_key.remove(session)

    def finish(self) -> list[Row]:
        """All rows, those of the sessions still open included."""
        self.fire(2**63 - 1)
        return self.rows
