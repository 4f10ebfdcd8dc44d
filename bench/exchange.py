"""``exchange``: two subtasks send each record to the owner of its key, one of two subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import aflow as af
from aflow.connect import Chunk, Position, Reader, Source, Split
from bench.events import Event, make_events
from bench.harness import Measurement, compare, run_async

SUBTASKS = 2
KEY_GROUPS = 128


class Halves(Source[Event]):
    """Events in two splits, one for each subtask."""

    def __init__(self, events: list[Event]) -> None:
        middle = len(events) // 2
        self._parts = {"first": events[:middle], "second": events[middle:]}

    async def splits(self) -> Sequence[Split]:
        return [Split(name) for name in self._parts]

    async def reader(self, split: Split, position: Position | None) -> Reader[Event]:
        return _ListReader(self._parts[split.id])


class _ListReader(Reader[Event]):
    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._at = 0

    async def read(self, limit: int) -> Chunk[Event] | None:
        some = self._events[self._at : self._at + limit]
        self._at += len(some)
        return Chunk(some, self._at) if some else None


def measure(records: int, rounds: int) -> Measurement:
    """Measure against lists partitioned by hand with a cached crc32, and a dict of counts for each partition."""
    events = make_events(records)
    source = Halves(events)

    def ours() -> list[int]:
        flow, counts = af.Flow("exchange"), af.CollectSink[int]()
        keyed = flow.source(source).key_by(lambda e: e["key"])
        keyed.fold(int, lambda count, _: count + 1, name="count").to(counts)
        run_async(flow.run(parallelism=SUBTASKS))
        return counts.values

    def by_hand() -> list[int]:
        return _count_by_hand([events[: records // 2], events[records // 2 :]])

    return compare(
        "exchange", records, ours, by_hand, at_least=0.65, rounds=rounds, canonical=sorted
    )


def _count_by_hand(parts: list[list[Event]], batch: int = 1024) -> list[int]:
    owners: dict[str, int] = {}
    counts: list[dict[str, int]] = [{} for _ in range(SUBTASKS)]
    results: list[int] = []
    for part in parts:
        for start in range(0, len(part), batch):
            outputs: list[list[Event]] = [[] for _ in range(SUBTASKS)]
            for event in part[start : start + batch]:
                key = event["key"]
                owner = owners.get(key)
                if owner is None:
                    owner = crc32(key.encode()) % KEY_GROUPS * SUBTASKS // KEY_GROUPS
                    owners[key] = owner
                outputs[owner].append(event)
            for count, output in zip(counts, outputs, strict=True):
                for event in output:
                    key = event["key"]
                    seen = count.get(key, 0) + 1
                    count[key] = seen
                    results.append(seen)
    return results
