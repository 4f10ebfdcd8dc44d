"""What the author of a connector imports: how a system outside the process becomes a source or a sink.

A *source* is cut into *splits* (a file, a partition); each split is read by one *reader*, which hands out *chunks*. A
chunk carries the position behind it, as data: what a checkpoint stores is the position of what was emitted, never of
what was read ahead. A *sink* opens one *writer* for each subtask.

Life cycle and threading: all methods run on the event loop of the job. Blocking work belongs in a worker thread
(``anyio.to_thread.run_sync``). A reader runs in a coroutine of its own, apart from the task that processes its
chunks, and ``read`` is called again only after it has returned. ``close`` is called exactly once for each reader
and writer that was opened, also after a failure and when the job is cancelled.
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
"""What a transactional writer has prepared: plain data (strings, ints, tuples, lists, dicts …).

One that comes back from a checkpoint comes from a file, which somebody may have changed: a sink checks that it names
something of its own before it commits or removes anything, and raises ``SinkError`` if not.
"""

Position = object
"""Where to continue in a split: plain data (ints, strings, tuples …) that only the source itself understands."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source that is read by one reader at a time. ``id`` is unique within the source and stable."""

    id: str


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Something in a source that could not be turned into a record; it goes to the source's dead-letter stream."""

    place: str
    """Where it stands, for a person: ``orders.jsonl.gz, line 17``."""
    reason: str
    raw: bytes
    """What stood there, at most the first 4,096 bytes."""


@dataclass(
    frozen=True
)  # not slotted: on Python 3.11 Chunk[int](…) of a frozen, slotted generic raises
class Chunk(Generic[T_co]):
    """Records of one split, in order, and the position behind the last of them.

    ``timestamps`` (epoch ms, one for each record) may be given by sources whose records carry a time of their own.
    ``rejected`` are the records that could not be read; a source has some only if it declares ``dead_letters``.
    A chunk may be without records (the position still counts).
    """

    values: Sequence[T_co]
    position: Position
    timestamps: Sequence[int] | None = None
    rejected: Sequence[BadRecord] = ()


class Reader(ABC, Generic[T_co]):
    """Reads one split from a position on."""

    @abstractmethod
    async def read(self, limit: int) -> Chunk[T_co] | None:
        """The next records, at least one and at most ``limit``; None at the end of the split.

        Returns what is there without waiting to fill the chunk, and waits only when there is nothing.
        Raises ``SourceError`` for what cannot be read. May be cancelled while it waits.
        """

    def leftover(self) -> Chunk[T_co] | None:
        """Records already accepted from others that ``read`` has not handed out; asked once, when the job is stopped.

        For readers that are pushed to: what was accepted must not get lost. None by default: a reader that fetches
        for itself is opened at its position again.
        """
        return None

    async def close(self) -> None:
        """Give back what the reader holds. Nothing by default."""
        return None


class Source(ABC, Generic[T_co]):
    """A place where records come from. Describes it only: nothing is opened before a job runs."""

    #: True if all splits end by themselves. The job ends when all its sources have ended.
    bounded: bool = True

    #: True if a reader opened at a position gives the same records again: needed for exactly-once results.
    replayable: bool = True

    #: How many splits one subtask reads at a time; None for all of its splits.
    concurrency: int | None = 1

    #: How many subtasks may read this source; None for the parallelism of the job.
    max_parallelism: int | None = None

    #: How often ``splits`` is asked again for new ones; None: asked once.
    discover_every: timedelta | None = None

    #: Where records go that cannot be read; None: they are errors that stop the job.
    dead_letters: Tag[BadRecord] | None = None

    @abstractmethod
    async def splits(self) -> Sequence[Split]:
        """All splits known now, in the order in which they should be read."""

    @abstractmethod
    async def reader(self, split: Split, position: Position | None) -> Reader[T_co]:
        """Open ``split`` at ``position`` (a position that came with a chunk), or at its start for None."""


class Delivery(Enum):
    """What a sink makes of output that is written again after a restart."""

    AT_LEAST_ONCE = "at least once"
    """It shows twice."""
    IDEMPOTENT = "idempotent"
    """It replaces what was there: the final content is right."""
    TRANSACTIONAL = "transactional"
    """It is visible only once the checkpoint that covers it is complete."""


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Which of the sink's writers this is: subtask ``subtask`` (from 0) of ``parallelism`` under the name ``name``."""

    name: str
    subtask: int = field(default=0, kw_only=True)
    parallelism: int = field(default=1, kw_only=True)
    checkpoints: bool = field(default=False, kw_only=True)
    """True if the job takes checkpoints: ``Sink.recover`` was called, and ``prepare`` and ``commit`` will be."""


class Writer(ABC, Generic[T_contra]):
    """Writes the records of one subtask.

    With checkpoints, ``prepare`` is called at each barrier, between two writes, and ``commit`` once the checkpoint is
    complete. A writer that has nothing to say about checkpoints keeps the defaults: what was written is flushed
    before the checkpoint counts, so nothing is lost, and what is written again after a restart is there twice unless
    it replaces what was there.
    """

    @abstractmethod
    def write(self, batch: Batch[T_contra]) -> Awaitable[None] | None:
        """Take a batch, in order. None: it is taken; an awaitable: it is taken once that is done.

        May be a plain or an ``async def`` method. The next batch comes only after this one is taken, and the pipeline
        upstream is slowed down meanwhile. Raises ``SinkError`` (at once or through the awaitable).
        """

    async def flush(self) -> None:
        """Make everything written so far visible to others. Nothing by default.

        Called at the end of the input; with checkpoints that is behind the commit of the last one, and by the default
        ``prepare`` before.
        """
        return None

    def prepare(self, checkpoint: int) -> Awaitable[Committable | None]:
        """Make everything written so far durable, without showing it, so that ``commit`` cannot fail for want of it.

        What is returned is stored with checkpoint ``checkpoint`` and comes back to ``commit`` of this writer, or, after
        a crash, to ``Sink.recover``. None: there is nothing to commit. What is written afterwards belongs to the next
        checkpoint. By default flushes, with None, which is right for sinks that are not transactional.
        May be an ``async def`` method.

        Numbers of checkpoints grow, also behind a restart: no number is there twice, and after a restore all are above
        that of the restored checkpoint.
        """
        return self.flush()

    async def commit(self, committable: Committable) -> None:
        """Show what ``committable`` stands for. Doing it a second time changes nothing. Nothing by default.

        Commits come in the order of their checkpoints. What was prepared for a checkpoint that did not come about is
        committed with the next one that does.
        """
        return None

    async def close(self) -> None:
        """Give back what the writer holds; unless ``flush`` came before, the job has failed or was cancelled."""
        return None


class Sink(ABC, Generic[T_contra]):
    """A place where records go. Describes it only: nothing is opened before a job runs."""

    #: What the sink makes of records that are written again.
    delivery: Delivery = Delivery.AT_LEAST_ONCE

    @abstractmethod
    async def writer(self, context: WriterContext) -> Writer[T_contra]:
        """Open the writer of one subtask."""

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Continue from a checkpoint: called once for the sink named ``name``, before any of its writers is opened.

        ``committables`` are those of the checkpoint, of all writers that there were; whether they were committed before
        the crash is not known. Commit them, and remove what was written after them. Without checkpoint to continue
        from, ``committables`` is empty. A sink for which that makes a difference prepares something at each checkpoint;
        what a writer prepared last stays in later checkpoints when it has ended.
        Not called when a job runs without checkpoints. Nothing by default.
        """
        return None
