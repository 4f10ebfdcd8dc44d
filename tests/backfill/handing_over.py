"""A flow over the past and its live job, without executors: the past is a job as well, whose savepoint is rewritten.

The job of the past gets the records before T, and behind them a *marker* from beyond T that moves the watermark to
T - 1 (or T - 2) and that the flow's own filter takes out again. Of what it stores, positions of sources and watermarks
of splits are left behind, as they would be by a backfill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

import aflow as af
from aflow.backfill.cutting import cut
from aflow.backfill.fragments import FragmentPlan
from aflow.backfill.savepoint import LeftPart, encoded_part, write_savepoint
from aflow.model.key_groups import ranges
from aflow.runtime.checkpoints.directory_reading import read_checkpoint
from aflow.runtime.checkpoints.storage import Restored
from aflow.testing import (
    CollectSink,
    Outcome,
    Pause,
    ScriptedSource,
    VirtualClock,
    run_flow,
    settle,
)
from aflow.testing.virtual_time import run

#: ms by which records may be older than those before them.
DELAY = 20

MARKER = "marker"


@dataclass(frozen=True)
class Reading:
    """What the flows of these tests are about."""

    key: str
    at: int
    number: int = 0


Ends = Sequence[af.Source[Reading]]
"""The left source, and the right one."""

Build = Callable[[Ends, af.Sink[object]], af.Flow]


def stamped(flow: af.Flow, source: af.Source[Reading], name: str) -> af.Stream[Reading]:
    """The readings of a source with their times, without markers."""
    readings = flow.source(source, name=name).event_time(
        lambda reading: reading.at, max_delay=timedelta(milliseconds=DELAY), name=f"{name} times"
    )
    return readings.filter(lambda reading: reading.key != MARKER)


def some_readings(seed: int, *, times: Iterable[int], keys: str = "abc") -> list[Reading]:
    """One reading for each of ``times``, in an order in which none is late."""
    random = Random(seed)
    found = [Reading(random.choice(keys), at, random.randrange(100)) for at in times]
    return sorted(found, key=lambda reading: reading.at + random.randrange(DELAY))


def seen(sink: CollectSink[object]) -> list[str]:
    """What came out, in an order of its own: subtasks differ in speed."""
    return sorted(map(repr, sink.values))


@dataclass
class HandOver:
    """``build`` over ``readings`` of a left and a right source, once as one job, once in two parts that meet at T."""

    build: Build
    readings: tuple[list[Reading], list[Reading]]
    until: int
    folder: Path
    before: int = 1
    """How far the watermark of the past is before T in the end, in ms."""
    past: CollectSink[object] = field(default_factory=CollectSink[object])
    live: CollectSink[object] = field(default_factory=CollectSink[object])

    @property
    def savepoint(self) -> Path:
        return self.folder / "left"

    @property
    def together(self) -> list[str]:
        """What came out of the past and out of the live job."""
        return sorted(seen(self.past) + seen(self.live))

    def uninterrupted(self, parallelism: int = 1) -> list[str]:
        """What comes out of one job that sees everything."""
        sink = CollectSink[object]()
        run_flow(self.build(self._all(), sink), parallelism=parallelism)
        return seen(sink)

    def compute_past(self, *, parallelism: int = 1, subtasks: int = 3) -> None:
        """Write the savepoint that the live job begins from, as ``subtasks`` would have left it for each step."""
        flow = self.build([self._before(readings) for readings in self.readings], self.past)

        async def job() -> Restored:
            async with flow.start(
                parallelism=parallelism,
                options=af.Options(clock=VirtualClock()),
                checkpointing=af.Checkpointing(every=None, storage=self.folder / "past"),
            ) as job:
                await settle()
                at = {
                    step.watermark for step in job.metrics().steps.values() if "times" in step.name
                }
                assert at == {self.until - self.before}
                await job.stop(drain=False, savepoint=self.folder / "stopped")
            return await read_checkpoint(self.folder / "stopped")

        restored = run(job)
        plan = cut(flow.graph)
        parts = left_parts(plan, restored, subtasks)
        write_savepoint(self.savepoint, plan, parts, until=self.until, created_at=0)

    def go_live(self, parallelism: int = 1) -> Outcome:
        """Run the live job from the savepoint, with fresh sources that have everything."""
        return run_flow(
            self.build(self._all(), self.live),
            parallelism=parallelism,
            checkpointing=af.Checkpointing(every=None, storage=self.folder / "live"),
            restore=self.savepoint,
        )

    def _all(self) -> Ends:
        return [ScriptedSource(*readings) for readings in self.readings]

    def _before(self, readings: list[Reading]) -> af.Source[Reading]:
        past = sorted((one for one in readings if one.at < self.until), key=lambda one: one.at)
        marker = Reading(MARKER, self.until - self.before + DELAY + 1)
        return ScriptedSource(*past, marker, Pause(timedelta(days=100)))


def left_parts(plan: FragmentPlan, restored: Restored, subtasks: int) -> Iterable[LeftPart]:
    """The state of all steps that read by key, divided among ``subtasks``."""
    for fragment in plan.fragments:
        if fragment.keyed:
            name = fragment.head.name
            for subtask, groups in enumerate(ranges(plan.key_groups, subtasks)):
                state = restored.states[name].restricted_to(groups)
                yield LeftPart(fragment, subtask, subtasks, encoded_part({name: state}))


def contents(path: Path) -> Restored:
    return asyncio.run(read_checkpoint(path))
