"""What a source task reads: the chunks of its splits, fetched by coroutines of their own.

One coroutine for each split that is being read calls ``Reader.read`` and puts the chunk into a short queue; the
task takes chunks from there. So a read that waits never keeps the task from its mails, reading goes on while the
task computes, and the reader never touches the state of the task. What a checkpoint has to remember is
``positions``: behind the last chunk that went into the operators, never what was read ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from aflow.connect import BadRecord, Chunk, Position, Reader, Source, Split
from aflow.errors import AflowError, SourceError
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.base import Operator, Output
from aflow.runtime.splits import SplitQueue
from aflow.runtime.turn import Turn

T = TypeVar("T")

#: Chunks read ahead of the task, for all splits of a subtask together: a hop of the event loop is shared by as many.
_READ_AHEAD: Final = 8


@dataclass(frozen=True, slots=True)
class _Begun:
    """A split begins."""

    split: str


@dataclass(frozen=True, slots=True)
class _Read:
    """A chunk of a split."""

    split: str
    chunk: Chunk[Any]


@dataclass(frozen=True, slots=True)
class _Ended:
    """A split has ended."""

    split: str


@dataclass(frozen=True, slots=True)
class _Awaiting:
    """There is no further split before one is discovered."""


_Fetched: TypeAlias = _Begun | _Read | _Ended | _Awaiting


class SourceInput:
    """The input of a task whose head is a source."""

    def __init__(
        self,
        name: str,
        source: Source[Any],
        splits: SplitQueue,
        *,
        subtask: int,
        head: Output,
        operators: Sequence[Operator],
        batch_records: int,
        turn: Turn,
    ) -> None:
        self._name = name
        self._source = source
        self._splits = splits
        self._subtask = subtask
        self._head = head
        #: The operators of the chain, which are told from which split the batches come.
        self._operators = operators
        self._batch_records = batch_records
        self._turn = turn
        self._on_input: Callable[[], None] = _nobody
        #: What was read and not processed yet, and what happened to splits in between.
        self._fetched: deque[_Fetched] = deque()
        #: Set while another chunk may be read ahead.
        self._room = asyncio.Event()
        self._room.set()
        #: Position behind the last chunk of each open split that went into the operators.
        self.positions: dict[str, Position] = {}
        #: The split of the last chunk.
        self._current: str | None = None
        #: Splits that have begun and not ended.
        self._open = 0
        #: True while no split can be had before one is discovered.
        self._awaiting = False
        self._idle = False
        self._fetching: asyncio.Task[None] | None = None
        self._fetching_over = False
        self._stopping = False
        #: False after a stop without drain: event time does not end, so windows stay open.
        self._ends_time = True
        self.finished = False

    @property
    def queued_records(self) -> int:
        """Records that were read ahead."""
        return sum(len(item.chunk.values) for item in self._fetched if isinstance(item, _Read))

    def start(self, on_input: Callable[[], None], group: asyncio.TaskGroup) -> None:
        """Begin to fetch in ``group``; ``on_input`` is called whenever there is something to take."""
        self._on_input = on_input
        self._fetching = group.create_task(
            self._fetch(), name=f"fetch {self._name}[{self._subtask}]"
        )
        self._fetching.add_done_callback(self._no_more)
        if self._stopping:
            self._fetching.cancel()

    def stop(self, *, drain: bool) -> None:
        """Read nothing more. What was read is processed; with ``drain`` event time then runs to its end."""
        self._stopping = True
        self._ends_time = drain
        if self._fetching is not None:
            self._fetching.cancel()

    def step(self) -> bool:
        """Hand the next chunk to the operators; False if there is none (yet)."""
        if not self._fetched:
            if self._fetching_over:
                self._finish()
            return False
        item = self._fetched.popleft()
        if len(self._fetched) < _READ_AHEAD:
            self._room.set()
        match item:
            case _Read(split, chunk):
                self._push(split, chunk)
            case _Begun(split):
                self._begin(split)
            case _Ended(split):
                self._end(split)
            case _Awaiting():
                self._awaiting = True
                self._rest()
        return True

    def _begin(self, split: str) -> None:
        self._open += 1
        self._awaiting = False
        if self._idle:
            self._idle = False
            self._head.active()
        for operator in self._operators:
            operator.on_split_start(split)

    def _end(self, split: str) -> None:
        self._open -= 1
        self.positions.pop(split, None)
        for operator in self._operators:
            operator.on_split_end(split)
        self._rest()

    def _rest(self) -> None:
        """Nothing to read before a split is discovered: readers must not wait for this subtask's watermark."""
        if self._awaiting and not self._open and not self._idle:
            self._idle = True
            self._head.idle()

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
            self._head.emit(Batch(values, times))
        self.positions[split] = chunk.position

    def _reject(self, records: Sequence[BadRecord]) -> None:
        tag = self._source.dead_letters
        if tag is None:
            raise SourceError(
                f"source {self._name!r} rejected records and declares no dead_letters to send them to; "
                f"the first one is {records[0].place}: {records[0].reason}"
            )
        self._head.side(tag.name, Batch(list(records)))

    def _finish(self) -> None:
        if not self.finished:
            self.finished = True
            if self._ends_time:
                self._head.watermark(MAX_TIMESTAMP)

    def _no_more(self, _: asyncio.Task[None]) -> None:
        self._fetching_over = True
        self._on_input()

    async def _fetch(self) -> None:
        """Read the splits that fall to this subtask, as many at a time as the source wants."""
        slots = asyncio.Semaphore(self._source.concurrency or _UNBOUNDED)
        async with asyncio.TaskGroup() as group:
            await slots.acquire()
            while (split := await self._next_split()) is not None:
                self._put(_Begun(split.id))
                group.create_task(self._read(split, slots), name=f"read {self._name} {split.id}")
                await slots.acquire()

    async def _next_split(self) -> Split | None:
        if self._splits.must_wait(self._subtask):
            self._put(_Awaiting())
        return await self._splits.next(self._subtask)

    async def _read(self, split: Split, slots: asyncio.Semaphore) -> None:
        reader = await self._guarded(split, self._source.reader(split, None))
        try:
            while True:
                await self._room.wait()
                chunk = await self._next_chunk(split, reader)
                if chunk is None:
                    break
                self._put(_Read(split.id, chunk))
                if self._turn.spent():
                    await self._turn.hand_over()
        finally:
            await reader.close()
        self._put(_Ended(split.id))
        slots.release()

    async def _next_chunk(self, split: Split, reader: Reader[Any]) -> Chunk[Any] | None:
        try:
            return await self._guarded(split, reader.read(self._batch_records))
        except asyncio.CancelledError:
            leftover = reader.leftover() if self._stopping else None
            if leftover is not None:
                self._put(_Read(split.id, leftover))
            raise

    async def _guarded(self, split: Split, work: Awaitable[T]) -> T:
        try:
            return await work
        except AflowError:
            raise
        except Exception as exc:
            raise SourceError(
                f"source {self._name!r} failed in split {split.id!r}: {type(exc).__name__}: {exc}"
            ) from exc

    def _put(self, item: _Fetched) -> None:
        self._fetched.append(item)
        if len(self._fetched) >= _READ_AHEAD:
            self._room.clear()
        if len(self._fetched) == 1:
            self._on_input()


_UNBOUNDED: Final = 2**31


def _nobody() -> None:
    """Stands in until the task has started."""
