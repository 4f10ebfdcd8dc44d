"""Ways to run a flow: sizes, parallelism, checkpoints, crashes, and a continuation with another parallelism."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import aflow as af
from aflow.testing import At, Crash, Pause, ScriptedSource, VirtualClock, virtual_time
from aflow.testing.scripted_source import Line
from tests.fuzz.functions import Stamped
from tests.fuzz.keyed import Rows
from tests.fuzz.oracles import Rec, Row
from tests.gradual import gradual_captures
from tests.runtime.checkpoints.ledger_sink import LedgerSink

Stamp: TypeAlias = tuple[Row, int | None]
"""A result with its timestamp."""

Build: TypeAlias = Callable[[af.Flow], Mapping[str, Rows]]
"""Adds the steps to a flow, and returns the streams to read by name."""

Barriers: TypeAlias = af.checkpoints.Aligned | af.checkpoints.Unaligned


#: Seconds of virtual time after which a job hangs: a checkpoint expires after ten minutes.
_LONGEST: Final = 300.0


class Checkpoints(Enum):
    """Barriers of the checkpoints of a job."""

    NONE = "none"
    ALIGNED = "aligned"
    TIMED = "aligned, for 2 ms"
    UNALIGNED = "unaligned"

    @property
    def barriers(self) -> Barriers:
        if self is Checkpoints.UNALIGNED:
            return af.checkpoints.Unaligned()
        timeout = timedelta(milliseconds=2) if self is Checkpoints.TIMED else None
        return af.checkpoints.Aligned(timeout=timeout)

    @property
    def overtakes(self) -> bool:
        return self in {Checkpoints.TIMED, Checkpoints.UNALIGNED}


class Interruption(Enum):
    """The end of the first job of two."""

    CANCEL = "cancel"
    SAVEPOINT = "savepoint"
    STOP = "stop"


@dataclass(frozen=True)
class Next:
    """A second job, that continues after ``after`` ms with another parallelism."""

    after: int
    parallelism: int
    how: Interruption


@dataclass(frozen=True)
class Disk:
    """State on disk, of which so many keys are in memory."""

    engine: af.backends.DiskEngine
    resident: int


@dataclass(frozen=True)
class Running:
    """The settings of a run."""

    parallelism: int = 1
    batch: int = 1024
    channel: int = 1024
    chaining: bool = True
    disk: Disk | None = None
    gradual: bool = False
    """Collect each complete capture key by key."""
    checkpoints: Checkpoints = Checkpoints.NONE
    incremental: bool = True
    next: Next | None = None
    sink_delay: int = 0
    """Milliseconds for each batch."""
    seed: int = 0
    """Of the order of tasks on the loop."""

    @property
    def rescales(self) -> bool:
        return self.next is not None and self.next.parallelism != self.parallelism

    @property
    def moves_records_in_flight(self) -> bool:
        """True if a job with another parallelism continues from records in flight."""
        return (
            self.rescales
            and self.checkpoints.overtakes
            and self.next is not None
            and self.next.how is Interruption.CANCEL
        )

    def results(self, build: Build) -> dict[str, list[Stamp]]:
        """Run the flow to its end, and return the results that its sinks show, in the order of their checkpoints."""

        async def limited(folder: Path) -> dict[str, list[Stamp]]:
            async with asyncio.timeout(_LONGEST):
                return await self._run(build, folder)

        captures = gradual_captures() if self.gradual else nullcontext()
        with TemporaryDirectory(prefix="fuzz") as folder, captures:
            return virtual_time.run(lambda: limited(Path(folder)), seed=self.seed)

    async def _run(self, build: Build, folder: Path) -> dict[str, list[Stamp]]:
        ledgers: dict[str, LedgerSink[Stamp]] = {}

        def flow() -> af.Flow:
            made = af.Flow("fuzzed")
            for name, rows in build(made).items():
                ledger = ledgers.setdefault(name, LedgerSink(delay=self.sink_delay / 1000))
                rows.process(Stamped(), name=f"stamp {name}").to(ledger, name=f"out {name}")
            return made

        if self.checkpoints is Checkpoints.NONE:
            collected: dict[str, af.CollectSink[Stamp]] = {}
            plain = af.Flow("fuzzed")
            for name, rows in build(plain).items():
                collected[name] = af.CollectSink()
                rows.process(Stamped(), name=f"stamp {name}").to(collected[name])
            await plain.run(parallelism=self.parallelism, options=self._options(folder))
            return {name: sink.values for name, sink in collected.items()}
        restore = "latest"
        if self.next is not None:
            restore = await self._begin(flow(), folder, self.next)
        parallelism = self.parallelism if self.next is None else self.next.parallelism
        async with self._start(flow(), folder, parallelism, restore=restore) as job:
            await job.wait()
        return {name: ledger.values for name, ledger in ledgers.items()}

    async def _begin(self, flow: af.Flow, folder: Path, following: Next) -> str:
        """Run the first job, and return where the second one continues."""
        savepoint = folder / "savepoint"
        periodic = following.how is not Interruption.SAVEPOINT
        job = self._start(flow, folder, self.parallelism, periodic=periodic)
        async with job:
            await asyncio.sleep(following.after / 1000)
            with suppress(af.CheckpointError, af.JobStopped):  # it may end before
                if following.how is Interruption.SAVEPOINT:
                    await job.savepoint(savepoint)
            if following.how is Interruption.STOP:
                # A job that fails while it stops is not restarted.
                with suppress(af.errors.SourceError):
                    await job.stop()
            else:
                await job.cancel()
        return str(savepoint) if savepoint.exists() else "latest"

    def _start(
        self,
        flow: af.Flow,
        folder: Path,
        parallelism: int,
        *,
        restore: str = "latest",
        periodic: bool = True,
    ) -> af.Job:
        return flow.start(
            parallelism=parallelism,
            options=self._options(folder),
            checkpointing=af.Checkpointing(
                every=timedelta(milliseconds=15) if periodic else None,
                storage=folder / "checkpoints",
                barriers=self.checkpoints.barriers,
                incremental=self.incremental,
            ),
            restart=af.restart.FixedDelay(50, delay=timedelta(0)),
            restore=restore,
        )

    def _options(self, folder: Path) -> af.Options:
        state: af.backends.InMemory | af.backends.OnDisk = af.backends.InMemory()
        if self.disk is not None:
            state = af.backends.OnDisk(self.disk.engine, resident=self.disk.resident, folder=folder)
        return af.Options(
            clock=VirtualClock(),
            random=Random(self.seed).random,
            batch_records=self.batch,
            channel_records=self.channel,
            chaining=self.chaining,
            state=state,
        )


@dataclass(frozen=True)
class Input:
    """The records of a source, by split, with their timestamps. Some splits crash once, after so many records."""

    splits: tuple[tuple[tuple[Rec, int], ...], ...]
    delay: int
    crashes: tuple[int, ...] = ()
    every: int = 3
    """Records between two pauses."""
    pause: int = 4
    """Milliseconds."""

    def source(self, *, crashing: bool) -> ScriptedSource[Rec]:
        return ScriptedSource.of_splits(
            {
                f"split {number}": self._script(records, self._crash(number) if crashing else None)
                for number, records in enumerate(self.splits)
            }
        )

    def _crash(self, split: int) -> int | None:
        return self.crashes[split] if split < len(self.crashes) else None

    def _script(self, records: Sequence[tuple[Rec, int]], crash: int | None) -> Sequence[Line[Rec]]:
        lines: list[Line[Rec]] = []
        for place, (value, at) in enumerate(records):
            if place == crash:
                lines.append(Crash())
            lines.append(At(value, at))
            if place % self.every == self.every - 1:
                lines.append(Pause(timedelta(milliseconds=self.pause)))
        return lines
