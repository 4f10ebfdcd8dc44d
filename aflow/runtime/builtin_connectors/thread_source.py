"""A source of records from an iterator that blocks: a client without async API, a pipe, a generator that sleeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextvars import copy_context
from inspect import isgenerator
from itertools import islice
from threading import Event, Thread
from typing import Final, Generic, TypeVar

from anyio import CapacityLimiter, to_thread

from aflow.connect import Chunk, Position, Reader, Split
from aflow.model.batch import BATCH_RECORDS
from aflow.runtime.builtin_connectors.record_count import (
    OneIterableSource,
    count_in,
    read_failed,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_NAME: Final = "ThreadSource"

#: Seconds that a stop waits for the thread to pass on its last records; in vain if the iterator blocks.
_GRACE: Final = 0.05


class ThreadSource(OneIterableSource[T_co]):
    """Reads ``iterable`` in one thread of its own, at most 1,024 records ahead of the pipeline.

    The iterator runs in that thread only, in a copy of the context (``contextvars``) of the job. Records that are ready
    are passed on as one chunk, also while the iterator blocks for the next record. Position and replayability are those
    of ``IterableSource``.

    A stop takes the records that the thread has read ahead; later records of the iterator are not taken. A call that
    blocks cannot be interrupted: if the job ends meanwhile, it does not wait for the thread, which ends (and closes the
    iterator, if that is a generator) as soon as the call returns. It does not prevent the exit of the process.
    """

    _split = "thread"

    def __init__(self, iterable: Iterable[T_co]) -> None:
        super().__init__(iterable)

    async def reader(self, split: Split, position: Position | None) -> Reader[T_co]:
        """Open a reader; the thread starts with the first read."""
        start = count_in(position, _NAME)
        self._origin.open()
        return _ThreadReader(_Pump(self._iterable, start))


class _Pump(Generic[T]):
    """The thread, and its shared state with the reader. Each attribute has one writer, named beside it."""

    def __init__(self, iterable: Iterable[T], start: int) -> None:
        self._iterable = iterable
        self._start = start
        #: The thread appends, the reader takes.
        self.records: deque[T] = deque()
        #: By the thread: the number of the first ``start`` records that it has skipped.
        self.skipped = 0
        #: By the thread: the error that ended it, if it was not the end of the iterable. Set before ``over``.
        self.failure: BaseException | None = None
        #: By the thread: it appends no more and runs no code of the user.
        self.over = Event()
        #: By the reader: no more records are wanted.
        self.closed = False
        #: Set when there may be something for the reader: records, or ``over``. The reader clears it before it checks.
        self.news = Event()
        #: Set when there may be room for more records. The thread clears it before it checks.
        self.room = Event()
        #: By the thread: it waits for room, so it will notice ``closed`` at once.
        self.parked = False
        # A daemon: one that blocks for ever must not prevent the exit of the process.
        self.thread = Thread(
            target=copy_context().run, args=(self._run,), name="aflow ThreadSource", daemon=True
        )

    def _run(self) -> None:
        try:
            self._hand_over()
        except BaseException as exc:  # of any class: the reader raises it in the job
            self.failure = exc
        self.over.set()
        self.news.set()

    def _hand_over(self) -> None:
        iterator = iter(self._iterable)
        try:
            for _ in islice(iterator, self._start):
                self.skipped += 1
                if self.closed:
                    return
            for value in iterator:
                self.records.append(value)
                if not self.news.is_set():
                    self.news.set()
                if len(self.records) >= BATCH_RECORDS:
                    self._wait_for_room()
                if self.closed:  # otherwise the iterator would be asked once more, and might block
                    return
        finally:
            if isgenerator(iterator):
                iterator.close()

    def _wait_for_room(self) -> None:
        self.room.clear()
        self.parked = True
        if len(self.records) >= BATCH_RECORDS and not self.closed:
            self.room.wait()
        self.parked = False


class _ThreadReader(Reader[T_co]):
    def __init__(self, pump: _Pump[T_co]) -> None:
        self._pump = pump
        self._handed_out = 0
        # Waiting for the thread must not use up the threads of the host.
        self._limiter = CapacityLimiter(1)

    async def read(self, limit: int) -> Chunk[T_co] | None:
        pump = self._pump
        if pump.thread.ident is None:
            pump.thread.start()
        while True:
            pump.news.clear()
            over = pump.over.is_set()  # before the records: none are added afterwards
            if pump.records:
                return self._take(limit)
            if over:
                self._check_that_it_ended_by_itself()
                return None
            await to_thread.run_sync(pump.news.wait, abandon_on_cancel=True, limiter=self._limiter)

    def _take(self, limit: int) -> Chunk[T_co]:
        records = self._pump.records
        values = [records.popleft() for _ in range(min(limit, len(records)))]
        self._pump.room.set()
        self._handed_out += len(values)
        return Chunk(values, self._pump.skipped + self._handed_out)

    def _check_that_it_ended_by_itself(self) -> None:
        failure = self._pump.failure
        if failure is not None:
            position = self._pump.skipped + self._handed_out
            raise read_failed(_NAME, position, failure) from failure

    def leftover(self) -> Chunk[T_co] | None:
        """End the thread, and return its records: an iterator does not repeat them."""
        pump = self._pump
        if pump.thread.ident is None:
            return None
        pump.closed = True
        pump.room.set()
        pump.over.wait(_GRACE)
        return self._take(len(pump.records)) if pump.records else None

    async def close(self) -> None:
        """End the thread. Waits for it unless it is inside the iterator, which may block for ever."""
        pump = self._pump
        pump.closed = True
        waits_for_room = pump.parked
        pump.room.set()
        pump.news.set()  # ends the wait of a read that was cancelled
        if waits_for_room:
            await to_thread.run_sync(pump.over.wait, abandon_on_cancel=True, limiter=self._limiter)
