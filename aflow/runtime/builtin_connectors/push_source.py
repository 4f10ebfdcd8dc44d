"""A source of records that the program pushes: from request handlers, callbacks, tests."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.errors import FlowDefinitionError, JobStopped, SourceError, SourceFull
from aflow.model.questions import Correlation, Question
from aflow.model.record_trace import RecordTracer
from aflow.model.time import Instant, Timestamp, to_timestamp
from aflow.runtime.builtin_connectors.asked_chunk import AskedChunk
from aflow.runtime.builtin_connectors.record_count import check_capacity, count_in

T = TypeVar("T")

_NAME: Final = "PushSource"
_SPLITS: Final = (Split("push"),)

_Record: TypeAlias = tuple[T, Timestamp | None]


class PushSource(Source[T], Generic[T]):
    """``await source.send(x)`` puts a record into the running job, with backpressure.

    At most ``capacity`` records are queued for the pipeline; then senders wait, and are served in their order. Records
    can be sent before the job runs, and are queued for it. ``close`` ends the input, and the job ends when it has
    processed what was sent. When the job ends first, waiting and later sends raise ``JobStopped``, until another job
    reads the source; records that a failed job had accepted and not read are then read first.

    One job reads it at a time. It belongs to the event loop that the job runs on; from another thread, use
    ``asyncio.run_coroutine_threadsafe(source.send(x), loop)``. Either all records carry timestamps or none.
    """

    bounded = False
    replayable = False
    max_parallelism = 1

    def __init__(self, *, capacity: int = 1024) -> None:
        self._inbox = _Inbox[T](check_capacity(capacity, _NAME))
        #: True if records carry timestamps; None before the first one.
        self._dated: bool | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Accepted records that the job has not read."""
        return len(self._inbox.records)

    @property
    def closed(self) -> bool:
        """True after ``close``: no more records can be sent."""
        return self._closed

    async def send(self, value: T, timestamp: Instant | None = None) -> None:
        """Send one record; wait while ``capacity`` records are queued.

        Raises ``JobStopped`` if the source is closed or its job has ended, and ``FlowDefinitionError`` for a naive
        ``datetime`` or a timestamp if earlier records had none (or the other way round). A send that is cancelled while
        it waits has sent nothing, unless it was accepted at the same moment.
        """
        record = self._record(value, timestamp)
        if self._inbox.has_room:
            self._inbox.put(record, None)
        else:
            await self._inbox.queue_up(deque((record,)), 1)

    async def send_many(self, values: Iterable[T]) -> None:
        """Send records in order, without those of other senders between them; wait and raise like ``send``.

        If it is cancelled, or the job ends, while it waits, those that were accepted before are kept, and a job that is
        stopped processes them. Then ``JobStopped`` tells their number, from the first on.
        """
        records = deque(self._record(value, None) for value in values)
        count = len(records)
        while records and self._inbox.has_room:
            self._inbox.put(records.popleft(), None)
        if records:
            await self._inbox.queue_up(records, count)

    def send_nowait(self, value: T, timestamp: Instant | None = None) -> None:
        """Send one record now. Raises ``SourceFull`` if it would have to wait, and the errors of ``send``."""
        record = self._record(value, timestamp)
        if not self._inbox.has_room:
            raise SourceFull(
                f"{_NAME} holds {self.waiting} records of a capacity of {self._inbox.capacity}: the pipeline is slower "
                f"than its input; use `await send(…)`, drop the record or raise capacity"
            )
        self._inbox.put(record, None)

    async def send_question(self, value: T, timestamp: Instant | None, question: Question) -> None:
        """Send the record of a question, as ``send``; used by ``Job.ask``."""
        record = self._record(value, timestamp)
        if self._inbox.has_room:
            self._inbox.put(record, question)
        else:
            await self._inbox.queue_up(deque((record,)), 1, question)

    def trace_with(self, tracer: RecordTracer | None, name: str) -> bool:
        """As ``TracedSource.trace_with``."""
        if tracer is not None and self._inbox.being_read:
            return False
        self._inbox.trace_with(tracer, name)
        return True

    def close(self) -> None:
        """End the input. Records that were sent, including those of waiting senders, are processed first."""
        self._closed = True
        self.bounded = True
        self._inbox.end()

    async def splits(self) -> Sequence[Split]:
        # A job that asks is about to read, so senders need not be refused.
        self._inbox.stopped = False
        return _SPLITS

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        """Open a reader. A position only continues the count: records that were read are not repeated."""
        start = count_in(position, _NAME)
        if self._inbox.being_read:
            raise SourceError(
                f"this {_NAME} is being read by a running job; give each job a {_NAME} of its own"
            )
        return _PushReader(self._inbox, start)

    async def on_job_end(self) -> None:
        """Refuse senders also if the job has ended before it has opened a reader, which would do so."""
        if not self._inbox.being_read:  # by another job, for which this one was refused
            self._inbox.stop()

    def _record(self, value: T, timestamp: Instant | None) -> _Record[T]:
        if self._closed:
            raise JobStopped(f"this {_NAME} is closed and takes no more records")
        if self._inbox.stopped:
            raise _job_ended()
        at = None if timestamp is None else to_timestamp(timestamp, what="timestamp")
        dated = at is not None
        if self._dated is None:
            self._dated = dated
        elif self._dated is not dated:
            raise FlowDefinitionError(
                f"{_NAME} was sent a record {'with' if dated else 'without'} a timestamp after records "
                f"{'without' if dated else 'with'} one; give every record a timestamp, or none"
            )
        return value, at


class _Sender(Generic[T]):
    """A sender that waits for room: its remaining records, and a future for the end of its wait."""

    __slots__ = ("correlations", "count", "records", "served")

    def __init__(
        self,
        records: deque[_Record[T]],
        count: int,
        correlations: deque[Correlation | None] | None,
        served: Future[None],
    ) -> None:
        self.records = records
        #: For each of ``records``; None if none of them is followed.
        self.correlations = correlations
        #: Records of the call, including those that were accepted at once.
        self.count = count
        self.served = served


class _Inbox(Generic[T]):
    """The queue between the senders and the reader. Futures are created on the loop that waits for them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        #: Accepted and not read yet. Never more than ``capacity``.
        self.records: deque[_Record[T]] = deque()
        #: The number of records that were taken.
        self._taken = 0
        #: By the number of their record, the first is 0: those of accepted records that were not taken, with a question
        #: or a trace.
        self._followed: dict[int, Correlation] = {}
        #: ``_put``, or ``_put_traced`` while records are traced, so that others cost nothing.
        self.put: Callable[[_Record[T], Question | None], None] = self._put
        self._tracer: RecordTracer | None = None
        #: The name of the source in the job that traces.
        self._name = ""
        #: Senders that wait for room, in their order. While there is one, ``records`` is full.
        self._senders: deque[_Sender[T]] = deque()
        #: The reader, while it waits for a record.
        self._wanted: Future[None] | None = None
        self._ended = False
        self.being_read = False
        #: True from the end of one job until the next one reads.
        self.stopped = False

    @property
    def has_room(self) -> bool:
        """True if a record can be accepted before the next await; it overtakes no sender, since none waits then."""
        return len(self.records) < self.capacity

    def trace_with(self, tracer: RecordTracer | None, name: str) -> None:
        self._tracer, self._name = tracer, name
        self.put = self._put if tracer is None else self._put_traced

    def _put(self, record: _Record[T], question: Question | None) -> None:
        if question is not None:
            self._followed[self._taken + len(self.records)] = Correlation(question)
        self.records.append(record)
        self._wake_reader()

    def _put_traced(self, record: _Record[T], question: Question | None) -> None:
        self._put_followed(record, self._correlation(question))

    def _put_followed(self, record: _Record[T], correlation: Correlation | None) -> None:
        if correlation is not None:
            self._followed[self._taken + len(self.records)] = correlation
        self.records.append(record)
        self._wake_reader()

    def _correlation(self, question: Question | None) -> Correlation | None:
        """Return what follows a record of the present sender; None for nearly all."""
        trace = None if self._tracer is None else self._tracer.sent(self._name)
        return None if question is None and trace is None else Correlation(question, trace)

    async def queue_up(
        self, records: deque[_Record[T]], count: int, question: Question | None = None
    ) -> None:
        """Wait until all ``records``, the last of ``count``, are accepted."""
        correlations = None
        if question is not None or self._tracer is not None:
            # Here, since later the context is not that of the sender.
            correlations = deque(self._correlation(question) for _ in records)
        sender = _Sender(records, count, correlations, get_running_loop().create_future())
        self._senders.append(sender)
        try:
            await sender.served
        finally:
            if sender in self._senders:  # cancelled
                self._senders.remove(sender)
            for correlation in sender.correlations or ():
                if correlation is not None:
                    correlation.withdraw()

    def end(self) -> None:
        self._ended = True
        self._wake_reader()

    def start(self) -> None:
        """Start: a job reads from now on."""
        self.being_read = True
        self.stopped = False

    def stop(self) -> None:
        """Refuse waiting senders: no job reads any more."""
        self.being_read = False
        self.stopped = True
        while self._senders:
            sender = self._senders.popleft()
            if not sender.served.done():
                sender.served.set_exception(_job_ended(sender.count, len(sender.records)))

    async def take(self, limit: int) -> tuple[Sequence[_Record[T]], Correlation | None]:
        """Return queued records, at most ``limit``; wait while there are none. Returns none at the end.

        A record with a correlation is returned alone, with it.
        """
        while not self.records and not self._ended:
            self._wanted = get_running_loop().create_future()
            await self._wanted
        count = min(limit, len(self.records))
        correlation = None
        if self._followed:
            # Numbers only grow, so the first one that was added is the smallest.
            first = next(iter(self._followed)) - self._taken
            if first == 0:
                count, correlation = 1, self._followed.pop(self._taken)
            else:
                count = min(count, first)
        taken = [self.records.popleft() for _ in range(count)]
        self._taken += count
        self._admit()
        return taken, correlation

    def take_all(self) -> Sequence[_Record[T]]:
        """Return all queued records, without their correlations."""
        taken = tuple(self.records)
        self._taken += len(taken)
        self.records.clear()
        self._followed.clear()
        return taken

    def _admit(self) -> None:
        """Accept records of waiting senders while there is room, and resume senders that have none left."""
        while self._senders and len(self.records) < self.capacity:
            sender = self._senders[0]
            if not sender.served.cancelled():
                followed = None if sender.correlations is None else sender.correlations.popleft()
                self._put_followed(sender.records.popleft(), followed)
                if sender.records:
                    continue
                sender.served.set_result(None)
            self._senders.popleft()

    def _wake_reader(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)


class _PushReader(Reader[T]):
    def __init__(self, inbox: _Inbox[T], position: int) -> None:
        self._inbox = inbox
        self._position = position
        inbox.start()

    async def read(self, limit: int) -> Chunk[T] | None:
        records, correlation = await self._inbox.take(limit)
        chunk = self._chunk(records)
        if chunk is None or correlation is None:
            return chunk
        if correlation.trace is not None:
            correlation.trace.begin()
        return AskedChunk(chunk.values, chunk.position, chunk.timestamps, correlation=correlation)

    def leftover(self) -> Chunk[T] | None:
        """Return all accepted records; none is accepted from now on."""
        self._inbox.stop()
        return self._chunk(self._inbox.take_all())

    async def close(self) -> None:
        self._inbox.stop()

    def _chunk(self, records: Sequence[_Record[T]]) -> Chunk[T] | None:
        if not records:
            return None
        self._position += len(records)
        times = [at for _, at in records if at is not None]
        return Chunk([value for value, _ in records], self._position, times or None)


def _job_ended(count: int = 1, refused: int = 1) -> JobStopped:
    """Return the error for a call that sent ``count`` records, the last ``refused`` of which no job takes."""
    what = "the record was not taken"
    if count > 1:
        taken = count - refused
        what = f"of the {count} records of send_many() the first {taken} were taken, and the others were not"
    return JobStopped(
        f"{what}: the job that read this {_NAME} has ended, or has failed and is being restarted "
        f"(then send {'it' if count == 1 else 'those'} later)"
    )
