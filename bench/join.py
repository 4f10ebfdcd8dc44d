"""``join``: interval join of two streams with 10,000 keys, from 2 s before to 3 s after, 1 s disorder."""

from __future__ import annotations

import random
from collections import deque
from datetime import timedelta

import aflow as af
from bench.events import DISORDER, Event
from bench.harness import Measurement, compare, run_async

KEYS = 10_000
#: Milliseconds: bounds of the time of a right event relative to a left one.
LOWER, UPPER = -2000, 3000
#: Events of each stream per millisecond of event time.
RATE = 5

Numbers = tuple[int, int]
"""Numbers of a left and a right event."""


def make_stream(records: int, seed: int) -> list[Event]:
    """Return ``records`` events with their numbers as values, each up to 1 s late, equal for every call."""
    rng = random.Random(seed)
    return [
        Event(
            key=f"key-{rng.randrange(KEYS)}",
            ts=DISORDER + number // RATE - rng.randrange(DISORDER),
            value=number,
        )
        for number in range(records)
    ]


class HandWritten:
    """Program by hand for this one job: two deques for each key, cleared when the interval has passed."""

    def __init__(self) -> None:
        self.state: dict[str, tuple[deque[Numbers], deque[Numbers]]] = {}

    def join(self, lefts: list[Event], rights: list[Event]) -> list[Numbers]:
        """Process the events of both streams in turn."""
        state, sweep_at = self.state, 0
        newest_left = newest_right = -1
        pairs: list[Numbers] = []
        for left, right in zip(lefts, rights, strict=True):
            watermark = min(newest_left, newest_right) - DISORDER - 1
            if watermark >= sweep_at:
                sweep_at = watermark + UPPER - LOWER
                self.sweep(watermark)

            key, time, number = left["key"], left["ts"], left["value"]
            if key not in state:
                state[key] = (deque(), deque())
            mine, others = state[key]
            while others and others[0][0] - LOWER <= watermark:
                others.popleft()
            for other_time, other in others:
                if LOWER <= other_time - time <= UPPER:
                    pairs.append((number, other))
            mine.append((time, number))
            if time > newest_left:
                newest_left = time

            key, time, number = right["key"], right["ts"], right["value"]
            if key not in state:
                state[key] = (deque(), deque())
            others, mine = state[key]
            while others and others[0][0] + UPPER <= watermark:
                others.popleft()
            for other_time, other in others:
                if LOWER <= time - other_time <= UPPER:
                    pairs.append((other, number))
            mine.append((time, number))
            if time > newest_right:
                newest_right = time
        return pairs

    def sweep(self, watermark: int) -> None:
        """Remove events that can have no more partners, also of keys without further events."""
        for key in list(self.state):
            lefts, rights = self.state[key]
            while lefts and lefts[0][0] + UPPER <= watermark:
                lefts.popleft()
            while rights and rights[0][0] - LOWER <= watermark:
                rights.popleft()
            if not lefts and not rights:
                del self.state[key]


def joined(lefts: af.Stream[Event], rights: af.Stream[Event]) -> af.Stream[Numbers]:
    """Return the measured pipeline."""

    def keyed(events: af.Stream[Event]) -> af.KeyedStream[str, Event]:
        delay = timedelta(milliseconds=DISORDER)
        return events.event_time(lambda e: e["ts"], max_delay=delay).key_by(lambda e: e["key"])

    return (
        keyed(lefts)
        .interval_join(
            keyed(rights), between=(timedelta(milliseconds=LOWER), timedelta(milliseconds=UPPER))
        )
        .inner(lambda left, right: (left["value"], right["value"]), name="pairs")
    )


def measure(records: int, rounds: int) -> Measurement:
    """Measure against two deques for each key by hand; ``records`` is the total of both streams."""
    lefts, rights = make_stream(records // 2, 7), make_stream(records // 2, 8)

    def ours() -> list[Numbers]:
        flow, pairs = af.Flow("join"), af.CollectSink[Numbers]()
        both = flow.source(lefts, name="lefts"), flow.source(rights, name="rights")
        joined(*both).to(pairs)
        run_async(flow.run())
        return pairs.values

    def by_hand() -> list[Numbers]:
        return HandWritten().join(lefts, rights)

    return compare("join", records, ours, by_hand, at_least=0.40, rounds=rounds, canonical=sorted)
