"""The parent of Spark's Python workers, ``spark.python.daemon.module``, which imports aflow before it forks.

Its workers apply the faults that ``faults`` has planned for their attempts, so a kill is exactly at its point.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

import pyspark.daemon

# Imported here, so that workers need not.
import pyspark.worker  # pyright: ignore[reportUnusedImport]

import bench.crash.stream.pipeline  # noqa: F401 # pyright: ignore[reportUnusedImport]
from aflow.backfill.task_state import TaskState
from aflow_connectors.spark.backfill.executor_files import ResultFiles
from aflow_connectors.spark.backfill.fragment_task import FragmentTask, execute
from aflow_connectors.spark.stream import epoch_task
from bench.crash.stream.faults import (
    REPEATED,
    Fault,
    PlannedFault,
    Point,
    faults_of,
    record,
    running_mark,
    strikes_at,
)


class FaultyAttempt:
    """The attempt at a task that this process runs; a context manager."""

    def __init__(self, folder: Path, name: str, planned: PlannedFault | None) -> None:
        self._folder = folder
        self._name = name
        self._planned = planned
        self._timer: Timer | None = None
        self._mark = running_mark(folder, os.getpid())

    def __enter__(self) -> FaultyAttempt:
        self._mark.touch()
        planned = self._planned
        if planned is not None and planned.point is Point.TIME and planned.fault.is_kill:
            self._timer = Timer(planned.seconds, self._strike, [planned])
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._mark.unlink(missing_ok=True)

    def reach(self, point: Point) -> None:
        """Apply the fault, if it is that of ``point``."""
        planned = self._planned
        if planned is not None and planned.point is point:
            self._planned = None
            self._strike(planned)

    def watched(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield ``batches``; the first one is the point ``INPUT``."""
        for batch in batches:
            yield batch
            self.reach(Point.INPUT)

    def _strike(self, planned: PlannedFault) -> None:
        record(self._folder, f"{planned.fault.name}-{planned.point.name}", self._name)
        match planned.fault:
            case Fault.WORKER:
                os.kill(os.getpid(), signal.SIGKILL)
            case Fault.DAEMON:
                _kill(_daemon())
            case Fault.EXECUTOR:
                _kill(_executor(_daemon()))
                time.sleep(planned.seconds)
            case Fault.ORPHANED:
                daemon = _daemon()
                executor = _executor(daemon)
                _kill(daemon)  # which would end its workers
                _kill(executor)
                time.sleep(planned.seconds)
            case Fault.DELAY:
                time.sleep(planned.seconds)


def _daemon() -> int | None:
    """Return the parent of this worker; None if it has ended."""
    return _if_runs(os.getppid(), "faulty_worker")


def _executor(daemon: int | None) -> int | None:
    """Return the executor that has started ``daemon``; None if it has ended, or is the JVM of the driver."""
    if daemon is None:
        return None
    stat = Path("/proc", str(daemon), "stat").read_text()
    return _if_runs(int(stat.rpartition(")")[2].split()[1]), "CoarseGrainedExecutorBackend")


def _if_runs(process: int, program: str) -> int | None:
    """Return ``process`` if its command has ``program``, else None: the parent of an orphan is another one."""
    with suppress(OSError):
        if process > 1 and program in Path("/proc", str(process), "cmdline").read_text():
            return process
    return None


def _kill(process: int | None) -> None:
    if process is not None:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


#: The attempt that runs: a worker runs one task after the other.
_attempts: list[FaultyAttempt] = []


def _reach(point: Point) -> None:
    for attempt in _attempts:
        attempt.reach(point)


def faulty_execute(
    task: FragmentTask, number: int, batches: Iterator[Any], **named: Any
) -> Iterator[Any]:
    """Run a fragment as ``execute`` does, with the fault of this attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    epoch = task.epoch
    assert context is not None
    assert epoch is not None
    folder = epoch.folder.parent
    faults = faults_of(folder)
    if faults is None:
        yield from execute(task, number, batches, **named)
        return
    place = "-".join(map(str, (epoch.number, task.fragment.index, number)))
    struck = strikes_at(folder, place)
    name = f"{place} {context.taskAttemptId()}"
    if context.attemptNumber() or struck:
        record(folder, REPEATED, name)
    with FaultyAttempt(folder, name, faults.planned(place, struck)) as running:
        _attempts.append(running)
        try:
            running.reach(Point.START)
            yield from execute(task, number, running.watched(batches), **named)
            running.reach(Point.REPORT)
        finally:
            _attempts.remove(running)


def _install() -> None:
    """Replace what tasks call, before they are forked."""
    untyped: Any = epoch_task
    untyped.execute = faulty_execute
    finish, write = ResultFiles.finish, TaskState.write

    def finished(files: ResultFiles) -> dict[int, str]:
        names = finish(files)
        _reach(Point.RESULTS)
        return names

    def written(state: TaskState, captured: Any) -> Any:
        part = write(state, captured)
        _reach(Point.STATE)
        return part

    setattr(ResultFiles, "finish", finished)  # noqa: B010 - a method is no variable for type checkers
    setattr(TaskState, "write", written)  # noqa: B010


if __name__ == "__main__":
    # Before ``pyspark.daemon`` forks: a worker inherits what is replaced.
    _install()
    pyspark.daemon.manager()
