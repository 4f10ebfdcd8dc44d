"""The input of a source task: the chunks that its fetcher has queued, as batches.

A checkpoint stores, for each split, the position after the last whole chunk that the operators got, and the number of
records of the next chunk that they got; never what was read ahead. It also stores the splits that have ended, so that
they are not read again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from aflow.connect import BadRecord, Chunk, Position
from aflow.errors import SourceError
from aflow.model.batch import Batch
from aflow.model.elements import LatencyMarker, ProgressMarker
from aflow.model.time import MAX_TIMESTAMP, to_timestamp
from aflow.operators.base import Operator, Output
from aflow.runtime.builtin_connectors.asked_chunk import AskedChunk
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.fetcher import Awaiting, Begun, Ended, Failed, Fetcher, Read
from aflow.runtime.splits import Assigned, Progress, SplitPosition


class SourceInput:
    """The input of a task that reads a source."""

    def __init__(
        self,
        fetcher: Fetcher,
        head: Output,
        operators: Sequence[Operator],
        clock: RuntimeClock,
        when_finished: Callable[[Callable[[], None]], None],
        latency_interval: float | None = None,
    ) -> None:
        """``when_finished`` calls a function once no operator of the chain has unfinished work.

        ``latency_interval`` is the least time between two latency markers (s); None for no markers.
        """
        self._latency_interval = latency_interval
        #: The time of the next latency marker (s, steady clock).
        self._marker_due = -math.inf if latency_interval is not None else math.inf
        self._when_finished = when_finished
        self._fetcher = fetcher
        self._steady = clock.steady
        self._head = head
        #: The operators of the chain, which get the split of the batches.
        self._operators = operators
        #: Position after the last whole chunk of each open split that the operators got.
        self.positions: dict[str, Position | None] = {}
        #: Records of the next chunk that the operators got, for splits that have some.
        self._partly_read: dict[str, int] = {}
        #: Splits that were read to their end.
        self._ended: set[str] = set()
        #: The position after the last chunk of each split that has ended in this attempt.
        self._last_positions: dict[str, Position | None] = {}
        #: Restored splits that were partly read; the operators know them already.
        self._announced: set[str] = set()
        #: The split of the last chunk.
        self._current: str | None = None
        #: Splits that were started and have not ended.
        self._open = 0
        #: True while there is no split to read until one is discovered.
        self._awaiting = False
        #: True while the subtask is idle.
        self._idle = False
        #: False after a stop without drain: event time does not end, so windows stay open.
        self._ends_time = True
        #: True once the end of event time was emitted.
        self._time_ended = False
        self.finished = False

    @property
    def queued_records(self) -> int:
        """Records that were read ahead."""
        return self._fetcher.queued_records

    @property
    def is_ending(self) -> bool:
        """True if the source was stopped and a reader has not ended."""
        return self._fetcher.is_ending

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start to fetch, in ``group``."""
        self._fetcher.start(group)

    def restore(self, begun: Iterable[Assigned], ended: Iterable[str]) -> None:
        """Continue from a checkpoint: tell the operators of all started splits, before anything is read.

        Otherwise a split that starts later than the others would find their watermark.
        """
        self._ended.update(ended)
        for assigned in begun:
            split, place = assigned.split.id, assigned.place
            self.positions[split] = place.position
            if place.skip:
                self._partly_read[split] = place.skip
            self._announced.add(split)
            for operator in self._operators:
                operator.on_split_start(split)

    @property
    def has_early_status(self) -> bool:
        """True if ``announce_status`` has something to emit."""
        return self._fetcher.has_no_split

    def announce_status(self) -> None:
        """Emit, before any task runs, the status of a subtask without a split: the end of event time, or idleness.

        Otherwise readers would wait for the watermark of this subtask until its task has run, and the order in which
        tasks run would decide which records of the other subtasks are late.
        """
        if self._fetcher.awaits_split:
            self._awaiting = True
            self._become_idle()
        elif self._fetcher.has_no_split:
            self._end_time()

    def progress(self) -> Progress:
        """Return the source position after the last record that the operators processed."""
        places = {
            split: SplitPosition(position, self._partly_read.get(split, 0))
            for split, position in self.positions.items()
        }
        return Progress(places, frozenset(self._ended))

    @property
    def read_positions(self) -> Mapping[str, Position | None]:
        """The positions of ``progress``, with those of the splits that have ended."""
        return {**self._last_positions, **self.positions}

    def stop(self, *, drain: bool) -> None:
        """Stop reading. Records that were read are processed; with ``drain`` event time then ends."""
        self._ends_time = drain
        self._fetcher.stop()

    def step(self) -> bool:
        """Emit the next chunk to the operators. Return False if there is none (yet)."""
        match self._fetcher.take():
            case Read(split, chunk, whole):
                self._push(split, chunk)
                if whole:
                    self.positions[split] = chunk.position
                    self._partly_read.pop(split, None)
                else:
                    self._partly_read[split] = self._partly_read.get(split, 0) + len(chunk.values)
            case Begun(split):
                self._begin(split)
            case Ended(split):
                self._end(split)
            case Failed(error):
                raise error
            case Awaiting():
                self._awaiting = True
                self._become_idle()
            case None:
                if self._fetcher.over:
                    self._finish()
                return False
        return True

    def _begin(self, split: str) -> None:
        self._open += 1
        self._awaiting = False
        if self._idle:
            self._idle = False
            self._head.active()
        if split in self._announced:
            self._announced.remove(split)
            return
        self.positions[split] = None
        for operator in self._operators:
            operator.on_split_start(split)

    def _push(self, split: str, chunk: Chunk[Any]) -> None:
        if self._current != split:
            self._current = split
            for operator in self._operators:
                operator.on_split(split)
        if chunk.rejected:
            self._reject(chunk.rejected)
        if chunk.values:
            values: list[Any] = (
                chunk.values if isinstance(chunk.values, list) else list(chunk.values)
            )
            times = None if chunk.timestamps is None else list(chunk.timestamps)
            start = self._steady()
            batch = Batch(values, times)
            if isinstance(chunk, AskedChunk) and chunk.correlation is not None:
                chunk.correlation.hold()
                chunk.correlation.run(partial(self._head.emit, batch))
            else:
                self._head.emit(batch)
            self._fetcher.size.took(len(values), self._steady() - start)
            if start >= self._marker_due:
                self._measure_latency(start, chunk)
        if chunk.watermark is not None:
            watermark = to_timestamp(chunk.watermark)
            self._tell(
                [partial(one.on_split_watermark, split, watermark) for one in self._operators]
            )
        if chunk.idle:
            self._tell([partial(one.on_split_idle, split) for one in self._operators])

    def _measure_latency(self, start: float, chunk: Chunk[Any]) -> None:
        """Emit a latency marker after records whose processing began at ``start`` (s, steady clock)."""
        if self._latency_interval is not None:
            self._marker_due = start + self._latency_interval
            arrived = chunk.arrived_at if isinstance(chunk, AskedChunk) else None
            self._head.marker(
                LatencyMarker(self._fetcher.name, start if arrived is None else arrived)
            )

    def emit_progress(self, checkpoint: int) -> None:
        """Emit the marker that precedes the barrier of ``checkpoint``; not after the end of the input."""
        if not self.finished:
            self._head.marker(ProgressMarker(checkpoint))

    def _tell(self, calls: Iterable[Callable[[], None]]) -> None:
        """Make each of the ``calls`` to operators when the operators have no unfinished work.

        A call may emit a watermark at which a downstream operator fires in several pieces, and the operators downstream
        of that one get the results first. Checkpoints wait for unfinished work and for these calls.
        """
        for call in calls:
            self._when_finished(call)

    def _reject(self, records: Sequence[BadRecord]) -> None:
        tag = self._fetcher.source.dead_letters
        if tag is None:
            raise SourceError(
                f"source {self._fetcher.name!r} rejected records and declares no dead_letters to send them to; "
                f"the first one is {records[0].place}: {records[0].reason}"
            )
        self._head.side(tag.name, Batch(list(records)))

    def _end(self, split: str) -> None:
        self._tell([partial(one.on_split_end, split) for one in self._operators])
        self._when_finished(partial(self._remove, split))

    def _remove(self, split: str) -> None:
        self._open -= 1
        self._last_positions[split] = self.positions.pop(split, None)
        self._partly_read.pop(split, None)
        self._ended.add(split)
        self._become_idle()

    def _become_idle(self) -> None:
        """Become idle if there is nothing to read until a split is discovered: readers must not wait for this
        subtask."""
        if self._awaiting and not self._open and not self._idle:
            self._idle = True
            self._head.idle()

    def _finish(self) -> None:
        if not self.finished:
            self.finished = True
            if self._ends_time:
                self._end_time()

    def _end_time(self) -> None:
        if not self._time_ended:
            self._time_ended = True
            self._head.watermark(MAX_TIMESTAMP)
