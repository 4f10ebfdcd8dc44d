"""The reading side of a source task: coroutines that call readers and queue what they give.

One coroutine for each split that is being read calls ``Reader.read`` and puts the chunk into a short queue; the
task takes chunks from there. So a read that waits never keeps the task from its mails, reading goes on while the
task computes, and a reader never touches the state of the task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from aflow.connect import BadRecord, Chunk, Reader, Source, Split
from aflow.errors import SourceError
from aflow.machines.batch_size import BatchSize
from aflow.runtime.cancellation import end_if_asked, user_code
from aflow.runtime.failures import closing_async
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.splits import Assigned, Place, SplitQueue

#: Batches read ahead of the task, for all splits of a subtask together: a hop of the event loop is shared by as many.
_READ_AHEAD: Final = 4

_UNBOUNDED: Final = 2**31


# Not frozen, as values should be: a `Read` is made for each chunk, and freezing triples what it costs.
@dataclass(slots=True)
class Read:
    """A chunk of a split."""

    split: str
    chunk: Chunk[Any]
    whole: bool = True
    """False for the first part of a chunk that is too large for a batch: its position is behind the whole."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A split begins."""

    split: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A split has ended."""

    split: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A split cannot be read any further."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Awaiting:
    """There is no further split before one is discovered."""


Fetched: TypeAlias = Read | Begun | Ended | Failed | Awaiting


class Fetcher:
    """Reads the splits that fall to one subtask, in a task group of the job."""

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
    ) -> None:
        """``on_fetched`` is called when there is something to take, and when nothing will be added any more."""
        self.name = name
        self.source = source
        self._splits = splits
        self._subtask = subtask
        #: Bounds what is read at once.
        self.size = size
        self._loop_budget = loop_budget
        self._on_fetched = on_fetched
        #: What was read and not taken yet, and what happened to splits in between.
        self._fetched: deque[Fetched] = deque()
        #: Records in ``_fetched``, rejected ones included.
        self.queued_records = 0
        #: Set while another chunk may be read ahead.
        self._room = asyncio.Event()
        self._room.set()
        self._fetching: asyncio.Task[None] | None = None
        self._stopping = False
        #: True once a reader is open, or none can be. A stop waits for it: a source that is pushed to learns only from
        #: its reader that nobody takes its records any more.
        self._begun = False
        #: True once nothing will be added any more.
        self.over = False

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start to fetch, in ``group``."""
        self._fetching = group.create_task(
            self._fetch(), name=f"fetch {self.name}[{self._subtask}]"
        )
        self._fetching.add_done_callback(self._is_over)

    def stop(self) -> None:
        """Read nothing more; what was read, or accepted from others, can still be taken."""
        self._stopping = True
        if self._fetching is not None and self._begun:
            self._fetching.cancel()

    def take(self) -> Fetched | None:
        """What comes next, chunks of one split joined up to the size of a batch; None if there is nothing (yet)."""
        fetched = self._fetched
        if not fetched:
            return None
        item = fetched.popleft()
        if type(item) is Read:
            self.queued_records -= _weight(item.chunk)
            if len(item.chunk.values) > 2 * self.size.limit:
                item = self._first_part(item)
            elif fetched and type(fetched[0]) is Read:
                self._join_next(item)
            self._let_read()
        return item

    @property
    def has_no_split(self) -> bool:
        """True if there is no split to read now, and none was taken before: only before ``start``."""
        return self._splits.has_none(self._subtask)

    @property
    def awaits_split(self) -> bool:
        """True if there is no split to read before one is discovered: only before ``start``."""
        return self._splits.must_wait(self._subtask)

    def has_queued(self, split: str) -> bool:
        """True if a chunk of ``split`` waits; any chunk for ``""``."""
        return any(
            isinstance(item, Read) and (not split or item.split == split) for item in self._fetched
        )

    def _first_part(self, item: Read) -> Read:
        """A batch of a chunk that is larger; the rest goes back to the front of the queue."""
        limit = self.size.limit
        first, rest = _divided(item.chunk, limit)
        self._fetched.appendleft(Read(item.split, rest, item.whole))
        self.queued_records += _weight(rest)
        return Read(item.split, first, whole=False)

    def _join_next(self, item: Read) -> None:
        """Join the chunks that wait behind ``item``, since some sources read one by one."""
        chunks = [item.chunk]
        records = len(item.chunk.values)
        while item.whole and self._fetched and isinstance(following := self._fetched[0], Read):
            more = following.chunk
            records += len(more.values)
            if (
                records > self.size.limit
                or following.split != item.split
                or _differ(item.chunk, more)
            ):
                break
            self._fetched.popleft()
            self.queued_records -= _weight(more)
            chunks.append(more)
        if len(chunks) > 1:
            item.chunk = _joined(chunks)

    async def _fetch(self) -> None:
        """Read as many splits at a time as the source wants."""
        slots = asyncio.Semaphore(self.source.concurrency or _UNBOUNDED)
        async with asyncio.TaskGroup() as group:
            await slots.acquire()
            while (assigned := await self._next_split()) is not None:
                split = assigned.split
                self._put(Begun(split.id))
                group.create_task(
                    self._read(split, assigned.place, slots), name=f"read {self.name} {split.id}"
                )
                if self._stopping:
                    return
                await slots.acquire()

    async def _next_split(self) -> Assigned | None:
        if self._splits.must_wait(self._subtask):
            self._begun = True
            self._put(Awaiting())
        return await self._splits.next(self._subtask)

    async def _read(self, split: Split, place: Place, slots: asyncio.Semaphore) -> None:
        try:
            with user_code(lambda exc: self._failed(exc, split)):
                ended = await self._read_named(split, place)
        except Exception as exc:
            # In its place: what was read before the failure is processed before it.
            self._put(Failed(exc))
        else:
            if ended:
                self._put(Ended(split.id))
        slots.release()

    async def _read_named(self, split: Split, place: Place) -> bool:
        """Read ``split``, and put the name of the source in front of what its connector says went wrong."""
        try:
            return await self._read_all(split, place)
        except SourceError as exc:
            if type(exc) is not SourceError:
                raise  # a connector's own kind of error stays what it is
            raise SourceError(f"source {self.name!r}: {exc}") from exc

    async def _read_all(self, split: Split, place: Place) -> bool:
        """Read ``split`` from ``place`` on; False if it was stopped before its end."""
        # From here on a stop cancels. A reader that opens without waiting, as that of a source which is pushed to, is
        # open before anybody can.
        self._begun = True
        reader = await self.source.reader(split, place.position)
        async with closing_async([reader.close]):
            try:
                if self._stopping:
                    return False
                # What cannot be read again does not come again: to pass over records would lose new ones.
                if place.skip and self.source.replayable:
                    await self._skip(split.id, reader, place.skip)
                await self._read_chunks(split.id, reader)
            finally:
                if self._stopping and (leftover := reader.leftover()) is not None:
                    self._put_chunk(split.id, leftover)
        return True

    async def _skip(self, split: str, reader: Reader[Any], records: int) -> None:
        """Pass over records that were processed before. Raises ``SourceError`` if there are not so many any more.

        Chunks need not be those of the first time. What is rejected among them was not sent on then, so it is now.
        """
        rejected: list[BadRecord] = []
        while (chunk := await reader.read(max(records, 1))) is not None:
            rejected += chunk.rejected
            if len(chunk.values) >= records:
                rest = _without(chunk, records)
                self._put_chunk(split, replace(rest, rejected=rejected))
                return
            records -= len(chunk.values)
            end_if_asked()
        raise SourceError(
            f"split {split!r} has changed: it ends {records} records before the place where it is to be read on"
        )

    async def _read_chunks(self, split: str, reader: Reader[Any]) -> None:
        # Hot path (benchmark `stateless`): one turn of this loop for each chunk.
        while True:
            while not self._room.is_set():
                await self._room.wait()
            chunk = await reader.read(self.size.limit)
            if chunk is None:
                return
            self._put_chunk(split, chunk)
            end_if_asked()
            if self._loop_budget.spent():
                await self._loop_budget.hand_over()

    def _failed(self, exc: BaseException, split: Split) -> SourceError:
        return SourceError(
            f"source {self.name!r} failed in split {split.id!r}: {type(exc).__name__}: {exc}"
        )

    def _put_chunk(self, split: str, chunk: Chunk[Any]) -> None:
        if chunk.timestamps is not None and len(chunk.timestamps) != len(chunk.values):
            raise SourceError(
                f"split {split!r}: a chunk has {len(chunk.values)} values and {len(chunk.timestamps)} timestamps; "
                f"it needs one for each value"
            )
        self.queued_records += _weight(chunk)
        if self.queued_records >= _READ_AHEAD * self.size.limit:
            self._room.clear()
        self._put(Read(split, chunk))

    def _let_read(self) -> None:
        if self.queued_records < _READ_AHEAD * self.size.limit:
            self._room.set()

    def _put(self, item: Fetched) -> None:
        self._fetched.append(item)
        if len(self._fetched) == 1:
            self._on_fetched()

    def _is_over(self, _: asyncio.Task[None]) -> None:
        self.over = True
        self._on_fetched()


def _weight(chunk: Chunk[Any]) -> int:
    """What a chunk counts for in the bound on reading ahead; never nothing, or empty ones would pile up unbounded."""
    return len(chunk.values) + len(chunk.rejected) or 1


def _divided(chunk: Chunk[Any], at: int) -> tuple[Chunk[Any], Chunk[Any]]:
    """The first ``at`` values, and the others with what was rejected.

    So what was rejected goes out with the position of the chunk: a checkpoint in between has neither.
    """
    times = chunk.timestamps
    return Chunk(
        chunk.values[:at], chunk.position, None if times is None else times[:at]
    ), _without(chunk, at)


def _without(chunk: Chunk[Any], first: int) -> Chunk[Any]:
    """The chunk without its ``first`` values."""
    times = chunk.timestamps
    return Chunk(
        chunk.values[first:],
        chunk.position,
        None if times is None else times[first:],
        chunk.rejected,
    )


def _differ(one: Chunk[Any], other: Chunk[Any]) -> bool:
    """True if the chunks cannot be one: only one has timestamps, or there are rejected records, which have a place."""
    if one.rejected or other.rejected:
        return True
    return (one.timestamps is None) != (other.timestamps is None)


def _joined(chunks: Sequence[Chunk[Any]]) -> Chunk[Any]:
    values = [value for chunk in chunks for value in chunk.values]
    last = chunks[-1]
    if last.timestamps is None:
        return Chunk(values, last.position)
    return Chunk(values, last.position, [at for chunk in chunks for at in chunk.timestamps or ()])
