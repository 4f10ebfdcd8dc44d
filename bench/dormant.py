"""The pipeline of ``timers``: each record puts the timer of its key off, and keys that fall silent are reported."""

from __future__ import annotations

import random
from collections.abc import Iterable
from heapq import heappop, heappush

import aflow as af
from bench.harness import run_async

#: Into how many cohorts of keys the records of the pipeline fall, one after the other, and records for each key.
COHORTS = 4
VISITS = 4

Rang = tuple[int, int]
"""Time and key of a timer that rang."""

Reading = tuple[int, int]
"""Key and event time (ms) of a record."""


class Dormant(af.KeyedProcess[int, Reading, Rang]):
    """Reports a key that was silent for long enough: each record puts the timer of its key off."""

    due = af.ValueState("due", of=int)

    def __init__(self, patience: int) -> None:
        self._patience = patience

    def process(self, value: Reading, ctx: af.Context[int]) -> None:
        due, later = ctx.state(self.due), value[1] + self._patience
        before = due.get()
        if before is not None:
            ctx.delete_event_timer(before)
        due.set(later)
        ctx.set_event_timer(later)

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[Rang]:
        ctx.state(self.due).clear()
        return [(at, ctx.key)]


def readings(records: int) -> list[Reading]:
    """A record each ms; the keys of a cohort are visited in any order, and never again."""
    chance = random.Random(11)
    cohort = records // COHORTS
    keys = cohort // VISITS
    return [(at // cohort * keys + chance.randrange(keys), at) for at in range(records)]


def patience(records: int) -> int:
    """ms after which a key is dormant: no key is silent for so long between two visits, whatever the batches are."""
    return records // COHORTS + 1


def dormant_in_flow(records: list[Reading]) -> list[Rang]:
    """The pipeline."""
    flow, rang = af.Flow("timers"), af.CollectSink[Rang]()
    (
        flow.source(records)
        .event_time(lambda reading: reading[1])
        .key_by(lambda reading: reading[0])
        .process(Dormant(patience(len(records))), name="dormant")
        .to(rang)
    )
    run_async(flow.run())
    return rang.values


def dormant_by_hand(records: list[Reading]) -> list[Rang]:
    """The same with a heap and a dict; rings behind each 1,024 records, as the pipeline does."""
    live: dict[int, int] = {}
    heap: list[Rang] = []
    rang: list[Rang] = []
    silence = patience(len(records))
    for start in range(0, len(records), 1024):
        batch = records[start : start + 1024]
        for key, at in batch:
            live[key] = at + silence
            heappush(heap, (at + silence, key))
        _ring(heap, live, batch[-1][1] - 1, rang)
    _ring(heap, live, records[-1][1] + silence, rang)
    return rang


def _ring(heap: list[Rang], live: dict[int, int], until: int, rang: list[Rang]) -> None:
    while heap and heap[0][0] <= until:
        at, key = heappop(heap)
        if live.get(key) == at:
            del live[key]
            rang.append((at, key))
