"""``join``: interval join of two streams with 10,000 keys, from 2 s before to 3 s after, 1 s disorder."""

from __future__ import annotations

import random
from collections import deque
from datetime import timedelta

import aflow as af
from bench.events import DISORDER, Event
from bench.harness import Measurement, compare, run_async

KEYS = 10_000
#: Milliseconds: a right event is a partner from so long before a left one to so long after it.
LOWER, UPPER = -2000, 3000
#: Events of each stream for each millisecond of event time.
RATE = 5

Numbers = tuple[int, int]
"""The numbers of a left event and of a right one."""


def make_stream(records: int, seed: int) -> list[Event]:
    """``records`` events with their numbers as values, each up to 1 s late; the same ones at every call."""
    chance = random.Random(seed)
    return [
        Event(
            key=f"key-{chance.randrange(KEYS)}",
            ts=DISORDER + number // RATE - chance.randrange(DISORDER),
            value=number,
        )
        for number in range(records)
    ]


class HandWritten:
    """What an engineer would write for this one job: two deques for each key, swept when the interval has passed."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[deque[Numbers], deque[Numbers]]] = {}

    def join(self, lefts: list[Event], rights: list[Event]) -> list[Numbers]:
        """Take the events of both streams in turn."""
        held, sweep_at = self.held, 0
        newest_left = newest_right = -1
        pairs: list[Numbers] = []
        for left, right in zip(lefts, rights, strict=True):
            watermark = min(newest_left, newest_right) - DISORDER - 1
            if watermark >= sweep_at:
                sweep_at = watermark + UPPER - LOWER
                self.sweep(watermark)

            key, time, number = left["key"], left["ts"], left["value"]
            if key not in held:
                held[key] = (deque(), deque())
            mine, others = held[key]
            while others and others[0][0] - LOWER <= watermark:
                others.popleft()
            for other_time, other in others:
                if LOWER <= other_time - time <= UPPER:
                    pairs.append((number, other))
            mine.append((time, number))
            if time > newest_left:
                newest_left = time

            key, time, number = right["key"], right["ts"], right["value"]
            if key not in held:
                held[key] = (deque(), deque())
            others, mine = held[key]
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
        """Forget what can meet nobody any more, of keys too that get no more events."""
        for key in list(self.held):
            lefts, rights = self.held[key]
            while lefts and lefts[0][0] + UPPER <= watermark:
                lefts.popleft()
            while rights and rights[0][0] - LOWER <= watermark:
                rights.popleft()
            if not lefts and not rights:
                del self.held[key]


def joined(lefts: af.Stream[Event], rights: af.Stream[Event]) -> af.Stream[Numbers]:
    """The pipeline that is measured."""

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
    """Two deques for each key by hand; ``records`` are those of both streams together."""
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
