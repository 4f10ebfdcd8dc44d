"""A program with a source that gives watermarks and idleness of its splits, until it is killed.

Split ``busy`` has records that are late, and records that would be without its watermarks. Split ``quiet`` is idle from
its start to the end of the other: if that were forgotten, event time would not advance, and no record would be late.
The program prints a line for each checkpoint. It ends only if the file ``go`` exists in its folder.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random

import aflow as af
from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow_connectors.files import JsonLinesSink

RECORDS = 600


class MarkedSource(Source[int]):
    """Numbers with themselves as timestamps (ms)."""

    emits_watermarks = True
    concurrency = None
    max_parallelism = 1

    def __init__(self, pause: float, may_end: Path) -> None:
        """``pause`` is the time before each chunk (s). The source ends when the file ``may_end`` exists."""
        self.pause = pause
        self.may_end = may_end
        self.ended = asyncio.Event()

    async def splits(self) -> Sequence[Split]:
        return [Split("quiet"), Split("busy")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        start = position if isinstance(position, int) else 0
        return QuietReader(self, start) if split.id == "quiet" else BusyReader(self, start)


class QuietReader(Reader[int]):
    def __init__(self, source: MarkedSource, start: int) -> None:
        self._source = source
        self._start = start

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._start == 0:
            self._start = 1
            return Chunk([], 1, [], watermark=0, idle=True)
        await self._source.ended.wait()
        return None


class BusyReader(Reader[int]):
    def __init__(self, source: MarkedSource, start: int) -> None:
        self._source = source
        self._next = start
        random = Random(5)
        self._numbers = [max(n + random.randint(-60, 10), 1) for n in range(RECORDS)]

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._next >= RECORDS:
            while not self._source.may_end.exists():  # noqa: ASYNC110 - another process creates it
                await asyncio.sleep(0.01)
            self._source.ended.set()
            return None
        await asyncio.sleep(self._source.pause)
        # A watermark after each ten records; chunks end there for any limit.
        start, end = self._next, min(self._next + limit, self._next // 10 * 10 + 10, RECORDS)
        self._next = end
        numbers = self._numbers[start:end]
        return Chunk(numbers, end, numbers, watermark=end if end % 10 == 0 else None)


class Timed(af.KeyedProcess[int, int, list[object]]):
    """Emit the watermark that each record meets, and timers."""

    def process(self, value: int, ctx: af.Context[int]) -> list[list[object]]:
        ctx.set_event_timer(value + 7)
        return [["record", value, ctx.watermark]]

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[list[object]]:
        return [["timer", ctx.key, at]]


def flow_into(folder: Path, pause: float) -> af.Flow:
    """Write windows, late records, and records with the watermarks that they meet to files in ``folder``."""
    flow = af.Flow("marked")
    timed = flow.source(MarkedSource(pause, folder / "go"), name="numbers").event_time(
        source_watermarks=True, name="time"
    )
    windows = timed.key_by(lambda n: n % 3, name="thirds").window(
        af.Tumbling(timedelta(milliseconds=20))
    )
    counted = windows.fold(int, lambda total, n: total + n, name="sums")
    rows = counted.map(lambda one: [one.key, one.window.start, one.value], name="row")
    rows.to(JsonLinesSink(folder / "windows"), name="windows")
    counted.late.to(JsonLinesSink(folder / "late"), name="late")
    met = timed.key_by(lambda n: n % 2, name="halves").process(Timed(), name="timed")
    met.to(JsonLinesSink(folder / "met"), name="met")
    return flow


def main(folder: Path, parallelism: int, pause: float) -> None:
    def tell(event: af.JobEvent) -> None:
        print(json.dumps(type(event).__name__), flush=True)

    async def run() -> None:
        settings = af.Checkpointing(
            storage=folder / "checkpoints", every=timedelta(milliseconds=10)
        )
        flow = flow_into(folder, pause)
        await flow.run(parallelism=parallelism, checkpointing=settings, on_event=tell)

    asyncio.run(run())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
