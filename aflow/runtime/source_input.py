"""What a source task reads: the chunks of its splits, fetched by coroutines of their own.

One coroutine for each split that is being read calls ``Reader.read`` and puts the chunk into a short queue; the task takes
chunks from there. So a read that waits never keeps the task from its mails, reading goes on while the task computes, and the
reader never touches the state of the task. What a checkpoint has to remember is ``positions``: behind the last chunk that
went into the operators, never what was read ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.errors import AflowError, SourceError
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.base import Operator, Output
from aflow.runtime.splits import SplitQueue

#: Chunks read ahead of the task, for all splits of a subtask together.
_READ_AHEAD: Final = 2


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
    ) -> None:
        self._name = name
        self._source = source
        self._splits = splits
        self._subtask = subtask
        self._head = head
        #: The operators of the chain, which are told from which split the batches come.
        self._operators = operators
        self._batch_records = batch_records
        self._on_input: Callable[[], None] = _nobody
        #: What was read and not processed yet. A bare split: it begins; with None: it ends.
        self._fetched: deque[tuple[Split, Chunk[Any] | None] | Split] = deque()
        #: Set while another chunk may be read ahead.
        self._room = asyncio.Event()
        self._room.set()
        #: Position behind the last chunk of each open split that went into the operators.
        self.positions: dict[str, Position] = {}
        self._current: str | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._fetching_over = False
        self._stopping = False
        #: False after a stop without drain: event time does not end, so windows stay open.
        self._ends_time = True
        self.finished = False

    @property
    def queued_records(self) -> int:
        """Records that were read ahead."""
        return sum(
            len(item[1].values)
            for item in self._fetched
            if isinstance(item, tuple) and item[1] is not None
        )

    def start(self, on_input: Callable[[], None], group: asyncio.TaskGroup) -> None:
        """Begin to fetch in ``group``; ``on_input`` is called whenever there is something to take."""
        self._on_input = on_input
        self._fetching = group.create_task(self._fetch(), name=f"fetch {self._name}[{self._subtask}]")
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
            case (split, None):
                self._end(split)
            case (split, chunk):
                self._push(split, chunk)
            case split:
                for operator in self._operators:
                    operator.on_split_start(split.id)
        return True

    def _push(self, split: Split, chunk: Chunk[Any]) -> None:
        if self._current != split.id:
            self._current = split.id
            for operator in self._operators:
                operator.on_split(split.id)
        if chunk.rejected and self._source.dead_letters is not None:
            self._head.side(self._source.dead_letters.name, Batch(list(chunk.rejected)))
        if chunk.values:
            values = chunk.values if type(chunk.values) is list else list(chunk.values)
            times = None if chunk.timestamps is None else list(chunk.timestamps)
            self._head.emit(Batch(values, times))
        self.positions[split.id] = chunk.position

    def _end(self, split: Split) -> None:
        self.positions.pop(split.id, None)
        for operator in self._operators:
            operator.on_split_end(split.id)

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
            while (split := await self._splits.next(self._subtask)) is not None:
                self._put(split)
                group.create_task(self._read(split, slots), name=f"read {self._name} {split.id}")
                await slots.acquire()

    async def _read(self, split: Split, slots: asyncio.Semaphore) -> None:
        reader = await self._guarded(split, self._source.reader(split, None))
        try:
            while True:
                await self._room.wait()
                chunk = await self._next_chunk(split, reader)
                if chunk is None:
                    break
                self._put((split, chunk))
        finally:
            await reader.close()
        self._put((split, None))
        slots.release()

    async def _next_chunk(self, split: Split, reader: Reader[Any]) -> Chunk[Any] | None:
        try:
            return await self._guarded(split, reader.read(self._batch_records))
        except asyncio.CancelledError:
            leftover = reader.leftover() if self._stopping else None
            if leftover is not None:
                self._put((split, leftover))
            raise

    async def _guarded(self, split: Split, work: Any) -> Any:
        try:
            return await work
        except AflowError:
            raise
        except Exception as exc:
            raise SourceError(
                f"source {self._name!r} failed in split {split.id!r}: {type(exc).__name__}: {exc}"
            ) from exc

    def _put(self, item: tuple[Split, Chunk[Any] | None] | Split) -> None:
        self._fetched.append(item)
        if len(self._fetched) >= _READ_AHEAD:
            self._room.clear()
        if len(self._fetched) == 1:
            self._on_input()


_UNBOUNDED: Final = 2**31


def _nobody() -> None:
    """Stands in until the task has started."""
