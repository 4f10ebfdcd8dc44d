"""A flow over the past and its live job, without executors: the past is a job too, whose savepoint is rewritten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

import aflow as af
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragments import FragmentPlan
from aflow.backfill.savepoint import StatePart, encoded_part, write_savepoint
from aflow.model.key_groups import ranges
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.storage import Restored
from aflow.testing import (
    CollectSink,
    FlowDriver,
    FlowResult,
    Pause,
    ScriptedSource,
    VirtualClock,
    advance,
    run_flow,
)
from aflow.testing.virtual_time import run
from tests.runtime.checkpoints.ledger_sink import LedgerSink

#: ms by which records may be older than those before them.
DELAY = 20

MARKER = "marker"

SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Reading:
    """Record of these flows."""

    key: str
    at: int
    number: int = 0


Ends = Sequence[af.Source[Reading]]
"""The left source, and the right one."""

Build = Callable[[Ends, af.Sink[str]], af.Flow]


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


def seen(sink: LedgerSink[str]) -> list[str]:
    """Results in a fixed order: subtasks differ in speed."""
    return sorted(sink.values)


@dataclass
class HandOver:
    """``build`` over ``readings`` of a left and a right source: as one job, and as two parts that meet at T."""

    build: Build
    readings: tuple[list[Reading], list[Reading]]
    until: int
    folder: Path
    delay: int = DELAY
    """The ``max_delay`` of the flow, in ms."""
    before: int = 1
    """Distance (ms) of the last watermark of the past from T."""
    source: Callable[[list[Reading]], af.Source[Reading]] = lambda readings: ScriptedSource(
        *readings
    )
    """Source of one job, and of the live one."""
    past: LedgerSink[str] = field(default_factory=LedgerSink[str])
    live: LedgerSink[str] = field(default_factory=LedgerSink[str])

    legs: int = 0
    """Number of stops of the live job."""

    @property
    def savepoint(self) -> Path:
        return self.folder / "left"

    @property
    def together(self) -> list[str]:
        """Results of the past and of the live job."""
        return sorted(seen(self.past) + seen(self.live))

    def uninterrupted(self) -> list[str]:
        """Results of one job over everything."""
        sink = CollectSink[str]()
        run_flow(self.build([ScriptedSource(*some) for some in self.readings], sink))
        return sorted(sink.values)

    def compute_past(self, *, parallelism: int = 1, subtasks: int = 3) -> None:
        """Write the savepoint from which the live job starts, as ``subtasks`` of each step would leave it."""
        flow = self.build([self._before(readings) for readings in self.readings], self.past)

        async def job() -> Restored:
            async with flow.start(
                parallelism=parallelism,
                options=af.Options(clock=VirtualClock()),
                checkpointing=af.Checkpointing(every=None, storage=self.folder / "past"),
            ) as job:
                await advance(2 * SECOND)
                at = {
                    step.watermark for step in job.metrics().steps.values() if "times" in step.name
                }
                assert at == {self.until - self.before}
                await job.stop(drain=False, savepoint=self.folder / "stopped")
            return await read_checkpoint(self.folder / "stopped")

        restored = run(job)
        plan = plan_fragments(flow.graph)
        parts = left_parts(plan, restored, subtasks)
        write_savepoint(self.savepoint, plan, parts, until=self.until, created_at=0)

    def go_live(
        self,
        parallelism: int = 1,
        *,
        every: timedelta | None = None,
        restart: af.restart.FixedDelay | None = None,
    ) -> FlowResult:
        """Run the live job from the last savepoint to its end, with fresh sources of all records."""
        return run_flow(
            self.build(self._all(), self.live),
            parallelism=parallelism,
            checkpointing=af.Checkpointing(every=every, storage=self.folder / "live"),
            restart=restart,
            restore=self._begins_from(),
        )

    def go_live_until_a_pause(self, parallelism: int) -> None:
        """Run the live job from the last savepoint over the pause there, if there is one, and up to the next one."""
        flow = self.build(self._all(), self.live)
        pause = timedelta(days=1 if self.legs else 0, seconds=1)

        async def job() -> None:
            async with FlowDriver(
                flow,
                parallelism=parallelism,
                checkpointing=af.Checkpointing(every=None, storage=self.folder / "live"),
                restore=self._begins_from(),
            ) as driver:
                await driver.advance(pause)
                self.legs += 1
                await driver.job.stop(drain=False, savepoint=self._begins_from())

        run(job)

    def _begins_from(self) -> Path:
        return self.folder / f"stopped {self.legs}" if self.legs else self.savepoint

    def _all(self) -> Ends:
        return [self.source(readings) for readings in self.readings]

    def _before(self, readings: list[Reading]) -> af.Source[Reading]:
        past = sorted((one for one in readings if one.at < self.until), key=lambda one: one.at)
        marker = Reading(MARKER, self.until - self.before + self.delay + 1)
        # The marker waits for the records of the other source, with which it may be mixed.
        return ScriptedSource(*past, Pause(SECOND), marker, Pause(timedelta(days=100)))


def left_parts(plan: FragmentPlan, restored: Restored, subtasks: int) -> Iterable[StatePart]:
    """State of all keyed steps, divided among ``subtasks``."""
    for fragment in plan.fragments:
        if fragment.keyed:
            name = fragment.head.name
            for subtask, groups in enumerate(ranges(plan.key_groups, subtasks)):
                state = restored.states[name].restricted_to(groups)
                yield StatePart(fragment, subtask, subtasks, encoded_part({name: state}))


def contents(path: Path | str) -> Restored:
    return asyncio.run(read_checkpoint(path))
