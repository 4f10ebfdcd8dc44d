"""A sink with an async iterator over the results: ``async for result in sink``."""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from enum import Enum
from types import TracebackType
from typing import Final, Generic, TypeVar

from aflow.connect import Sink, Writer, WriterContext
from aflow.errors import JobStopped, SinkError, described
from aflow.model.batch import Batch
from aflow.runtime.builtin_connectors.record_count import check_capacity

T = TypeVar("T")

_NAME: Final = "ResultSink"


class ResultSink(Sink[T], Generic[T]):
    """Passes results to one consumer: ``async for result in sink``.

    When ``capacity`` records wait for the consumer, the pipeline waits too (a batch is accepted whole, so each subtask
    may exceed it by one). That holds from the start of the job: without an iteration, the pipeline stops.

    The iteration ends when the job has ended, and raises ``JobStopped`` after the last result if the job failed or was
    cancelled. If the job is restarted, it continues, and repeats the results since the last checkpoint. A consumer that
    ends early (``break``, ``aclose``) does not stop the job: results that it has not taken are dropped, and counted in
    ``dropped``.

    Serves one step of one job; use ``union`` for several streams.
    """

    def __init__(self, *, capacity: int = 1024) -> None:
        self._outbox = _Outbox[T](check_capacity(capacity, _NAME))

    @property
    def dropped(self) -> int:
        """Results that the consumer had not taken when it ended, and later ones."""
        return self._outbox.dropped

    def fail(self, cause: BaseException) -> None:
        """End the iteration, after the written results, with ``JobStopped`` from ``cause``. For the job that fails.

        Closing the writers of a failed job also ends it, but then the error has no cause. Only the first cause counts.
        """
        self._outbox.fail(cause)

    def outlive_failures(self) -> None:
        """Continue when the writers are closed, since the job will be restarted. Only ``fail`` ends the iteration then.

        For the job. Results since its last checkpoint are repeated.
        """
        self._outbox.lasting = True

    def release(self) -> None:
        """Let the pipeline not wait for the consumer any longer. For the job whose sources have stopped.

        Records in flight are kept, whatever the capacity, and can be iterated over even after the end of the job.
        """
        self._outbox.release()

    async def writer(self, context: WriterContext) -> Writer[T]:
        """Open a writer. Raises ``SinkError`` for a second step or job; a failed job may be restarted."""
        return _ResultWriter(self._outbox, context)

    def __aiter__(self) -> Results[T]:
        """Become the consumer. Raises ``SinkError`` if there is, or was, one already."""
        if self._outbox.consumer is not _Consumer.AWAITED:
            raise SinkError(
                f"this {_NAME} {self._outbox.consumer.value}, and it serves only one; to look at results twice, "
                f"keep them, or give the stream a second {_NAME}"
            )
        return Results(self._outbox)


class _Consumer(Enum):
    AWAITED = "has no consumer yet"
    PRESENT = "has a consumer"
    GONE = "was left by its consumer"


class _Outbox(Generic[T]):
    """The queue between the writers and the consumer. Futures are created on the loop that waits for them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.records: deque[T] = deque()
        self.dropped = 0
        self.consumer = _Consumer.AWAITED
        #: The step that writes; None before a writer was opened.
        self._step: WriterContext | None = None
        #: Subtasks whose writers are open.
        self._open: set[int] = set()
        #: Subtasks that have written everything. The iteration ends when all have.
        self._flushed: set[int] = set()
        self._failed = False
        #: True if a job that fails is restarted: then closed writers do not end the iteration.
        self.lasting = False
        self._cause: BaseException | None = None
        #: True once writers do not wait for the consumer any more.
        self._released = False
        #: Writers that wait for room.
        self._blocked: list[Future[None]] = []
        #: The consumer, while it waits for a record or the end.
        self._wanted: Future[None] | None = None

    # ------------------------------------------------------------------------------------------------ for the writers

    def open(self, context: WriterContext) -> None:
        step = self._step
        if step is not None and step.name != context.name:
            raise SinkError(
                f"this {_NAME} is written by step {step.name!r} and cannot serve {context.name!r} as well; "
                f"give each step a {_NAME} of its own, or write the union of the streams"
            )
        if context.subtask in self._open or self._complete:
            raise SinkError(
                f"this {_NAME} already serves another job under the name {context.name!r}; "
                f"give each job a {_NAME} of its own"
            )
        if self._failed and not self._open:  # the failed job is restarted
            self._flushed.clear()
            self._failed, self._cause = False, None
            self._released = False
        self._step = context
        self._open.add(context.subtask)

    def put(self, values: list[T]) -> Awaitable[None] | None:
        if self.consumer is _Consumer.GONE:
            self.dropped += len(values)
            return None
        self.records.extend(values)
        self._wake_consumer()
        if self._released or len(self.records) < self._capacity:
            return None
        room: Future[None] = get_running_loop().create_future()
        self._blocked.append(room)
        return room

    def flushed(self, subtask: int) -> None:
        self._flushed.add(subtask)
        self._wake_consumer()

    def close(self, subtask: int) -> None:
        self._open.discard(subtask)
        if subtask not in self._flushed and not self.lasting:
            self._failed = True
            self._wake_consumer()

    def release(self) -> None:
        self._released = True
        self._let_writers_go_on()

    def fail(self, cause: BaseException) -> None:
        self._failed = True
        if self._cause is None:
            self._cause = cause
        self._wake_consumer()

    # ----------------------------------------------------------------------------------------------- for the consumer

    async def next(self) -> T:
        """Return the next record. Raises ``StopAsyncIteration`` at the end and ``JobStopped`` after a failure."""
        while not self.records:
            if self._failed:
                raise self._job_stopped() from self._cause
            if self._complete or self.consumer is _Consumer.GONE:
                raise StopAsyncIteration
            await self._news()
        value = self.records.popleft()
        if self._blocked and len(self.records) < self._capacity:
            self._let_writers_go_on()
        return value

    def leave(self) -> None:
        """End the consumer, and let writers that wait for it continue."""
        if self.consumer is _Consumer.GONE:
            return
        self.consumer = _Consumer.GONE
        self.dropped += len(self.records)
        self.records.clear()
        self._let_writers_go_on()
        self._wake_consumer()

    @property
    def _complete(self) -> bool:
        return self._step is not None and len(self._flushed) == self._step.parallelism

    def _job_stopped(self) -> JobStopped:
        match self._cause:
            case None:
                reason = ""
            case CancelledError():
                reason = ": the job was cancelled"
            case cause:
                reason = f": {described(cause)}"
        return JobStopped(
            f"the job ended before its results were complete; those up to here are valid{reason}"
        )

    async def _news(self) -> None:
        if self._wanted is not None:
            raise SinkError(
                f"two tasks wait for the next result of one {_NAME}; let one of them distribute"
            )
        self._wanted = get_running_loop().create_future()
        try:
            await self._wanted
        finally:
            self._wanted = None

    def _wake_consumer(self) -> None:
        _resolve(self._wanted)

    def _let_writers_go_on(self) -> None:
        for room in self._blocked:
            _resolve(room)
        self._blocked.clear()


class Results(AsyncIterator[T], Generic[T]):
    """The results of a step, one at a time, for one consumer, which ends with ``aclose`` or by dropping the object.

    ``async with results:`` calls ``aclose`` at the end of the block. A consumer that takes no more results without
    ending, and keeps the object, stops the pipeline once ``capacity`` records wait.
    """

    def __init__(self, outbox: _Outbox[T]) -> None:
        self._outbox = outbox
        outbox.consumer = _Consumer.PRESENT

    def __aiter__(self) -> Results[T]:
        return self

    async def __anext__(self) -> T:
        return await self._outbox.next()

    async def __aenter__(self) -> Results[T]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Take no more results: the pipeline continues, and its further results are dropped. Can be called again."""
        self._outbox.leave()

    def __del__(self) -> None:
        # A `break` out of `async for` leaves no other trace, and the pipeline must not wait for ever.
        self._outbox.leave()


class _ResultWriter(Writer[T]):
    def __init__(self, outbox: _Outbox[T], context: WriterContext) -> None:
        outbox.open(context)
        self._outbox = outbox
        self._subtask = context.subtask

    def write(self, batch: Batch[T]) -> Awaitable[None] | None:
        return self._outbox.put(batch.values)

    async def prepare(self, checkpoint: int) -> None:
        """Do nothing: results are passed on at once, and ``flush`` tells that there are no more."""

    async def flush(self) -> None:
        self._outbox.flushed(self._subtask)

    async def close(self) -> None:
        self._outbox.close(self._subtask)


def _resolve(waiting: Future[None] | None) -> None:
    # A loop that was closed has no waiting coroutine, and a callback could not be scheduled on it.
    if waiting is not None and not waiting.done() and not waiting.get_loop().is_closed():
        waiting.set_result(None)
