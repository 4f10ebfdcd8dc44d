"""Pipeline of ``timers``: each record postpones the timer of its key; a timer that fires reports the key."""

from __future__ import annotations

import random
from collections.abc import Iterable
from heapq import heappop, heappush

import aflow as af
from bench.harness import run_async

#: Number of cohorts of keys, one after the other, and of records for each key.
COHORTS = 4
VISITS = 4

Fired = tuple[int, int]
"""Time and key of a timer that fired."""

Reading = tuple[int, int]
"""Key and event time (ms) of a record."""


class SilentKeys(af.KeyedProcess[int, Reading, Fired]):
    """Emit a key after ``timeout`` without records: each record postpones the timer of its key."""

    due = af.ValueState("due", of=int)

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout

    def process(self, value: Reading, ctx: af.Context[int]) -> None:
        due, later = ctx.state(self.due), value[1] + self._timeout
        before = due.get()
        if before is not None:
            ctx.delete_event_timer(before)
        due.set(later)
        ctx.set_event_timer(later)

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[Fired]:
        ctx.state(self.due).clear()
        return [(at, ctx.key)]


def readings(records: int) -> list[Reading]:
    """Return a record for each ms; the keys of a cohort occur in any order, and never again."""
    rng = random.Random(11)
    cohort = records // COHORTS
    keys = cohort // VISITS
    return [(at // cohort * keys + rng.randrange(keys), at) for at in range(records)]


def timeout(records: int) -> int:
    """Return the timeout (ms): no two records of a key are so far apart, whatever the batches."""
    return records // COHORTS + 1


def dormant_in_flow(records: list[Reading]) -> list[Fired]:
    """Run the pipeline."""
    flow, fired = af.Flow("timers"), af.CollectSink[Fired]()
    (
        flow.source(records)
        .event_time(lambda reading: reading[1])
        .key_by(lambda reading: reading[0])
        .process(SilentKeys(timeout(len(records))), name="dormant")
        .to(fired)
    )
    run_async(flow.run())
    return fired.values


def dormant_by_hand(records: list[Reading]) -> list[Fired]:
    """Compute the same with a heap and a dict; fire before the first record that meets the time of a timer."""
    live: dict[int, int] = {}
    heap: list[Fired] = []
    fired: list[Fired] = []
    silence = timeout(len(records))
    watermark = -1
    for key, at in records:
        if heap and heap[0][0] <= watermark:
            _fire(heap, live, watermark, fired)
        live[key] = at + silence
        heappush(heap, (at + silence, key))
        watermark = at - 1
    _fire(heap, live, records[-1][1] + silence, fired)
    return fired


def _fire(heap: list[Fired], live: dict[int, int], until: int, fired: list[Fired]) -> None:
    while heap and heap[0][0] <= until:
        at, key = heappop(heap)
        if live.get(key) == at:
            del live[key]
            fired.append((at, key))
