"""Events of the keyed benchmarks, and the hand-written program that computes their windows."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import TypedDict

KEYS = 1000
#: Maximum disorder in milliseconds.
DISORDER = 1000
#: Size of a window in milliseconds.
WINDOW = 10_000
#: Events per millisecond of event time.
RATE = 10

Row = tuple[str, int, int, int]
"""Key, window start, count, sum."""


class Event(TypedDict):
    """One event."""

    key: str
    ts: int
    value: int


def make_events(records: int, *, keys: int = KEYS, rate: int = RATE, seed: int = 7) -> list[Event]:
    """Return ``records`` events, ``rate`` for each millisecond, each up to 1 s late, equal for every call."""
    rng = random.Random(seed)
    return [
        Event(
            key=f"key-{rng.randrange(keys)}",
            ts=DISORDER + number // rate - rng.randrange(DISORDER),
            value=number % 100,
        )
        for number in range(records)
    ]


class HandWritten:
    """Program by hand for this one job: a dict for each open window and a heap of their starts."""

    def __init__(self) -> None:
        self.windows: dict[int, dict[str, list[int]]] = {}
        self.open: list[int] = []
        self.newest = -1
        self.rows: list[Row] = []

    def add(self, events: list[Event]) -> None:
        """Process events in the order of arrival."""
        windows, starts = self.windows, self.open
        newest = self.newest
        watermark = newest - DISORDER - 1
        for event in events:
            time = event["ts"]
            start = time - time % WINDOW
            if start + WINDOW - 1 <= watermark:
                continue
            window = windows.get(start)
            if window is None:
                window = windows[start] = {}
                heappush(starts, start)
            key = event["key"]
            held = window.get(key)
            if held is None:
                window[key] = [1, event["value"]]
            else:
                held[0] += 1
                held[1] += event["value"]
            if time > newest:
                newest = time
                watermark = newest - DISORDER - 1
                while starts and starts[0] + WINDOW - 1 <= watermark:
                    self.close(heappop(starts))
        self.newest = newest

    def close(self, start: int) -> None:
        """Emit the results of a window."""
        for key, (count, total) in self.windows.pop(start).items():
            self.rows.append((key, start, count, total))

    def finish(self) -> list[Row]:
        """Return all rows, including those of open windows."""
        while self.open:
            self.close(heappop(self.open))
        return self.rows
