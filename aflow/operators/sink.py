"""The end of a chain: passes batches to the writer of a sink, one at a time and in order.

Batches that wait for the writer are joined when it is free. Otherwise a writer that waits for the answer of a server
would need a round trip for each record of a quiet stream, and fall behind (docs/decisions/084).

Checkpoints are in the same queue. The *mark* of a checkpoint is where the writer prepares what it has written: after
all queued batches, or, when barriers overtake, before them, and then these batches are in flight and belong to the
checkpoint. Prepared output is *pending* until a checkpoint that covers it is complete, and is then committed, before
anything else.

A writer that does not return from ``write`` or ``commit`` does not reach the mark. The checkpoint can then *bypass* it:
the writer prepares nothing, and all batches since its last preparation are in flight, those that it has written and the
one that it is writing included. A restore removes what it wrote of them, and they are written again.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutine
from itertools import takewhile
from typing import Any, Final, TypeAlias

from aflow.connect import Committable, Writer
from aflow.errors import AflowError, SinkError, described
from aflow.model.batch import Batch, can_join, joined_batches
from aflow.model.elements import AFTER_ALL_CHECKPOINTS, LatencyMarker, Marker, ProgressMarker
from aflow.model.questions import current_correlation
from aflow.operators.base import Operator
from aflow.operators.latency import LatencySamples

#: Number of queued records from which on the task takes no more input.
_CAPACITY: Final = 2048

#: Largest number of records of queued batches that are joined for one write: they share a round trip, and their
#: conversion does not hold the event loop for long.
JOINED_RECORDS: Final = 256

#: Largest number of records that are kept since the last preparation. With more, a checkpoint waits for the writer.
_UNPREPARED: Final = 65_536

_Work: TypeAlias = "Batch[Any] | Marker | _Preparation | _Commit | _Committed"

Pending: TypeAlias = Sequence[tuple[int, Committable]]
"""Output that was prepared and not committed, with its checkpoint, ascending."""


@dataclass(frozen=True, slots=True)
class _Preparation:
    """Let the writer prepare what it has written; ``done`` gets all pending output then."""

    checkpoint: int
    done: Callable[[Pending], None]


@dataclass(frozen=True, slots=True)
class _Commit:
    """Let the writer commit what it has prepared for a checkpoint."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class _Committed:
    """Report that everything prepared up to a checkpoint is committed."""

    checkpoint: int


class SinkOperator(Operator):
    """Passes each batch to the writer at once if it is free, and queues batches while it is busy.

    The operator never waits. An awaitable of the writer is kept in ``writing``; the runtime awaits it in a coroutine of
    its own and then posts ``written`` with its result, which continues with the queue.
    """

    def __init__(
        self, writer: Writer[Any], on_writing: Callable[[], None], *, joined: int = JOINED_RECORDS
    ) -> None:
        """``on_writing`` is called when ``writing`` was set. ``joined`` bounds the records of joined batches."""
        self.writer = writer
        self._joined = joined
        self._on_writing = on_writing
        #: The awaitable of the writer; None while it is free, and then the queue is empty.
        self.writing: Awaitable[Committable | None] | None = None
        #: The purpose of ``writing``; None for a batch.
        self._doing: _Preparation | _Commit | None = None
        self._waiting: deque[_Work] = deque()
        self._waiting_records = 0
        #: Output that was prepared and not committed, by checkpoint, ascending.
        self._pending: dict[int, Committable] = {}
        #: The batches since the last preparation, including the one that is being written; empty if they have more than
        #: ``_UNPREPARED`` records. None if they are not kept: no checkpoint bypasses the writer.
        self._unprepared: list[Batch[Any]] | None = None
        self._unprepared_records = 0
        #: The newest committables: those of the restored checkpoint, until the writer has prepared one.
        self._newest: Pending = ()
        #: Of recent markers, by the name of their source.
        self.latencies: Final[dict[str, LatencySamples]] = {}
        #: The checkpoint of the last progress marker that the writer has reached.
        self._progress = 0
        #: The progress when the writer prepared, by the checkpoint that it prepared for, ascending.
        self._prepared_progress: dict[int, int] = {}
        #: Called with progress that is committed; None if it is not reported.
        self._on_committed: Callable[[int], None] | None = None
        #: Called when all restored batches are written; None if they are.
        self._caught_up: Callable[[], None] | None = None

    @property
    def full(self) -> bool:
        """True while the task should take no more input."""
        return self._waiting_records >= _CAPACITY

    @property
    def busy(self) -> bool:
        """True while the writer has work."""
        return self.writing is not None or bool(self._waiting)

    @property
    def waiting_records(self) -> int:
        """Records in the queued batches."""
        return self._waiting_records

    @property
    def waiting(self) -> Iterator[Batch[Any]]:
        """The queued batches, oldest first."""
        return (one for one in self._waiting if isinstance(one, Batch))

    def keep_unprepared(self) -> None:
        """Keep the batches since the last preparation, so that checkpoints can bypass the writer."""
        self._unprepared = []

    def report_progress(self, on_committed: Callable[[int], None]) -> None:
        """Call ``on_committed`` with the checkpoint of the last progress marker whose preceding output is committed."""
        self._on_committed = on_committed

    def process(self, batch: Batch[Any]) -> None:
        if self.writing is None:
            self._write(batch)
        else:
            if (correlation := current_correlation()) is not None:
                batch.correlation = correlation
                correlation.hold()
            self._waiting.append(batch)
            self._waiting_records += len(batch)

    def on_marker(self, marker: Marker) -> None:
        if self.writing is None:
            self._reached(marker)
        else:
            self._waiting.append(marker)

    def end_input(self) -> None:
        self.on_marker(ProgressMarker(AFTER_ALL_CHECKPOINTS))

    def _reached(self, marker: Marker) -> None:
        """Handle a marker: the writer has got all records that precede it."""
        if isinstance(marker, ProgressMarker):
            self._progress = marker.checkpoint
        else:
            took = self.context.steady() - marker.emitted_at
            self.latencies.setdefault(marker.source, LatencySamples()).add(took)

    def mark(
        self, checkpoint: int, done: Callable[[Pending], None], *, overtaking: bool
    ) -> list[Batch[Any]]:
        """Queue the preparation for a checkpoint; ``done`` gets all pending output then.

        Return the batches that the checkpoint must store, because they are written after it: none, unless the mark is
        ``overtaking`` them.
        """
        self._waiting.append(_Preparation(checkpoint, done))
        overtaken = self.overtake(checkpoint) if overtaking else []
        self._continue()
        return overtaken

    def overtake(self, checkpoint: int) -> list[Batch[Any]]:
        """Let the mark of a checkpoint, if it is still queued, overtake the batches before it, and return these.

        It does not overtake other marks and commits: the batches before those belong to other checkpoints.
        """
        overtaken: list[Batch[Any]] = []
        start = 0
        for place, one in enumerate(self._waiting):
            if isinstance(one, Batch):
                overtaken.append(one)
            elif isinstance(one, _Preparation) and one.checkpoint == checkpoint:
                del self._waiting[place]
                self._waiting.insert(start, one)
                return overtaken
            elif not isinstance(one, LatencyMarker | ProgressMarker):
                overtaken = []
                start = place + 1
        return []

    def bypass(self, checkpoint: int) -> list[Batch[Any]] | None:
        """Complete the mark of a checkpoint without the writer; return the batches that the checkpoint must store.

        Return None if it must wait for the writer: a preparation is under way or precedes the mark, whose output would
        be committed with this checkpoint, or there are too many records. ``done`` of the mark gets the pending output,
        or the newest committable: without any, a sink would take the checkpoint for none.
        """
        kept, many = self._unprepared, self._unprepared_records > _UNPREPARED
        if kept is None or many or isinstance(self._doing, _Preparation):
            return None
        preceding: list[Batch[Any]] = []
        for place, one in enumerate(self._waiting):
            if isinstance(one, Batch):
                preceding.append(one)
            elif isinstance(one, _Preparation):
                if one.checkpoint != checkpoint:
                    return None
                del self._waiting[place]
                one.done(tuple(self._pending.items()) or self._newest)
                return [*kept, *preceding]
        return None

    def commit_up_to(self, checkpoint: int) -> None:
        """Commit the output prepared for ``checkpoint``, which is complete, and for older ones."""
        under_way = {one.checkpoint for one in self._all_commits()}
        due: list[_Work] = [
            _Commit(one) for one in self._pending if one <= checkpoint and one not in under_way
        ]
        if self._prepared_progress:
            due.append(_Committed(checkpoint))
        earlier = takewhile(lambda one: isinstance(one, _Commit | _Committed), self._waiting)
        for place, one in enumerate(due, len(list(earlier))):
            self._waiting.insert(place, one)
        self._continue()

    def continue_with(
        self, batches: Iterable[Batch[Any]], prepared: Pending, done: Callable[[], None]
    ) -> None:
        """Write the batches of a restored checkpoint before any other; call ``done`` once all are written.

        ``prepared`` are committables of that checkpoint: a share of those of all writers.
        """
        self._newest = prepared
        for batch in batches:
            self.process(batch)
        if self.busy:
            self._caught_up = done
        else:
            done()

    def written(self, result: Committable | None = None) -> None:
        """Handle ``result`` of the finished ``writing``, and continue with the queue."""
        doing, self.writing, self._doing = self._doing, None, None
        match doing:
            case _Preparation(checkpoint, done):
                if self._unprepared is not None:
                    self._unprepared, self._unprepared_records = [], 0
                if result is not None:
                    self._pending[checkpoint] = result
                    self._newest = ((checkpoint, result),)
                done(tuple(self._pending.items()))
            case _Commit(checkpoint):
                self._pending.pop(checkpoint, None)
            case None:
                pass
        self._continue()
        if self._caught_up is not None and not self.busy:
            caught_up, self._caught_up = self._caught_up, None
            caught_up()

    def close(self) -> None:
        """Discard a write that is not awaited yet because the job has ended."""
        if iscoroutine(self.writing):
            self.writing.close()

    def failed(self, cause: BaseException) -> SinkError:
        """Describe ``cause``, raised by the writer."""
        what = "write"
        if isinstance(self._doing, _Preparation):
            what = f"prepare checkpoint {self._doing.checkpoint}"
        elif isinstance(self._doing, _Commit):
            what = f"commit checkpoint {self._doing.checkpoint}"
        return SinkError(f"sink {self.name!r} could not {what}: {described(cause)}")

    def _continue(self) -> None:
        while self.writing is None and self._waiting:
            match self._waiting.popleft():
                case Batch() as batch:
                    batch = self._with_following(batch)
                    self._waiting_records -= len(batch)
                    if batch.correlation is None:
                        self._write(batch)
                    else:
                        batch.correlation.run(partial(self._write, batch))
                case _Preparation() as mark:
                    self._doing = mark
                    if self._progress:
                        self._prepared_progress[mark.checkpoint] = self._progress
                    self._begin(self.writer.prepare, mark.checkpoint)
                case _Commit() as commit:
                    self._doing = commit
                    self._begin(self.writer.commit, self._pending[commit.checkpoint])
                case _Committed(checkpoint):
                    self._report(checkpoint)
                case LatencyMarker() | ProgressMarker() as marker:
                    self._reached(marker)

    def _with_following(self, first: Batch[Any]) -> Batch[Any]:
        """Return ``first``, joined with batches that follow it directly in the queue, which are removed from it."""
        # Hot path: once for each batch.
        waiting, joined, records = self._waiting, [first], len(first)
        while waiting and isinstance(following := waiting[0], Batch):
            records += len(following)
            if records > self._joined or not can_join(first, following):
                break
            joined.append(following)
            waiting.popleft()
        return first if len(joined) == 1 else joined_batches(joined)

    def _report(self, checkpoint: int) -> None:
        """Report the progress at the last preparation for ``checkpoint`` or an older one."""
        progress = 0
        for one in [one for one in self._prepared_progress if one <= checkpoint]:
            progress = self._prepared_progress.pop(one)
        if progress and self._on_committed is not None:
            self._on_committed(progress)

    def _write(self, batch: Batch[Any]) -> None:
        # Hot path: once for each batch.
        if self._unprepared is not None:
            self._unprepared_records += len(batch)
            if self._unprepared_records <= _UNPREPARED:
                self._unprepared.append(batch)
            else:
                self._unprepared.clear()
        self._begin(self.writer.write, batch)

    def _begin(
        self, method: Callable[[Any], Awaitable[Committable | None] | None], about: object
    ) -> None:
        try:
            self.writing = method(about)
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            # Synchronous, so a CancelledError was raised by the writer, and is no cancellation.
            raise self.failed(exc) from exc
        if self.writing is not None:
            self._on_writing()

    def _all_commits(self) -> list[_Commit]:
        return [one for one in (self._doing, *self._waiting) if isinstance(one, _Commit)]
