"""A push source whose records survive a crash: they are in a log on disk before the sender is told."""

from __future__ import annotations

import asyncio
import os
import socket
from asyncio import get_running_loop
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, cast, overload

from anyio import to_thread

from aflow.connect import Position, Reader, Source, Split
from aflow.errors import FlowDefinitionError, JobStopped, SourceError, shown
from aflow.model.codecs import PLAIN, Codec, CodecError, codec_for, unguarded_decoder
from aflow.model.codecs.zoneless import zoneless_search
from aflow.model.questions import Question
from aflow.model.record_trace import RecordTracer
from aflow.model.time import Instant, Timestamp, positive_millis, to_millis
from aflow.runtime.builtin_connectors.durable_push.acknowledgements import Ack
from aflow.runtime.builtin_connectors.durable_push.arguments import (
    LEAST_BYTES,
    NAME,
    check_id,
    check_zones,
    checked_ack,
    checked_time,
    input_ended,
    job_ended,
)
from aflow.runtime.builtin_connectors.durable_push.open_log import (
    ID_BYTES,
    OVERHEAD,
    IdPlace,
    OpenLog,
)
from aflow.runtime.builtin_connectors.durable_push.reader import LoggedReader, read_position
from aflow.runtime.checkpoints.directory.files import DISK, Files
from aflow.runtime.checkpoints.directory.threads import in_a_task
from aflow.runtime.clock import SystemClock, clock_on
from aflow.runtime.current_job import RunningJob, current_job
from aflow.runtime.record_log.log import IDENTITY, RecordLog, SeenId
from aflow.runtime.record_log.segments import MAX_RECORD, LogRecord
from aflow.state.layouts import One, check_description, description

T = TypeVar("T")

_SPLITS: Final = (Split("log"),)
#: Before Python 3.12 an enum searches for its members at each access.
_MEMORY: Final = Ack.MEMORY
_LOGGED: Final = Ack.LOGGED

#: Segments of a full log: the last one can never be removed.
_SEGMENTS: Final = 16
_LARGEST_SEGMENT: Final = 16 << 20


class DurablePushSource(Source[T], Generic[T]):
    """``await source.send(x)`` returns when the record is on disk, and a job processes it, after a crash too.

    The records are in a log in the folder ``path``, which one process uses at a time. ``of`` is their type, as for
    state; None: values of plain Python types. A job that reads the source needs checkpoints: they store its position
    in the log, and records that all kept checkpoints cover are removed from the disk.

    Records are accepted before a job runs, while it restarts, and after it has failed. Those of an earlier process that
    no checkpoint covers are processed first. The source belongs to the event loop on which it is first used. The log is
    closed at the end of the job that reads it; ``async with source`` keeps it open for longer.

    ``ack`` is the promise of ``send``. The log grows to ``max_bytes`` (1,000 or more) at most; then senders wait for
    ``full_timeout`` and get ``SourceFull``. Ids are remembered for ``id_window``. Raises ``FlowDefinitionError`` for
    invalid arguments.
    """

    bounded = False
    replayable = True
    max_parallelism = 1
    needs_checkpoints = True

    @overload
    def __init__(
        self: DurablePushSource[Any],
        path: str | PathLike[str],
        *,
        of: None = None,
        ack: Ack = Ack.LOGGED,
        max_bytes: int = 1 << 30,
        full_timeout: timedelta = timedelta(seconds=1),
        id_window: timedelta = timedelta(minutes=10),
    ) -> None: ...

    @overload
    def __init__(
        self,
        path: str | PathLike[str],
        *,
        of: type[T],
        ack: Ack = Ack.LOGGED,
        max_bytes: int = 1 << 30,
        full_timeout: timedelta = timedelta(seconds=1),
        id_window: timedelta = timedelta(minutes=10),
    ) -> None: ...

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        of: type[T] | None = None,
        ack: Ack = Ack.LOGGED,
        max_bytes: int = 1 << 30,
        full_timeout: timedelta = timedelta(seconds=1),
        id_window: timedelta = timedelta(minutes=10),
    ) -> None:
        if not fspath(path):
            raise FlowDefinitionError(f"{NAME} needs a folder, not ''")
        if type(max_bytes) is not int or max_bytes < LEAST_BYTES:
            raise FlowDefinitionError(
                f"max_bytes of {NAME} must be a number of at least {LEAST_BYTES:,} bytes, not {shown(max_bytes)}"
            )
        if to_millis(full_timeout, what="full_timeout") < 0:
            raise FlowDefinitionError(f"full_timeout must not be negative, but is {full_timeout}")
        self._folder = Path(path)
        self._codec: Codec[T] = cast("Codec[T]", PLAIN) if of is None else codec_for(of)
        self._encode, self._decode = self._codec.encode, unguarded_decoder(self._codec)
        #: None if no record can contain a datetime without a zone.
        self._search_zoneless = zoneless_search(of)
        self._layout = One("log", self._codec)
        self._ack = checked_ack(ack)
        self._max_bytes = max_bytes
        self._full_timeout = full_timeout.total_seconds()
        self._id_window = positive_millis(id_window, what="id_window")
        self._files: Files = DISK
        #: The log, while it is open; None also while it is being closed.
        self._opened: OpenLog[T] | None = None
        #: Held while the log is being opened or closed.
        self._changing = asyncio.Lock()
        #: True inside of ``async with``.
        self._kept_open = False
        #: True if records carry timestamps; None before the first one.
        self._dated: bool | None = None
        #: True from the end of one job until the next one reads: no sender waits for a job then.
        self._stopped = False
        self._ended = False
        #: The job that reads it, from its first reader to its end, also between restarts; None in a test without a job.
        self._job: RunningJob | None = None
        self.being_read = False
        #: The tracer of the job that reads it, and the name of the source there.
        self._traced_by: tuple[RecordTracer | None, str] = (None, "")

    # ------------------------------------------------------------------------------------------------ sending

    async def send(
        self,
        value: T,
        timestamp: Instant | None = None,
        *,
        id: str | None = None,
        ack: Ack | None = None,
    ) -> bool:
        """Send one record; return when it meets the promise ``ack`` (default: that of the source).

        Return False if a record with the same ``id`` was accepted within ``id_window``: then nothing is added, and the
        promise is that of the earlier record. True otherwise.

        Raises ``SourceFull`` if the log is full, ``SourceError`` if the record cannot be written, ``JobStopped`` after
        ``end`` or if the job ends before a promise that only a job can keep (the record is in the log then), and
        ``FlowDefinitionError`` for a value that is not ``of`` the declared type, or contains a ``datetime`` without a
        time zone, unless the type declares it. After a cancellation or a
        ``SourceError`` that says so, it is unknown whether the log has the record: send it again with its id.
        """
        # Hot path (benchmark `durable_push`): once for each record.
        record, value = self._encoded(value, timestamp, id)
        size = len(record[0]) + (OVERHEAD if id is None else OVERHEAD + ID_BYTES)
        promise = self._ack if ack is None else checked_ack(ack)
        while True:
            opened = self._opened
            if opened is None or opened.thread != get_ident() or not opened.is_running():
                opened = await self._open()
            if self._ended:
                raise input_ended()
            if id is not None and (place := opened.repeated(id)) is not None:
                await self._meet(opened, promise, place, shared=True)
                return False
            if opened.has_room(size):
                break
            await opened.room(size, self._full_timeout)
        if id is not None:
            position = opened.send_named(record, value, size, id)
            await self._meet(opened, promise, position, shared=True)
        elif promise is _MEMORY:
            opened.send_all((record,), (value,), size, waits=False)
        else:
            position = opened.send(record, value, size)
            await (position if promise is _LOGGED else self._meet(opened, promise, position))
        return True

    async def send_question(self, value: T, timestamp: Instant | None, question: Question) -> None:
        """Send the record of a question, as ``send``; used by ``Job.ask``."""
        record, value = self._encoded(value, timestamp, None)
        size = len(record[0]) + OVERHEAD
        while not (opened := await self._open()).has_room(size):
            await opened.room(size, self._full_timeout)
        if self._ended:
            raise input_ended()
        opened.ask(record, value, size, question)

    async def send_many(self, values: Iterable[T], *, ack: Ack | None = None) -> None:
        """Send records in order, all of them or none, with one sync; wait and raise like ``send``."""
        encoded = [self._encoded(value, None, None) for value in values]
        promise = self._ack if ack is None else checked_ack(ack)
        size = sum(len(record[0]) + OVERHEAD for record, _ in encoded)
        if size > MAX_RECORD:
            raise FlowDefinitionError(
                f"records of {size:,} bytes cannot be sent at once; send fewer than {MAX_RECORD:,} bytes at a time"
            )
        if not encoded:
            return
        records, decoded = zip(*encoded, strict=True)
        while not (opened := await self._open()).has_room(size):
            await opened.room(size, self._full_timeout)
        if self._ended:
            raise input_ended()
        position = opened.send_all(records, decoded, size, waits=promise is not Ack.MEMORY)
        if position is not None:
            await self._meet(opened, promise, position, count=len(records))

    def trace_with(self, tracer: RecordTracer | None, name: str) -> bool:
        """As ``TracedSource.trace_with``."""
        is_gone = self._opened is not None and self._opened.loop.is_closed()
        if tracer is not None and self._job is not None and not is_gone:
            return False
        self._traced_by = (tracer, name)
        if self._opened is not None:
            self._opened.trace_with(tracer, name)
        return True

    def send_nowait(
        self, value: T, timestamp: Instant | None = None, *, id: str | None = None
    ) -> bool:
        """Send one record with the promise ``Ack.MEMORY``, and return at once, as ``send`` does.

        Raises ``SourceFull`` if it would have to wait, ``JobStopped`` if the log is not open (``async with source``, or
        a running job, opens it), and the other errors of ``send``.
        """
        record, value = self._encoded(value, timestamp, id)
        size = len(record[0]) + (OVERHEAD if id is None else OVERHEAD + ID_BYTES)
        opened = self._here()
        if opened is None:
            raise JobStopped(
                f"{NAME} is not open; use `async with source:`, start its job, or await send()"
            )
        if self._ended:
            raise input_ended()
        if id is not None and opened.repeated(id) is not None:
            return False
        if not opened.has_room(size):
            raise opened.full()
        if id is None:
            opened.send_all((record,), (value,), size, waits=False)
        else:
            _ = opened.send_named(record, value, size, id)
        return True

    async def end(self) -> None:
        """End the input for good: the job that reads it ends when it has processed everything that was sent.

        The end is stored in the log, so later processes cannot send either.
        """
        opened = await self._open()
        await in_a_task(partial(self._end_input, opened), shielded=True)

    async def _end_input(self, opened: OpenLog[T]) -> None:
        self._ended = True
        try:
            await opened.end_input()
        except SourceError:
            self._ended = False
            raise
        self.bounded = True

    def _encoded(
        self, value: T, timestamp: Instant | None, name: str | None
    ) -> tuple[LogRecord, T]:
        """Return a record as it is written, and its value as a job gets it, now or from the log."""
        if (
            self._ended
        ):  # asked again when the log is open: an earlier process may have ended the input
            raise input_ended()
        if name is not None:
            check_id(name)
        at = None if timestamp is None else checked_time(timestamp)
        if self._dated is not (at is not None):
            self._check_dated(at is not None)
        try:
            data = self._encode(value)
            # The job gets what a replay would give it. This also finds wrong types inside of the value.
            try:
                value = self._decode(data)
            except Exception:
                value = self._codec.decode(data)  # describes the error
        except CodecError as exc:
            raise FlowDefinitionError(f"{NAME} cannot log the record: {exc}") from exc
        if (search := self._search_zoneless) is not None:
            check_zones(value, data, search)
        if len(data) > MAX_RECORD:
            raise FlowDefinitionError(
                f"{NAME} cannot log a record of {len(data):,} bytes; the limit is {MAX_RECORD:,}"
            )
        self._dated = at is not None
        return (data, at, name), value

    def _check_dated(self, dated: bool) -> None:
        if self._dated is not None:
            raise FlowDefinitionError(
                f"{NAME} was sent a record {'with' if dated else 'without'} a timestamp after records "
                f"{'without' if dated else 'with'} one; give every record a timestamp, or none"
            )

    async def _meet(
        self,
        opened: OpenLog[T],
        promise: Ack,
        place: IdPlace,
        *,
        count: int = 1,
        shared: bool = False,
    ) -> None:
        """Wait until ``count`` records at ``place`` meet the promise."""
        if promise is Ack.MEMORY:
            return
        if isinstance(place, int):
            first = place
        else:
            # Others may wait for the same record, and must not be cancelled with this sender.
            first = await (asyncio.shield(place) if shared else place)
        if promise is Ack.LOGGED:
            return
        waits = opened.checkpointed if promise is Ack.CHECKPOINTED else opened.processed
        await waits.until(first + count)

    # ------------------------------------------------------------------------------------------- opening, closing

    async def __aenter__(self) -> DurablePushSource[T]:
        """Open the log, and keep it open until the end of the block, whether a job runs or not."""
        self._kept_open = True
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept_open = False
        await self.aclose()

    async def aclose(self) -> None:
        """Write what was accepted, and let other processes use the log. A later ``send`` opens it again.

        While a job reads the source, nothing is done: the log is closed at the end of the job.
        """
        self._here()
        async with self._changing:
            if self.being_read or self._job is not None:
                return
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.fail_waits(job_ended())
                await in_a_task(opened.close, shielded=True)

    async def _open(self) -> OpenLog[T]:
        if (opened := self._here()) is not None:
            return opened
        async with self._changing:
            if self._opened is None:
                # Completed if the sender is cancelled: the log would stay locked, and belong to nothing.
                await in_a_task(self._open_log, shielded=True)
            assert self._opened is not None
            return self._opened

    def _here(self) -> OpenLog[T] | None:
        """Return the log if it is open. Raises ``SourceError`` on another event loop than the one that opened it."""
        opened = self._opened
        if opened is None:
            return None
        if opened.loop.is_closed():
            opened.close_now()
            self._opened, self._changing = None, asyncio.Lock()
            self._job, self.being_read = None, False  # a job of that loop cannot continue
            return None
        if opened.loop is not _running_loop():
            raise SourceError(
                f"this {NAME} is open on another event loop, or thread; call its methods there: "
                f"asyncio.run_coroutine_threadsafe(source.send(x), loop)"
            )
        return opened

    async def _open_log(self) -> None:
        loop = get_running_loop()
        clock = clock_on(loop, SystemClock())
        log = RecordLog(
            self._folder,
            self._files,
            description=description(self._layout),
            identity=os.urandom(IDENTITY // 2).hex(),
            owner=f"process {os.getpid()} on {socket.gethostname()}".encode(),
            segment_bytes=max(1, min(_LARGEST_SEGMENT, self._max_bytes // _SEGMENTS)),
        )
        seen = await to_thread.run_sync(partial(self._prepare, log, clock.now()))
        if log.ended:
            self._ended = self.bounded = True
        opened = self._opened = OpenLog[T](
            log, clock, max_bytes=self._max_bytes, id_window=self._id_window, seen=seen
        )
        opened.trace_with(*self._traced_by)
        if log.ended:
            opened.tail.end()
        if self._stopped:
            opened.fail_waits(job_ended())

    def _prepare(self, log: RecordLog, now: Timestamp) -> list[SeenId]:
        """Open the log in a thread."""
        log.open()
        try:
            for stored in log.descriptions:
                check_description(self._layout, stored, what=f"the log in {self._folder}")
            return log.ids(now - self._id_window)
        except BaseException:
            log.abandon()
            raise

    # -------------------------------------------------------------------------------------------------- reading

    async def splits(self) -> Sequence[Split]:
        opened = await self._open()
        self._stopped = False
        opened.resume_waits()
        return _SPLITS

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        """Open a reader; without a position, at the oldest record in the log."""
        opened = await self._open()
        start = opened.log.start
        if position is not None:
            identity, start = read_position(position)
            # A log without records is not on disk, so it has another identity in the next process. A job that has read
            # nothing can continue in any log that has its first record.
            if identity != opened.log.identity and (start or opened.log.start):
                raise SourceError(
                    f"the checkpoint continues in another log than that in {self._folder}; restore its files, or start "
                    f"without the checkpoint"
                )
        if start > opened.end:
            raise SourceError(
                f"the checkpoint continues at record {start} of the log in {self._folder}, which ends at record "
                f"{opened.end}: records were lost; restore its files, or start without the checkpoint"
            )
        if start < opened.log.start:
            raise SourceError(
                f"the checkpoint continues at record {start} of the log in {self._folder}, which begins at record "
                f"{opened.log.start}: later checkpoints of this job have covered the records between: restore one"
            )
        job = current_job()
        if self.being_read or (self._job is not None and self._job is not job):
            raise SourceError(
                f"this {NAME} is being read by a running job; give each job a {NAME} of its own"
            )
        self.being_read, self._job = True, job
        if position is not None:
            opened.checkpointed.reach(start)
        opened.continue_from(start)
        return LoggedReader(opened, self._codec, start, self._on_reader_closed)

    def _on_reader_closed(self) -> None:
        self.being_read = False

    async def on_job_end(self) -> None:
        """Fail senders that wait for the job, and close the log unless ``async with`` keeps it open."""
        if self._job is not None and self._job is not current_job():
            return  # it belongs to another job, for which this one was refused
        self._job = None
        self._stopped = True
        if not self._kept_open:
            await self.aclose()
        elif self._opened is not None:
            self._opened.fail_waits(job_ended())


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return get_running_loop()
    except RuntimeError:
        return None
