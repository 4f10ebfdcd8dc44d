"""The reading side of a source task: coroutines that call readers and queue their chunks.

One coroutine for each split calls ``Reader.read`` and puts the chunk into a short queue; the task takes chunks from
there. So a read that waits does not delay the mails of the task, reading continues while the task computes, and a
reader never accesses the state of the task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from aflow.connect import BadRecord, Chunk, Reader, Source, Split
from aflow.errors import FlowDefinitionError, SourceError, described, message_of
from aflow.machines.batch_size import BatchSize
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Instant, Timestamp, to_timestamp
from aflow.runtime.builtin_connectors.asked_chunk import AskedChunk
from aflow.runtime.cancellation import (
    GuardedTask,
    JobTaskGroup,
    end_if_asked,
    user_code,
)
from aflow.runtime.checkpoints.reader_notices import ReaderNotices
from aflow.runtime.close_limit import close_in_time
from aflow.runtime.failures import closing_async
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.read_rate import ReadRate
from aflow.runtime.splits import Assigned, SplitPosition, SplitQueue

#: Batches read ahead for all splits of a subtask together, and the most records in them: one pass of the event loop
#: serves as many.
_READ_AHEAD: Final = 4
_READ_AHEAD_RECORDS: Final = 4096

_UNBOUNDED: Final = 2**31

#: A read that takes fewer seconds counts as work of the job; a longer one has probably waited for something.
_AT_ONCE: Final = 0.002


# Not frozen, unlike other values: a `Read` is created for each chunk, and freezing triples its cost.
@dataclass(slots=True)
class Read:
    """A chunk of a split."""

    split: str
    chunk: Chunk[Any]
    whole: bool = True
    """False for the first part of a chunk that is too large for a batch: its position is the one after the whole
    chunk."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A split was started."""

    split: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A split has ended."""

    split: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Reading a split has failed."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Awaiting:
    """There is no further split before one is discovered."""


Fetched: TypeAlias = Read | Begun | Ended | Failed | Awaiting


@dataclass(slots=True)
class _SplitReading:
    """The progress of the coroutine that reads a split."""

    #: False from the close of the reader on, which releases what it holds.
    is_cancellable: bool = True

    async def close(self, reader: Reader[Any]) -> None:
        """Close the reader within the limit of the job."""
        self.is_cancellable = False
        await close_in_time(reader.close)


class Fetcher:
    """Reads the splits of one subtask, in a task group of the job."""

    def __init__(
        self,
        name: str,
        source: Source[Any],
        splits: SplitQueue,
        *,
        subtask: int,
        size: BatchSize,
        loop_budget: LoopBudget,
        on_fetched: Callable[[], None],
        notices: ReaderNotices | None = None,
        rate: ReadRate | None = None,
    ) -> None:
        """``on_fetched`` is called when there is something to take, and when nothing will be added any more.

        ``notices`` are those of checkpoints; None without them. ``rate`` delays chunks.
        """
        self.name = name
        self.source = source
        self._splits = splits
        self._subtask = subtask
        #: Limits the records of one read.
        self.size = size
        self._loop_budget = loop_budget
        self._on_fetched = on_fetched
        self._notices = notices
        self._rate = rate
        #: Chunks that were read and not taken yet, and the events of splits between them.
        self._fetched: deque[Fetched] = deque()
        #: Records in ``_fetched``, including rejected ones.
        self.queued_records = 0
        #: Set while another chunk may be read ahead.
        self._room = asyncio.Event()
        self._room.set()
        self._fetching: asyncio.Task[None] | None = None
        #: Splits that are being read.
        self._readings: set[GuardedTask] = set()
        self._stopping = False
        #: The last watermark of each split that has one and is being read.
        self._watermarks: dict[str, Timestamp] = {}
        #: True once a reader is open, or none will be. A stop waits for it: only its reader tells a push source that
        #: its records are not taken any more.
        self._begun = False
        #: True once nothing will be added any more.
        self.over = False

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start to fetch, in ``group``."""
        self._fetching = group.create_task(
            self._fetch(), name=f"fetch {self.name}[{self._subtask}]"
        )
        self._fetching.add_done_callback(self._on_end)

    @property
    def is_ending(self) -> bool:
        """True from ``stop`` until the last reader has ended."""
        return self._stopping and not self.over

    def stop(self) -> None:
        """Stop reading. Records that were read, or accepted from producers, can still be taken."""
        self._stopping = True
        if self._fetching is not None and self._begun:
            self._fetching.cancel()

    def take(self) -> Fetched | None:
        """Return the next item, with chunks of one split joined up to the size of a batch; None if there is none
        (yet)."""
        fetched = self._fetched
        if not fetched:
            return None
        item = fetched.popleft()
        if type(item) is Read:
            self.queued_records -= _queue_weight(item.chunk)
            if self.source.divides_chunks and len(item.chunk.values) > 2 * self.size.limit:
                item = self._first_part(item)
            elif fetched and type(fetched[0]) is Read:
                self._join_next(item)
            self._let_read()
        return item

    @property
    def has_no_split(self) -> bool:
        """True if there is no split to read now, and none was taken before; valid only before ``start``."""
        return self._splits.has_none(self._subtask)

    @property
    def awaits_split(self) -> bool:
        """True if there is no split to read until one is discovered; valid only before ``start``."""
        return self._splits.must_wait(self._subtask)

    def has_queued(self, split: str) -> bool:
        """Return True if records of ``split`` are queued; of any split for ``""``."""
        return any(
            isinstance(item, Read)
            and (not split or item.split == split)
            and bool(item.chunk.values)
            for item in self._fetched
        )

    def _first_part(self, item: Read) -> Read:
        """Return a batch of a larger chunk; the rest returns to the front of the queue."""
        limit = self.size.limit
        first, rest = _divide(item.chunk, limit)
        self._fetched.appendleft(Read(item.split, rest, item.whole))
        self.queued_records += _queue_weight(rest)
        return Read(item.split, first, whole=False)

    def _join_next(self, item: Read) -> None:
        """Join the chunks that follow ``item``, since some sources read one record at a time."""
        chunks = [item.chunk]
        records = len(item.chunk.values)
        while item.whole and self._fetched and isinstance(following := self._fetched[0], Read):
            more = following.chunk
            records += len(more.values)
            if (
                records > self.size.limit
                or following.split != item.split
                or _cannot_join(chunks[-1], more)
            ):
                break
            self._fetched.popleft()
            self.queued_records -= _queue_weight(more)
            chunks.append(more)
        if len(chunks) > 1:
            item.chunk = _joined(chunks)

    async def _fetch(self) -> None:
        """Read as many splits at a time as the source allows."""
        slots = asyncio.Semaphore(self.source.concurrency or _UNBOUNDED)
        try:
            async with JobTaskGroup() as group:
                await slots.acquire()
                while (assigned := await self._next_split()) is not None:
                    self._put(Begun(assigned.split.id))
                    _ = group.create_task(self._reading(assigned, slots).wait())
                    if self._stopping:
                        return
                    await slots.acquire()
        finally:
            # Those whose wait was cancelled before it began.
            for guarded in list(self._readings):
                guarded.cancel()
                await guarded.wait()

    def _reading(self, assigned: Assigned, slots: asyncio.Semaphore) -> GuardedTask:
        """Start to read a split, in a task that is not cancelled while it closes the reader."""
        split, reading = assigned.split, _SplitReading()
        guarded = GuardedTask(
            lambda: reading.is_cancellable,
            self._read(split, assigned.place, slots, reading),
            name=f"read {self.name} {split.id}",
        )
        self._readings.add(guarded)
        guarded.task.add_done_callback(lambda _: self._readings.discard(guarded))
        return guarded

    async def _next_split(self) -> Assigned | None:
        if self._splits.must_wait(self._subtask):
            self._begun = True
            self._put(Awaiting())
        return await self._splits.next(self._subtask)

    async def _read(
        self, split: Split, place: SplitPosition, slots: asyncio.Semaphore, reading: _SplitReading
    ) -> None:
        try:
            with user_code(lambda exc: self._failed(exc, split)):
                ended = await self._read_named(split, place, reading)
        except Exception as exc:
            # Queued after the records that were read before the failure.
            self._put(Failed(exc))
        else:
            if ended:
                self._put(Ended(split.id))
        self._watermarks.pop(split.id, None)
        slots.release()

    async def _read_named(self, split: Split, place: SplitPosition, reading: _SplitReading) -> bool:
        """Read ``split``, and add the name of the source to errors of its connector."""
        try:
            return await self._read_all(split, place, reading)
        except SourceError as exc:
            if type(exc) is not SourceError:
                raise  # the connector's own exception class is kept
            raise SourceError(f"source {self.name!r}: {message_of(exc)}") from exc

    async def _read_all(self, split: Split, place: SplitPosition, reading: _SplitReading) -> bool:
        """Read ``split`` from ``place`` on. Return False if it was stopped before its end."""
        # From here on, a stop cancels. A reader that opens without waiting, such as that of a push source, is open
        # before any other task can run.
        self._begun = True
        reader = await self.source.reader(split, place.position)
        notified = self._notices is not None and self._notices.opened(
            (self.name, split.id), reader, place.position
        )
        async with closing_async([] if notified else [partial(reading.close, reader)]):
            try:
                if self._stopping:
                    return False
                # A source that is not replayable does not repeat records: skipping would lose new ones.
                if place.skip and self.source.replayable:
                    await self._skip(split.id, reader, place.skip)
                await self._read_chunks(split.id, reader)
            finally:
                if self._stopping and (leftover := reader.leftover()) is not None:
                    self._put_chunk(split.id, leftover)
        return True

    async def _skip(self, split: str, reader: Reader[Any], records: int) -> None:
        """Skip records that were processed before. Raises ``SourceError`` if the split has fewer of them now.

        Chunks need not be the same as in the first run. Records rejected among them were not emitted then, so they are
        now. The watermarks between them that were emitted then are in the checkpoint.
        """
        rejected: list[BadRecord] = []
        while (chunk := await reader.read(max(records, 1))) is not None:
            rejected += chunk.rejected
            if len(chunk.values) >= records:
                rest = replace(_without(chunk, records), rejected=rejected)
                if self._rate is None:
                    self._put_chunk(split, rest)
                else:
                    await self._put_in_time(split, rest, self._rate)
                return
            records -= len(chunk.values)
            end_if_asked()
        raise SourceError(
            f"split {split!r} has changed: it ends {records} records before the position to continue from"
        )

    async def _read_chunks(self, split: str, reader: Reader[Any]) -> None:
        # Hot path (benchmark `stateless`): one pass of this loop for each chunk.
        budget = self._loop_budget
        steady = budget.steady
        rate = self._rate
        while True:
            while not self._room.is_set():
                await self._room.wait()
            begun = steady()
            limit = self.size.limit
            chunk = await reader.read(limit if rate is None else min(limit, rate.most))
            if (took := steady() - begun) < _AT_ONCE:
                budget.own += took
            if chunk is None:
                return
            if rate is None:
                self._put_chunk(split, chunk)
            else:
                await self._put_in_time(split, chunk, rate)
            end_if_asked()
            if budget.spent():
                await budget.hand_over()

    async def _put_in_time(self, split: str, chunk: Chunk[Any], rate: ReadRate) -> None:
        """Queue a chunk once its rate allows it, or at once when the job is stopped: it was read."""
        try:
            await rate.wait((self.name, self._subtask, split), chunk.values)
        except asyncio.CancelledError:
            if self._stopping:
                self._put_chunk(split, chunk)
            raise
        self._put_chunk(split, chunk)

    def _failed(self, exc: BaseException, split: Split) -> SourceError:
        return SourceError(f"source {self.name!r} failed in split {split.id!r}: {described(exc)}")

    def _put_chunk(self, split: str, chunk: Chunk[Any]) -> None:
        if chunk.timestamps is not None and len(chunk.timestamps) != len(chunk.values):
            raise SourceError(
                f"split {split!r}: a chunk has {len(chunk.values)} values and {len(chunk.timestamps)} timestamps; "
                f"it needs one for each value"
            )
        if chunk.watermark is not None:
            chunk = replace(chunk, watermark=self._checked(split, chunk.watermark))
        self.queued_records += _queue_weight(chunk)
        if self._is_full():
            self._room.clear()
        self._put(Read(split, chunk))

    def _checked(self, split: str, watermark: Instant) -> Timestamp:
        """Return a watermark of ``split`` in epoch ms. Raises ``SourceError`` if it breaks the contract of sources."""
        if not self.source.emits_watermarks:
            raise SourceError(
                f"split {split!r}: a chunk has a watermark, and the source does not declare that it emits any; "
                f"set emits_watermarks = True in the class of the source"
            )
        try:
            timestamp = to_timestamp(watermark, what="the watermark of a chunk")
        except FlowDefinitionError as exc:
            raise SourceError(f"split {split!r}: {message_of(exc)}") from exc
        if not MIN_TIMESTAMP <= timestamp < MAX_TIMESTAMP:
            raise SourceError(
                f"split {split!r}: watermark {timestamp} is not between {MIN_TIMESTAMP} and {MAX_TIMESTAMP - 1}; "
                f"a reader ends its split by returning None"
            )
        before = self._watermarks.get(split, timestamp)
        if timestamp < before:
            raise SourceError(
                f"split {split!r}: watermark {timestamp} follows watermark {before}; the watermarks of a split never "
                f"go back, since {before} said that all later records have later timestamps"
            )
        self._watermarks[split] = timestamp
        return timestamp

    def _let_read(self) -> None:
        if not self._is_full():
            self._room.set()

    def _is_full(self) -> bool:
        return self.queued_records >= min(_READ_AHEAD * self.size.limit, _READ_AHEAD_RECORDS)

    def _put(self, item: Fetched) -> None:
        self._fetched.append(item)
        if len(self._fetched) == 1:
            self._on_fetched()

    def _on_end(self, _: asyncio.Task[None]) -> None:
        self.over = True
        self._on_fetched()


def _queue_weight(chunk: Chunk[Any]) -> int:
    """Return the weight of a chunk in the limit on reading ahead; at least 1, or empty ones would accumulate."""
    return len(chunk.values) + len(chunk.rejected) or 1


def _divide(chunk: Chunk[Any], at: int) -> tuple[Chunk[Any], Chunk[Any]]:
    """Return the first ``at`` values, and the others with the rejected records.

    So rejected records and the watermark are emitted with the position of the chunk: a checkpoint between the parts has
    none of them.
    """
    times = None if chunk.timestamps is None else chunk.timestamps[:at]
    first: Chunk[Any] = Chunk(chunk.values[:at], chunk.position, times)
    if isinstance(chunk, AskedChunk):
        first = AskedChunk(
            first.values,
            first.position,
            times,
            correlation=chunk.correlation,
            arrived_at=chunk.arrived_at,
        )
    return first, _without(chunk, at)


def _without(chunk: Chunk[Any], first: int) -> Chunk[Any]:
    """Return the chunk without its ``first`` values."""
    times = chunk.timestamps
    rest = None if times is None else times[first:]
    return replace(chunk, values=chunk.values[first:], timestamps=rest)


def _cannot_join(one: Chunk[Any], following: Chunk[Any]) -> bool:
    """Return True if the chunks cannot be joined: one has no timestamps, or has rejected records, whose order counts,
    or a watermark or idleness is between them, or one has the record of a question."""
    if one.rejected or following.rejected or one.watermark is not None or one.idle:
        return True
    if isinstance(one, AskedChunk) or isinstance(following, AskedChunk):
        return True
    return (one.timestamps is None) != (following.timestamps is None)


def _joined(chunks: Sequence[Chunk[Any]]) -> Chunk[Any]:
    values = [value for chunk in chunks for value in chunk.values]
    last = chunks[-1]
    times = None
    if last.timestamps is not None:
        times = [at for chunk in chunks for at in chunk.timestamps or ()]
    return replace(last, values=values, timestamps=times)
