"""The interfaces of connectors: sources and sinks for systems outside of the process.

A *source* is divided into *splits* (a file, a partition); each split is read by one *reader*, which returns *chunks*. A
chunk carries the position after its last record, as data: a checkpoint stores the position after the last emitted
record, never of records that were read ahead. A *sink* opens one *writer* for each subtask.

Life cycle and threading: all methods run on the event loop of the job. Blocking work belongs in a worker thread
(``anyio.to_thread.run_sync``). A reader runs in a coroutine of its own, apart from the task that processes its
chunks, and ``read`` is called again only after it has returned. ``close`` is called exactly once for each reader
and writer that was opened, also after a failure and when the job is cancelled. It is not cancelled with its job, except
at the limit of ``Job.cancel(close_within=…)`` and of the deadline of ``Job.stop``. Other methods of readers, writers
and sinks may be cancelled while they wait; a method that opens something closes it then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Generic, TypeVar

from aflow.errors import ConnectorError, SinkError, SourceError
from aflow.model.batch import Batch
from aflow.model.tags import Tag
from aflow.model.time import Instant

__all__ = [
    "BadRecord",
    "Batch",
    "Chunk",
    "Committable",
    "ConnectorError",
    "Delivery",
    "Position",
    "Reader",
    "Sink",
    "SinkError",
    "Source",
    "SourceError",
    "Split",
    "Tag",
    "Writer",
    "WriterContext",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

Committable = object
"""Output that a transactional writer has prepared, as plain data (strings, ints, tuples, lists, dicts …).

After a restore it is read from a file, which may have been changed. A sink checks that it names output of its own
before it commits or removes anything, and raises ``SinkError`` if not.
"""

Position = object
"""The point in a split at which to continue: plain data (ints, strings, tuples …) that only the source interprets."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that is read by one reader at a time. ``id`` is unique within the source and stable."""

    id: str


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Data of a source that is no valid record; it is emitted to the source's dead-letter stream."""

    place: str
    """Its location in the source, for messages: ``orders.jsonl.gz, line 17``."""
    reason: str
    raw: bytes
    """The data, at most the first 4,096 bytes."""


# Not slotted: on Python 3.11 Chunk[int](…) of a frozen, slotted generic raises.
@dataclass(frozen=True)
class Chunk(Generic[T_co]):
    """Records of one split, in order, and the position after the last of them.

    ``timestamps`` (epoch ms, one for each record) are set by sources whose records carry a time. ``rejected`` are
    records that could not be read; only a source with ``dead_letters`` has any. A chunk may have no records; its
    position still counts.

    ``watermark`` (epoch ms or an aware ``datetime``) says that all later records of this split have later timestamps;
    only a source with ``emits_watermarks`` has any. It applies after the records of the chunk, and to the steps
    ``event_time(source_watermarks=True)``. Within a reader it never goes back. ``idle`` says that this split has no
    records for now: it does not hold event time back until its next chunk with records, or with a watermark that is
    used.
    """

    values: Sequence[T_co]
    position: Position
    timestamps: Sequence[int] | None = None
    rejected: Sequence[BadRecord] = ()
    watermark: Instant | None = None
    idle: bool = False


class Reader(ABC, Generic[T_co]):
    """Reader of one split from a position onwards."""

    @abstractmethod
    async def read(self, limit: int) -> Chunk[T_co] | None:
        """Return the next records, at least one and at most ``limit``; None at the end of the split.

        Return available records without waiting to fill the chunk; wait only if there are none. Raises ``SourceError``
        if the split cannot be read. May be cancelled while it waits.
        """

    def leftover(self) -> Chunk[T_co] | None:
        """Return accepted records that ``read`` has not returned yet; called once, when the job is stopped.

        For readers that records are pushed to: accepted records must not be lost. None by default: a reader that
        fetches its records is opened at its position again.
        """
        return None

    async def on_checkpoint_completed(self, position: Position) -> None:
        """Acknowledge what is before ``position``, which a completed checkpoint has stored: it is not read again.

        For systems that keep records until they are acknowledged. Called in a coroutine of its own, in the order of the
        checkpoints, also after the last record was read. Checkpoints may be left out, since a later one covers them.
        Not called for savepoints. Raises ``SourceError``, which fails the job. A no-op by default.
        """
        return None

    async def on_results_committed(self, position: Position) -> None:
        """Acknowledge what is before ``position``: it was processed, and all sinks have committed its results.

        Later than ``on_checkpoint_completed``, since results of calls that were under way at that checkpoint are
        committed by a later one. Results that wait for event time, as those of open windows, are not waited for. Called
        in the same way. A no-op by default.
        """
        return None

    async def on_checkpoints_removed(self, position: Position) -> None:
        """Release what is before ``position``: no checkpoint is kept that continues before it.

        Later than ``on_checkpoint_completed``, since older checkpoints are kept in case the newest is damaged. Called
        in the same way. Savepoints are not considered. A no-op by default.
        """
        return None

    async def close(self) -> None:
        """Release the resources of the reader. A no-op by default.

        A reader with one of the three preceding methods is closed when the job ends, after the last checkpoint, by
        another task; others are closed at the end of their split, by the task that has opened and read them.
        """
        return None


class Source(ABC, Generic[T_co]):
    """An origin of records, as a description only: nothing is opened before a job runs."""

    #: True if all splits end. The job ends when all its sources have ended.
    bounded: bool = True

    #: True if a reader opened at a position returns the same records again: required for exactly-once results.
    replayable: bool = True

    #: The number of splits that a subtask reads concurrently; None: all of its splits.
    concurrency: int | None = 1

    #: The maximum number of subtasks that read this source; None: the parallelism of the job.
    max_parallelism: int | None = None

    #: The interval at which ``splits`` is called again for new ones; None: it is called once.
    discover_every: timedelta | None = None

    #: The side output for records that cannot be read; None: they are errors that stop the job.
    dead_letters: Tag[BadRecord] | None = None

    #: True if chunks have watermarks.
    emits_watermarks: bool = False

    #: True if a job without checkpoints cannot read this source, since its records are released by checkpoints only.
    needs_checkpoints: bool = False

    #: True if records that a checkpoint covers may be read again after a restart: results count them twice.
    repeats_records: bool = False

    #: False if a checkpoint must not lie within a chunk, since a restored reader cannot return its records in the same
    #: order. Such chunks are not divided into smaller batches.
    divides_chunks: bool = True

    @abstractmethod
    async def splits(self) -> Sequence[Split]:
        """Return all splits known now, in the order in which they should be read."""

    @abstractmethod
    async def reader(self, split: Split, position: Position | None) -> Reader[T_co]:
        """Open ``split`` at ``position``, which is that of a chunk, or at its start for None."""

    async def on_job_end(self) -> None:
        """Release what the source holds between readers.

        Called once when a job that has called ``splits`` has ended, not when it restarts. A no-op by default.
        """
        return None


class Delivery(Enum):
    """The effect of records that a sink writes again after a restart."""

    AT_LEAST_ONCE = "at least once"
    """Duplicates are visible downstream."""
    IDEMPOTENT = "idempotent"
    """They replace the former ones: the final content is correct."""
    TRANSACTIONAL = "transactional"
    """Records become visible only when the checkpoint that covers them is complete."""


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Identity of a writer: subtask ``subtask`` (from 0) of ``parallelism`` of the sink named ``name``."""

    name: str
    subtask: int = field(default=0, kw_only=True)
    parallelism: int = field(default=1, kw_only=True)
    checkpoints: bool = field(default=False, kw_only=True)
    """True if the job takes checkpoints: it has called ``Sink.recover``, and will call ``prepare`` and ``commit``."""


class Writer(ABC, Generic[T_contra]):
    """Writer of the records of one subtask.

    With checkpoints, ``prepare`` is called at each barrier, between two writes, and ``commit`` when the checkpoint is
    complete. With the defaults, records are flushed before the checkpoint counts, so none is lost; records written
    again after a restart are duplicates unless they replace the former ones.

    If barriers may overtake and a call of ``write`` or ``commit`` takes longer than a second, a checkpoint may complete
    without a ``prepare`` of this writer. It names the last committable, and a restore writes later records again.
    """

    @abstractmethod
    def write(self, batch: Batch[T_contra]) -> Awaitable[None] | None:
        """Write a batch, in order. Return None if it is written, or an awaitable that completes when it is.

        May be a plain or an ``async def`` method. The next batch is written after the awaitable has completed:
        this wait is the backpressure of the sink. Raises ``SinkError`` (at once or through the awaitable).
        """

    async def flush(self) -> None:
        """Make all written records visible to others. A no-op by default.

        Called at the end of the input, with checkpoints after the commit of the last one; also by the default
        ``prepare``.
        """
        return None

    def prepare(self, checkpoint: int) -> Awaitable[Committable | None]:
        """Make all written records durable but not visible, so that ``commit`` has all it needs.

        The result is stored with checkpoint ``checkpoint`` and passed to ``commit`` of this writer, or, after a crash,
        to ``Sink.recover``. None: there is nothing to commit. Records written afterwards belong to the next
        checkpoint. The default flushes and returns None, which is right for sinks that are not transactional. May be an
        ``async def`` method.

        Numbers of checkpoints grow, also after a restart: no number is used twice, and after a restore all are above
        that of the restored checkpoint.
        """
        return self.flush()

    async def commit(self, committable: Committable) -> None:
        """Make the output of ``committable`` visible; idempotent. A no-op by default.

        Commits are in the order of their checkpoints. Output that was prepared for a checkpoint that failed is
        committed with the next one that completes.
        """
        return None

    async def close(self) -> None:
        """Release the resources of the writer; without a ``flush`` before, the job has failed or was cancelled."""
        return None


class Sink(ABC, Generic[T_contra]):
    """A destination of records, as a description only: nothing is opened before a job runs."""

    #: The effect of records that are written again.
    delivery: Delivery = Delivery.AT_LEAST_ONCE

    @abstractmethod
    async def writer(self, context: WriterContext) -> Writer[T_contra]:
        """Open the writer of one subtask."""

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Continue from a checkpoint: called once for the sink named ``name``, before any of its writers is opened.

        ``committables`` are those of the checkpoint, of all its writers. It is not known if they were committed before
        the crash. Commit them, and remove output that was written after them. Without a checkpoint to continue from,
        ``committables`` is empty. A sink that must distinguish the two prepares something at each checkpoint; later
        checkpoints keep the last committable of a writer that has ended. Not called when a job runs without
        checkpoints. A no-op by default.
        """
        return None
