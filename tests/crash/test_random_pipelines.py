"""Random pipelines of jobs that end at random times emit each result exactly once.

``test_in_process`` has one pipeline; this has many: branches of every kind of step, and in each start other
barriers, batches, channels, chaining, parallelism, state backend; ended by cancelling, stopping or a crash of a source.
The results of each branch depend on nothing but the records, so that they can be compared with those of a run in peace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from math import ceil
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

import aflow as af
from aflow.connect import Sink
from aflow.testing import At, Crash, Pause, ScriptedSource, VirtualClock, virtual_time
from aflow.testing.scripted_source import Line
from tests.crash.branches import (
    BRANCHES,
    BY_WATERMARK,
    DELAY,
    EVENTS,
    MARKS,
    NEVER_LATE,
    SPLITS,
    Branch,
    Event,
    Mark,
    Row,
    as_they_are,
    controlled,
    millis,
    panes,
)
from tests.gradual import gradual_captures
from tests.runtime.checkpoints.ledger_sink import LedgerSink

pytestmark = pytest.mark.usefixtures("inline_threads")


@dataclass(frozen=True, slots=True)
class Case:
    """The constant part of all starts of a seed."""

    branches: tuple[Branch, ...]
    one_sink: bool
    delays: tuple[float, ...]
    splits: int
    """Splits of the events: ``SPLITS``, or one, so that other subtasks have none."""
    uneven: bool
    """True if steps are held up for some rows, so that watermarks of subtasks differ."""
    crashes: int
    """Says where sources crash, at the same places in each start: positions count them."""

    @staticmethod
    def drawn(random: Random) -> Case:
        return Case.of(random, random.sample(BRANCHES, random.randint(1, 4)))

    @staticmethod
    def of(random: Random, some: Sequence[Branch], *, uneven: bool = False) -> Case:
        branches = (as_they_are, *some)
        delays = tuple(random.choice([0.0, 0.0005, 0.002]) for _ in branches)
        splits = random.choice([1, SPLITS])
        one_sink, crashes = random.random() < 0.3, random.getrandbits(32)
        return Case(branches, one_sink, delays, splits, uneven, crashes)

    def flow(
        self, sinks: Sequence[Sink[Row]], *, crashing: bool, max_delay: timedelta = DELAY
    ) -> af.Flow:
        """The pipeline; if ``crashing``, some of its splits do so once."""
        random = Random(self.crashes) if crashing else None
        flow = af.Flow("random")
        events = flow.source(_source(Event, EVENTS, self.splits, 10, random), name="events")
        marks = flow.source(_source(Mark, MARKS, 2, 20, random), name="marks")
        timed = events.event_time(max_delay=max_delay), marks.event_time(max_delay=max_delay)
        streams = [branch(*timed) for branch in self.branches]
        if self.uneven and crashing:
            streams = [
                stream.map_async(held_up, name=f"{branch.__name__} held up", capacity=1)
                for branch, stream in zip(self.branches, streams, strict=True)
            ]
        if self.one_sink:
            streams[0].union(*streams[1:]).rebalance().to(sinks[0], name="out")
            return flow
        for branch, stream, sink in zip(self.branches, streams, sinks, strict=True):
            stream.to(sink, name=f"out of {branch.__name__}")
        return flow


def _source(
    make: Callable[[int], Any], count: int, splits: int, apart: int, random: Random | None
) -> ScriptedSource[Any]:
    scripts: dict[str, list[Line[Any]]] = {}
    for split in range(splits):
        script: list[Line[Any]] = []
        for place, n in enumerate(range(split, count, splits)):
            script.append(At(make(n), n * apart))
            if place % 5 == 4:
                script.append(Pause(millis(8)))
        if random is not None and random.random() < 0.3:
            script.insert(random.randrange(1, len(script)), Crash())
        scripts[f"{make.__name__} {split}"] = script
    return ScriptedSource.of_splits(scripts)


def options(random: Random, folder: Path) -> af.Options:
    """Any."""
    disk = af.backends.OnDisk(
        engine=af.backends.DiskEngine.SQLITE, folder=folder, resident=random.choice([1, 4, 99])
    )
    return af.Options(
        clock=VirtualClock(),
        random=random.random,
        batch_records=random.choice([1, 7, 64, 1024]),
        channel_records=random.choice([1, 8, 64, 1024]),
        chaining=random.random() < 0.7,
        state=disk if random.random() < 0.25 else af.backends.InMemory(),
    )


def checkpointing(
    random: Random, folder: Path, barriers: af.checkpoints.Aligned | af.checkpoints.Unaligned
) -> af.Checkpointing:
    """Any, often."""
    return af.Checkpointing(
        every=millis(random.choice([10, 25, 60])),
        storage=folder,
        barriers=barriers,
        min_pause=millis(random.choice([0, 0, 5])),
        max_concurrent=random.choice([1, 1, 3]),
        keep=random.choice([1, 2]),
        incremental=random.random() < 0.7,
    )


def barriers(random: Random) -> af.checkpoints.Aligned | af.checkpoints.Unaligned:
    """Any."""
    if random.random() < 1 / 3:
        return af.checkpoints.Unaligned()
    return af.checkpoints.Aligned(timeout=random.choice([None, millis(0), millis(2)]))


async def held_up(row: Row) -> Row:
    """Take longer for some rows, so that the watermarks of some subtasks are behind those of others."""
    await asyncio.sleep(0.01 if crc32(repr(row[1:3]).encode()) % 3 == 0 else 0)
    return row


def uneven(random: Random, folder: Path) -> af.Options:
    """Any with which subtasks have different watermarks: barriers overtake records that wait in short channels."""
    return replace(
        options(random, folder),
        batch_records=random.choice([1, 3]),
        channel_records=64,
        chaining=True,
    )


async def attempt(
    case: Case,
    random: Random,
    sinks: Sequence[LedgerSink[Row]],
    folder: Path,
    *,
    last: bool,
    fixed: int,
    clock: Callable[[], VirtualClock] = VirtualClock,
) -> None:
    """One start: until the end, or until it is cancelled, stopped, or has crashed too often."""
    chosen = af.checkpoints.Unaligned() if case.uneven else barriers(random)
    # Records of a broadcast that are in flight cannot be shared out anew.
    parallelism = fixed if controlled in case.branches else random.randint(1, 4)
    chosen_options = uneven(random, folder) if case.uneven else options(random, folder)
    chosen_options = replace(chosen_options, clock=clock())
    # Downstream of a channel there are no splits, and full steps delay some subtasks only.
    max_delay = DELAY if chosen_options.chaining else NEVER_LATE
    job = case.flow(sinks, crashing=True, max_delay=max_delay).start(
        parallelism=parallelism,
        options=chosen_options,
        checkpointing=checkpointing(random, folder / "checkpoints", chosen),
        restart=af.restart.FixedDelay(50, delay=millis(random.choice([0, 5]))),
    )
    async with job:
        if last:
            await job.wait()
            return
        await asyncio.sleep(random.randrange(5, 90) / 1000)
        if random.random() < 0.2:
            with suppress(af.CheckpointError, af.JobStopped):  # it may fail, or end before
                await job.savepoint(folder / f"savepoint {random.random()}")
        for _ in range(random.randrange(50)):
            await asyncio.sleep(0)
        if random.random() < 0.25:
            with suppress(
                af.errors.SourceError
            ):  # a job that is being stopped is not started again
                await job.stop()
        else:
            await job.cancel()


def found(sinks: Iterable[LedgerSink[Row]]) -> list[Row]:
    return sorted((row for sink in sinks for row in sink.values), key=repr)


def expected(case: Case) -> list[Row]:
    async def main() -> list[Row]:
        sinks = [af.CollectSink[Row]() for _ in case.branches]
        await case.flow(sinks, crashing=False).run(options=af.Options(clock=VirtualClock()))
        return sorted((row for sink in sinks for row in sink.values), key=repr)

    return virtual_time.run(main)


#: Branches of a pipeline that are in it together.
_TOGETHER = 3

#: A random order of all branches. Each of them is in a pipeline, whatever the seed.
_SHUFFLED = Random(1).sample(BRANCHES, len(BRANCHES))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ceil(len(BRANCHES) / _TOGETHER)))
def test_each_result_is_emitted_once_for_any_steps_and_any_ends_of_jobs(
    seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    case = Case.of(random, _SHUFFLED[seed * _TOGETHER :][:_TOGETHER])
    sinks = [LedgerSink[Row](delay=delay) for delay in case.delays]
    fixed, starts = random.randint(1, 3), random.randint(2, 7)

    async def main() -> None:
        for number in range(starts):
            last = number == starts - 1
            await attempt(case, random, sinks, tmp_path, last=last, fixed=fixed)

    with gradual_captures() if seed % 2 else nullcontext():
        virtual_time.run(main, seed=seed)

    assert found(sinks) == expected(case)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_steps_restored_from_subtasks_with_different_watermarks_give_each_result_once(
    seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    some = random.sample([one for one in BY_WATERMARK if one is not panes], 2)
    case = Case.of(random, [panes, *some], uneven=True)
    sinks = [LedgerSink[Row](delay=delay) for delay in case.delays]

    async def main() -> None:
        for number in range(5):
            await attempt(case, random, sinks, tmp_path, last=number == 4, fixed=2)

    virtual_time.run(main, seed=seed)

    assert found(sinks) == expected(case)
