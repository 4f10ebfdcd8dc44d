"""A log that is open, as the event loop sees it: records on their way to the disk, ids, and the size limit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import get_ident
from typing import Final, Generic, TypeAlias, TypeVar

from aflow.errors import SourceError, SourceFull
from aflow.machines.recent_ids import RecentIds
from aflow.model.questions import Followed, Question
from aflow.model.record_trace import RecordTracer
from aflow.model.time import Clock
from aflow.runtime import log_events
from aflow.runtime.builtin_connectors.durable_push.acknowledgements import Waits
from aflow.runtime.builtin_connectors.durable_push.tail import Logged, Tail
from aflow.runtime.record_log.appender import GroupWritten, LogAppender, LogGroup
from aflow.runtime.record_log.log import NotLogged, RecordLog, SeenId
from aflow.runtime.record_log.segments import BLOCK_BYTES, LogRecord

T = TypeVar("T")

#: Bytes of records that wait to be written; senders wait while there are more.
_WAITING_BYTES: Final = 16 << 20

#: The most bytes that a record without id has in the log besides its value: timestamp, lengths, the header of a block.
OVERHEAD: Final = 72

#: The most bytes of an id: four for each of 256 characters, and its length.
ID_BYTES: Final = 1027


IdPlace: TypeAlias = "asyncio.Future[int] | int"
"""The position of a record with an id, or a future of it."""


class OpenLog(Generic[T]):
    """Accepts records for a log that is open, on the event loop that opened it."""

    def __init__(
        self,
        log: RecordLog,
        clock: Clock,
        *,
        max_bytes: int,
        id_window: int,
        seen: Sequence[SeenId],
    ) -> None:
        """``seen`` are the ids of the window that are in the log."""
        self.loop: Final = asyncio.get_running_loop()
        #: The log is used on its own loop where both are those of the caller. ``get_running_loop`` asks the system for
        #: the process each time before Python 3.12.
        self.thread: Final = get_ident()
        self.is_running: Final = self.loop.is_running
        self.log: Final = log
        self._clock = clock
        #: Without the header of another segment.
        self._max_bytes = max_bytes - log.header_size
        self._appender = LogAppender[T](log, clock, self.loop, self._on_written)
        self._create_future = self.loop.create_future
        #: None while no records are traced.
        self._tracer: RecordTracer | None = None
        #: The name of the source in the job that traces.
        self._name = ""
        self.tail: Final = Tail[T]()
        self.checkpointed: Final = Waits()
        self.processed: Final = Waits()
        #: By the position of their record: questions without an answer, and traces of records not yet processed.
        self.followed: Final[dict[int, Followed]] = {}
        #: Positions of followed records that the reader has not reached, ascending. Some may not be followed any more.
        self.unread: deque[int] = deque()
        #: The position after the last record that is written.
        self.end = log.end
        # Only what checkpoints cover was removed.
        self.checkpointed.reach(log.start)
        self._bytes = log.size
        #: Bytes of records that are on their way.
        self._waiting_bytes = 0
        #: True once no more records are accepted here.
        self._over = False
        #: Senders that wait for room.
        self._blocked: set[asyncio.Future[None]] = set()
        self._ids: RecentIds[IdPlace] = RecentIds(id_window)
        for one in seen:
            self._ids.add(one.id, one.position, one.written_at)

    # ---------------------------------------------------------------------------------------------- accepting

    def repeated(self, name: str) -> IdPlace | None:
        """Return the place of a record with this id that was accepted before; None if there is none."""
        return self._ids.place(name, self._clock.now())

    def has_room(self, size: int) -> bool:
        """Return True if records of so many bytes can be accepted now; an empty log accepts any."""
        if self._waiting_bytes and self._waiting_bytes + size > _WAITING_BYTES:
            return False
        return self._bytes + self._waiting_bytes + size <= self._max_bytes

    async def room(self, size: int, timeout: float) -> None:
        """Wait for room, the end of the input or the close of the log, up to ``timeout`` seconds. Raises
        ``SourceFull``."""
        if size > self._max_bytes:
            raise SourceFull(
                f"records of {size:,} bytes do not fit into the log in {self.log.folder}, whose max_bytes leaves "
                f"{self._max_bytes:,} for them"
            )
        try:
            async with asyncio.timeout(timeout):
                while not self.has_room(size) and not self._over:
                    changed: asyncio.Future[None] = self.loop.create_future()
                    self._blocked.add(changed)
                    try:
                        await changed
                    finally:
                        self._blocked.discard(changed)
        except TimeoutError:
            raise self.full() from None

    def full(self) -> SourceFull:
        """Return the error for a record that does not fit."""
        if self._waiting_bytes > _WAITING_BYTES // 2:
            return SourceFull(
                f"{self._waiting_bytes:,} bytes of records wait to be written to the log in {self.log.folder}: the "
                f"disk is slower than the senders; send again later (HTTP status 503)"
            )
        unread = self.end - self.checkpointed.reached
        kept = " Records with ids are also kept for id_window: a shorter one needs less room."
        return SourceFull(
            f"the log in {self.log.folder} has {self._bytes:,} bytes, and max_bytes leaves {self._max_bytes:,} for "
            f"records: {unread:,} records are covered by no checkpoint of a running job; send again later (HTTP status "
            f"503), take checkpoints more often, or raise max_bytes{'.' + kept if len(self._ids) else ''}"
        )

    def send(self, record: LogRecord, value: T, size: int) -> asyncio.Future[int]:
        """Queue a record without id, with its decoded ``value``; the result resolves to its position."""
        # Hot path (benchmark `durable_push`): once for each record.
        appender = self._appender
        group = appender.group
        if self._tracer is not None:
            self._trace(group, 1)
        position = self._create_future()
        group.senders.append(position)
        group.records.append(record)
        group.values.append(value)
        group.size = size_of_group = group.size + size
        self._waiting_bytes += size
        if not appender.is_scheduled or size_of_group >= BLOCK_BYTES:
            appender.added()
        return position

    def send_named(self, record: LogRecord, value: T, size: int, name: str) -> asyncio.Future[int]:
        """Queue a record with the id ``name``, as ``send``."""
        self._appender.group.has_ids = True
        position = self.send(record, value, size)
        self._ids.add(name, position, self._clock.now())
        return position

    def send_all(
        self, records: Sequence[LogRecord], values: Sequence[T], size: int, *, waits: bool = True
    ) -> asyncio.Future[int] | None:
        """Queue records without ids to be written together; resolves to the position of the first.

        None if nothing ``waits`` for it.
        """
        group = self._appender.group
        if self._tracer is not None:
            self._trace(group, len(records))
        position = self._create_future() if waits else None
        group.senders += [position, *[None] * (len(records) - 1)]
        group.records += records
        group.values += values
        group.size += size
        self._waiting_bytes += size
        self._appender.added()
        return position

    def ask(self, record: LogRecord, value: T, size: int, question: Question) -> None:
        """Queue the record of a question, with its decoded ``value``."""
        group = self._appender.group
        group.followed.append((len(group.records), Followed(question)))
        self.send_all((record,), (value,), size, waits=False)

    def trace_with(self, tracer: RecordTracer | None, name: str) -> None:
        """Ask ``tracer`` about each record that is sent from now on, to the source ``name``; None: about none."""
        self._tracer, self._name = tracer, name
        if tracer is None:
            for place in [at for at, one in self.followed.items() if one.question is None]:
                del self.followed[place]

    def _trace(self, group: LogGroup[T], count: int) -> None:
        """Let the next ``count`` records of ``group`` carry the traces of their senders."""
        assert self._tracer is not None
        first = len(group.records)
        for place in range(first, first + count):
            trace = self._tracer.sent(self._name)
            if trace is None:
                continue
            if group.followed and group.followed[-1][0] == place:  # it has a question
                group.followed[-1][1].trace = trace
            else:
                group.followed.append((place, Followed(None, trace)))

    def _follow(self, followed: Followed, position: int) -> None:
        """Keep a question until it has an answer, and a trace until its record at ``position`` is processed."""
        question = followed.question
        if question is not None and question.answer.done():
            return
        self.followed[position] = followed
        self.unread.append(position)
        if question is not None:
            question.answer.add_done_callback(lambda _: self.followed.pop(position, None))

    def next_followed(self, position: int, count: int) -> tuple[int, Followed | None]:
        """Return how many of the ``count`` records from ``position`` on to read together, and what follows the only
        one."""
        unread = self.unread
        while unread and (unread[0] < position or unread[0] not in self.followed):
            unread.popleft()
        if not unread or unread[0] >= position + count:
            return count, None
        before = unread[0] - position
        return (before, None) if before else (1, self.followed[position])

    def _on_written(self, written: GroupWritten[T]) -> None:
        group, first = written.group, written.first
        self._bytes = written.log_bytes
        self._waiting_bytes -= group.size
        if written.error is not None:
            self._refuse(group, written.error)
        else:
            for place, followed in group.followed:
                self._follow(followed, first + place)
            if group.has_ids:
                self._locate(group.records, first)
            for position, sender in enumerate(group.senders, first):
                if sender is not None and not sender.done():
                    sender.set_result(position)
            self.end = first + len(group.records)
            self._show(group)
        if self._blocked:
            self._unblock()

    def _show(self, group: LogGroup[T]) -> None:
        """Give records that were written to the reader."""
        added: list[Logged[T]] = []
        if self.tail.follows:
            added = [
                (value, record[1])
                for value, record in zip(group.values, group.records, strict=True)
            ]
        self.tail.add(added, group.size)

    def _locate(self, records: Sequence[LogRecord], first: int) -> None:
        """Remember the positions of records with ids."""
        for place, record in enumerate(records, first):
            if record[2] is not None:
                self._ids.move(record[2], place)

    def _refuse(self, group: LogGroup[T], error: NotLogged) -> None:
        for record in group.records:
            if record[2] is not None:
                self._ids.remove(record[2])
        log_events.RECORDS_REFUSED.log(
            "the log in %s: %d records were not logged: %s",
            self.log.folder,
            len(group.records),
            str(error),  # handlers may keep it, and its traceback has the records
            folder=str(self.log.folder),
            records=len(group.records),
            error=str(error),
        )
        for _, followed in group.followed:
            followed.fail(_not_logged(self.log, error))
        for sender in group.senders:
            if sender is not None and not sender.done():
                sender.set_exception(_not_logged(self.log, error))
                sender.exception()  # retrieved here: a sender with an id may not wait

    def _unblock(self) -> None:
        for blocked in self._blocked:
            if not blocked.done():
                blocked.set_result(None)

    def continue_from(self, position: int) -> None:
        """A reader is opened at ``position``: fail the questions of records that it does not read."""
        for place in [place for place in self.followed if place < position]:
            if (question := self.followed.pop(place).question) is not None:
                question.fail_restarted()
        self.unread = deque(sorted(self.followed))

    # ----------------------------------------------------------------------------------------------- of a job

    def resume_waits(self) -> None:
        """Let senders wait for a job again."""
        self.checkpointed.resume()
        self.processed.resume()

    def fail_waits(self, error: Exception) -> None:
        """Raise ``error`` in the senders that wait for a job, and in later ones until ``resume_waits``."""
        self.checkpointed.fail(error)
        self.processed.fail(error)

    async def release(self, position: int) -> None:
        """Remove the records before ``position`` from the disk, in whole segments. Failures are logged."""
        since = self._ids.oldest_known(self._clock.now())

        def remove() -> None:
            try:
                self.log.release(position, since)
            finally:
                # Not by the result: a later write may be reported before it arrives, and nothing may wait for it.
                with suppress(RuntimeError):  # the loop is closed
                    self.loop.call_soon_threadsafe(self._on_released, self.log.size)

        try:
            await self._appender.run(remove)
        except OSError as exc:
            log_events.SEGMENTS_NOT_REMOVED.log(
                "the log in %s: segments could not be removed: %s",
                self.log.folder,
                exc,
                folder=str(self.log.folder),
                error=str(exc),
            )

    def _on_released(self, log_bytes: int) -> None:
        self._bytes = log_bytes
        self._unblock()

    async def end_input(self) -> None:
        """Store the end of the input after all accepted records. Raises ``SourceError``."""
        self._refuse_more()
        try:
            await self._appender.run(self.log.end_input)
        except NotLogged as exc:
            self._over = False
            raise SourceError(
                f"the end of the input could not be stored in {self.log.folder}: {exc}"
            ) from exc
        self.tail.end()

    async def close(self) -> None:
        """Write what was accepted, and let other processes open the log."""
        self._refuse_more()
        await self._appender.close()

    def close_now(self) -> None:
        """Do so in a program whose event loop has ended; blocks."""
        self._appender.close_now()

    def _refuse_more(self) -> None:
        self._over = True
        self._unblock()


def _not_logged(log: RecordLog, error: NotLogged) -> SourceError:
    outcome = (
        "it was not accepted"
        if error.is_certain
        else "and whether the log has it will be known when it is opened again: send it again with the same id"
    )
    failure = SourceError(
        f"a record could not be written to the log in {log.folder}: {error}; {outcome}"
    )
    failure.__cause__ = error.__cause__
    return failure
