"""A sink that collects results in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from aflow.connect import Committable, Sink, Writer, WriterContext
from aflow.errors import RestoreError, SinkError, shown
from aflow.model.batch import Batch
from aflow.model.time import Timestamp
from aflow.runtime.current_job import RunningJob, current_job

T = TypeVar("T")


class CollectSink(Sink[T], Generic[T]):
    """Keeps all values in memory: ``values``, and ``timestamps`` (epoch ms, or None) in the same order.

    Subtasks share the lists, so with a parallelism above one only the order within a subtask is that of the pipeline. A
    second job appends to the values of the first one. While a job with checkpoints writes to it, another job fails with
    a ``SinkError``, since a restart removes values.

    Values are visible at once. With checkpoints, a restart inside the process removes those that will be written again,
    so in the end each is there once. Raises ``SinkError`` if the lists were changed from outside meanwhile: they cannot
    be identified then. The lists do not outlive the process, so a job that continues from a checkpoint in another
    process starts with empty lists.
    """

    def __init__(self) -> None:
        self.values: list[T] = []
        self.timestamps: list[Timestamp | None] = []
        #: The writers of the values, from the first one on; recorded only by jobs with checkpoints.
        self._runs: list[_Run] = []
        #: The number of the running attempt of each step.
        self._attempts: dict[str, int] = {}
        #: Steps with a completed checkpoint: a job of theirs that starts from the beginning is another job.
        self._settled: set[str] = set()
        #: The jobs that write, and if they take checkpoints.
        self._jobs: WeakKeyDictionary[RunningJob, bool] = WeakKeyDictionary()

    async def writer(self, context: WriterContext) -> Writer[T]:
        self._refuse_second_job(context.name, checkpoints=context.checkpoints)
        if not context.checkpoints:
            return _CollectWriter(self)
        self._claim_the_rest()
        attempt = self._attempts.get(context.name, 0)
        return _CountingWriter(self, self._runs, self._settled, context, attempt)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Remove values after the restored checkpoint. Raises ``SinkError``, and ``RestoreError`` for other
        committables."""
        self._refuse_second_job(name, checkpoints=True)
        marks = [_Mark.of(one, name) for one in committables]
        newest = max((mark.attempt for mark in marks), default=0)
        if not marks and name in self._settled:
            self._let_go(name)
        counts: dict[int, int] = {}
        for mark in marks:
            if mark.attempt == newest:
                counts[mark.subtask] = max(mark.count, counts.get(mark.subtask, 0))
        self._take_back(name, newest, counts)
        self._attempts[name] = max(newest, self._attempts.get(name, 0)) + 1

    def _refuse_second_job(self, name: str, *, checkpoints: bool) -> None:
        """Raise ``SinkError`` while another job runs or waits for its restart, if one of the two takes checkpoints."""
        job = current_job()
        if job is None:
            return
        for other, takes_checkpoints in self._jobs.items():
            if other is not job and other.running and (checkpoints or takes_checkpoints):
                raise SinkError(
                    f"sink {name!r}: this CollectSink belongs to job {other.name!r}, which is running, and a restart "
                    f"of one job would remove values of the other; give each job a CollectSink of its own"
                )
        self._jobs[job] = checkpoints

    def _take_back(self, name: str, attempt: int, counts: dict[int, int]) -> None:
        """Keep values written before ``attempt``, and of that the first ``counts[subtask]`` values of each subtask."""
        left = dict(counts)
        keep: list[int] = []
        for run in self._runs:
            if run.step != name or run.attempt < attempt:
                keep.append(run.length)
            elif run.attempt > attempt:
                keep.append(0)
            else:
                keep.append(min(run.length, left.get(run.subtask, 0)))
                left[run.subtask] = left.get(run.subtask, 0) - keep[-1]
        if all(length == run.length for length, run in zip(keep, self._runs, strict=True)):
            return
        if sum(run.length for run in self._runs) != len(self.values):
            raise SinkError(
                f"sink {name!r}: the values of the CollectSink were changed from outside, so those that the job is "
                f"going to write again cannot be identified; copy the list, and change the copy"
            )
        self._cut(keep)

    def _cut(self, keep: list[int]) -> None:
        """Keep the given number of values of each run."""
        values: list[T] = []
        timestamps: list[Timestamp | None] = []
        start = 0
        for run, length in zip(self._runs, keep, strict=True):
            values += self.values[start : start + length]
            timestamps += self.timestamps[start : start + length]
            start += run.length
            run.length = length
        # In place: other references to the lists see the change.
        self.values[:], self.timestamps[:] = values, timestamps
        self._runs[:] = [run for run in self._runs if run.length]

    def _claim_the_rest(self) -> None:
        """Disown values of jobs without checkpoints, and of the user."""
        known = sum(run.length for run in self._runs)
        if known > len(self.values):
            self._runs.clear()
            known = 0
        if known < len(self.values):
            self._runs.append(_Run("", 0, 0, len(self.values) - known))

    def _let_go(self, name: str) -> None:
        """Disown the values of the preceding job, so that they are kept."""
        self._settled.discard(name)
        for run in self._runs:
            if run.step == name:
                run.step = ""


@dataclass(slots=True)
class _Run:
    """Consecutive values of one writer."""

    step: str
    attempt: int
    subtask: int
    length: int


@dataclass(frozen=True, slots=True)
class _Mark:
    """The number of values that a writer has written in its attempt."""

    attempt: int
    subtask: int
    count: int

    @classmethod
    def of(cls, committable: Committable, step: str) -> _Mark:
        match committable:
            case (int(attempt), int(subtask), int(count)):
                return cls(attempt, subtask, count)
            case _:
                pass
        raise RestoreError(
            f"sink {step!r}, a CollectSink, cannot continue from {shown(committable)}: the checkpoint was taken with "
            f"another kind of sink under this name"
        )


class _CollectWriter(Writer[T]):
    def __init__(self, sink: CollectSink[T]) -> None:
        self._values = sink.values
        self._timestamps = sink.timestamps

    def write(self, batch: Batch[T]) -> None:
        self._values.extend(batch.values)
        self._timestamps.extend(
            repeat(None, len(batch)) if batch.timestamps is None else batch.timestamps
        )


class _CountingWriter(_CollectWriter[T]):
    """Records which values are its own, and their number at each checkpoint."""

    def __init__(
        self,
        sink: CollectSink[T],
        runs: list[_Run],
        settled: set[str],
        context: WriterContext,
        attempt: int,
    ) -> None:
        super().__init__(sink)
        self._runs = runs
        self._settled = settled
        self._step = context.name
        self._subtask = context.subtask
        self._attempt = attempt
        self._count = 0

    def write(self, batch: Batch[T]) -> None:
        super().write(batch)
        self._count += len(batch)
        last = self._runs[-1] if self._runs else None
        mine = self._step, self._attempt, self._subtask
        if last is not None and (last.step, last.attempt, last.subtask) == mine:
            last.length += len(batch)
        else:
            self._runs.append(_Run(*mine, len(batch)))

    async def prepare(self, checkpoint: int) -> Committable:
        return self._attempt, self._subtask, self._count

    async def commit(self, committable: Committable) -> None:
        self._settled.add(self._step)
