"""Readers are told when all sinks have committed the results of their records, those of calls too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

import aflow as af
from aflow.connect import (
    Batch,
    Chunk,
    Committable,
    Position,
    Reader,
    Sink,
    Source,
    Split,
    Writer,
    WriterContext,
)
from aflow.testing.virtual_time import settle, virtual_time

pytestmark = pytest.mark.usefixtures("inline_threads")

Record: TypeAlias = tuple[str, int]
"""A split, and a number."""

ABSENT = 13
"""Numbers that are multiples of it have no result."""


class Numbers(Source[Record]):
    """Splits that each count by one from their offset; ``committed`` has the position of each notice, by split."""

    bounded = False

    def __init__(self, splits: int, delays: random.Random, *, ends_at: int | None = None) -> None:
        self.names = [str(number) for number in range(splits)]
        self.delays = delays
        self.ends_at = ends_at
        self.committed: dict[str, int] = dict.fromkeys(self.names, 0)
        self.visible: set[Record] = set()
        self.reached = asyncio.Event()

    async def splits(self) -> Sequence[Split]:
        return [Split(name) for name in self.names]

    async def reader(self, split: Split, position: Position | None) -> Reader[Record]:
        return NumberReader(self, split.id, position if isinstance(position, int) else 0)

    def check(self, split: str, position: int) -> None:
        expected = {(split, number) for number in range(position) if number % ABSENT}
        assert expected <= self.visible, (split, position, sorted(expected - self.visible)[:5])
        assert position >= self.committed[split]
        self.committed[split] = position
        if min(self.committed.values()) >= 60:
            self.reached.set()


class NumberReader(Reader[Record]):
    def __init__(self, source: Numbers, split: str, position: int) -> None:
        self.source = source
        self.split = split
        self.position = position

    async def read(self, limit: int) -> Chunk[Record] | None:
        if self.position == self.source.ends_at:
            return None
        await asyncio.sleep(self.source.delays.choice((0.1, 0.1, 0.8)))
        count = min(limit, self.source.delays.randint(1, 8))
        if self.source.ends_at is not None:
            count = min(count, self.source.ends_at - self.position)
        start, self.position = self.position, self.position + count
        return Chunk([(self.split, n) for n in range(start, self.position)], self.position)

    async def on_results_committed(self, position: Position) -> None:
        assert isinstance(position, int)
        self.source.check(self.split, position)


class Committing(Sink[Record]):
    """Output is visible when it is committed; writing and committing take random times."""

    def __init__(self, source: Numbers, delays: random.Random) -> None:
        self.source = source
        self.delays = delays

    async def writer(self, context: WriterContext) -> Writer[Record]:
        return CommittingWriter(self)


class CommittingWriter(Writer[Record]):
    def __init__(self, sink: Committing) -> None:
        self.sink = sink
        self.written: list[Record] = []
        self.prepared: dict[int, list[Record]] = {}

    async def write(self, batch: Batch[Record]) -> None:
        await asyncio.sleep(self.sink.delays.choice((*[0.0] * 20, 0.05, 1.5)))
        self.written += batch.values

    async def prepare(self, checkpoint: int) -> Committable | None:
        await asyncio.sleep(self.sink.delays.choice((0.0, 0.05)))
        self.prepared[checkpoint], self.written = self.written, []
        return checkpoint

    async def commit(self, committable: Committable) -> None:
        await asyncio.sleep(self.sink.delays.choice((0.0, 0.4)))
        assert isinstance(committable, int)
        self.sink.source.visible.update(self.prepared.pop(committable))


def flow_of(source: Numbers, seed: int) -> af.Flow:
    delays = random.Random(seed)

    async def call(record: Record) -> Record:
        await asyncio.sleep(delays.choice((0.001, 0.02, 0.02, 1.2)))
        return record

    flow = af.Flow("numbers")
    records = flow.source(source, name="numbers", parallelism=min(2, len(source.names)))
    called = records.map_async(call, ordered=seed % 2 == 0, capacity=40, name="first")
    kept = called.filter(lambda record: record[1] % ABSENT > 0, name="kept")
    if seed % 3:
        keyed = kept.key_by(lambda record: record[1] % 50, name="key")
        kept = keyed.map_async(call, capacity=40, name="second")
    kept.rebalance(2).to(Committing(source, delays), name="out")
    return flow


BARRIERS = [
    af.checkpoints.Aligned(),
    af.checkpoints.Aligned(timeout=timedelta(milliseconds=100)),
    af.checkpoints.Unaligned(),
]


@pytest.mark.parametrize("barriers", BARRIERS, ids=["aligned", "alternating", "unaligned"])
@pytest.mark.parametrize("seed", range(4))
@virtual_time
async def test_results_are_visible_in_all_sinks_when_a_reader_is_told_so(
    tmp_path: Path, seed: int, barriers: af.checkpoints.Aligned | af.checkpoints.Unaligned
) -> None:
    source = Numbers(1 + seed % 2, random.Random(seed))
    settings = af.Checkpointing(storage=tmp_path, every=timedelta(seconds=1), barriers=barriers)
    async with flow_of(source, seed).start(checkpointing=settings, parallelism=2) as job:
        async with asyncio.timeout(300):
            await source.reached.wait()
        await job.cancel()


@virtual_time
async def test_at_the_end_of_the_input_all_results_are_committed(tmp_path: Path) -> None:
    source = Numbers(2, random.Random(1), ends_at=50)
    settings = af.Checkpointing(storage=tmp_path, every=timedelta(seconds=1000))
    async with flow_of(source, 1).start(checkpointing=settings) as job:
        await job.wait()

    assert source.committed == {"0": 50, "1": 50}


@virtual_time
async def test_a_checkpoint_does_not_wait_for_calls_and_the_notice_does(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def call(record: Record) -> Record:
        await release.wait()
        return record

    source = Numbers(1, random.Random(1), ends_at=None)
    flow = af.Flow("numbers")
    flow.source(source, name="numbers").map_async(call, capacity=10_000, name="call").to(
        Committing(source, random.Random(1)), name="out"
    )
    settings = af.Checkpointing(storage=tmp_path, every=None)
    async with flow.start(checkpointing=settings) as job:
        await asyncio.sleep(1)
        for _ in range(3):
            await job.checkpoint()
            await settle()
            assert source.committed == {"0": 0}
        release.set()
        await asyncio.sleep(10)
        await job.checkpoint()
        await asyncio.sleep(10)
        assert source.committed["0"] > 0
        await job.cancel()
