"""A log that is open, as the event loop sees it: records on their way to the disk, ids, and the size limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from aflow.errors import SourceError, SourceFull
from aflow.machines.recent_ids import RecentIds
from aflow.model.time import Clock
from aflow.runtime.builtin_connectors.durable_push.acknowledgements import Waits
from aflow.runtime.builtin_connectors.durable_push.tail import Logged, Tail
from aflow.runtime.record_log.appender import Addition, GroupWritten, LogAppender
from aflow.runtime.record_log.log import NotLogged, RecordLog, SeenId
from aflow.runtime.record_log.segments import LogRecord

T = TypeVar("T")

#: Bytes of records that wait to be written; senders wait while there are more.
_WAITING_BYTES: Final = 16 << 20

#: The most bytes that a record has in the log besides its value and id: timestamp, lengths, the header of a block.
_OVERHEAD: Final = 72

_log = logging.getLogger("aflow.record_log")


@dataclass(frozen=True, slots=True)
class Encoded(Generic[T]):
    """A record in both forms: as it is written, and as a job gets it, now or from the log."""

    record: LogRecord
    value: T

    @property
    def size(self) -> int:
        """The most bytes that it takes in the log."""
        data, _, name = self.record
        return len(data) + len(name or "") + _OVERHEAD


class _Sent(Generic[T]):
    """Records of one call that are on their way to the log; ``position`` resolves to that of the first one."""

    __slots__ = ("encoded", "position")

    def __init__(self, encoded: Sequence[Encoded[T]], position: asyncio.Future[int]) -> None:
        self.encoded = encoded
        self.position = position


IdPlace: TypeAlias = "asyncio.Future[int] | int"
"""The position of a record with an id, or a future of it; 0 for a record that was released."""


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
        self.log: Final = log
        self._clock = clock
        #: Without the header of another segment.
        self._max_bytes = max_bytes - log.header_size
        self._appender: LogAppender[_Sent[T]] = LogAppender(log, clock, self.loop, self._on_written)
        self.tail: Final = Tail[T]()
        self.checkpointed: Final = Waits()
        #: The position after the last record that is written.
        self.end = log.end
        # Only what checkpoints cover was removed.
        self.checkpointed.reach(log.start)
        self._bytes = log.size
        #: Bytes of records that are on their way.
        self._waiting_bytes = 0
        #: Senders that wait for room.
        self._blocked: set[asyncio.Future[None]] = set()
        self._ids: RecentIds[IdPlace] = RecentIds(id_window)
        for one in seen:
            self._ids.add(one.id, one.position or 0, one.written_at)

    # ---------------------------------------------------------------------------------------------- accepting

    def repeated(self, name: str | None) -> IdPlace | None:
        """Return the place of a record with this id that was accepted before; None if there is none."""
        return None if name is None else self._ids.place(name, self._clock.now())

    def has_room(self, size: int) -> bool:
        """Return True if records of so many bytes can be accepted now; an empty log accepts any."""
        if self._waiting_bytes and self._waiting_bytes + size > _WAITING_BYTES:
            return False
        return self._bytes + self._waiting_bytes + size <= self._max_bytes

    async def room(self, size: int, timeout: float) -> None:
        """Wait for room, up to ``timeout`` seconds. Raises ``SourceFull``."""
        if size > self._max_bytes:
            raise SourceFull(
                f"records of {size:,} bytes do not fit into the log in {self.log.folder}, whose max_bytes leaves "
                f"{self._max_bytes:,} for them"
            )
        try:
            async with asyncio.timeout(timeout):
                while not self.has_room(size):
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
        unread = self.end - self.checkpointed.reached
        return SourceFull(
            f"the log in {self.log.folder} has {self._bytes:,} bytes, and max_bytes leaves {self._max_bytes:,} for records: "
            f"{unread:,} records are covered by no checkpoint of a running job; send again later (HTTP status 503), "
            f"take checkpoints more often, or raise max_bytes"
        )

    def send(self, encoded: Sequence[Encoded[T]]) -> asyncio.Future[int]:
        """Queue records to be written together. The result resolves to the position of the first."""
        position: asyncio.Future[int] = self.loop.create_future()
        position.add_done_callback(_retrieve)
        size = sum(one.size for one in encoded)
        now = self._clock.now()
        for one in encoded:
            if (name := one.record[2]) is not None:
                self._ids.add(name, position, now)
        self._waiting_bytes += size
        records = [one.record for one in encoded]
        self._appender.add(Addition(records, size, _Sent(encoded, position)))
        return position

    def _on_written(self, written: GroupWritten[_Sent[T]]) -> None:
        self._bytes = written.log_bytes
        position = written.first
        added: list[Logged[T]] = []
        for addition in written.additions:
            self._waiting_bytes -= addition.size
            sent = addition.content
            if written.error is not None:
                self._refuse(sent, written.error)
                continue
            for place, one in enumerate(sent.encoded, position):
                _, timestamp, name = one.record
                added.append((one.value, timestamp))
                if name is not None:
                    self._ids.move(name, place)
            if not sent.position.done():
                sent.position.set_result(position)
            position += len(sent.encoded)
        self.end = position
        self.tail.add(added)
        self._unblock()

    def _refuse(self, sent: _Sent[T], error: NotLogged) -> None:
        for one in sent.encoded:
            if one.record[2] is not None:
                self._ids.remove(one.record[2])
        _log.warning(
            "the log in %s: %d records were not logged: %s",
            self.log.folder,
            len(sent.encoded),
            error,
        )
        if not sent.position.done():
            sent.position.set_exception(_not_logged(self.log, error))

    def _unblock(self) -> None:
        for blocked in self._blocked:
            if not blocked.done():
                blocked.set_result(None)

    # ----------------------------------------------------------------------------------------------- of a job

    async def release(self, position: int) -> None:
        """Remove the records before ``position`` from the disk, in whole segments. Failures are logged."""
        now = self._clock.now()
        ids = [
            SeenId(name, place, at)
            for name, place, at in self._ids.items(now)
            if isinstance(place, int) and place < position
        ]

        def remove() -> int:
            self.log.release(position, ids)
            self.log.forget_ids(self._ids.oldest_known(now))
            return self.log.size

        try:
            self._bytes = await self._appender.run(remove)
        except OSError as exc:
            _log.warning("the log in %s: segments could not be removed: %s", self.log.folder, exc)
        self._unblock()

    async def end_input(self) -> None:
        """Store the end of the input after all accepted records. Raises ``SourceError``."""
        try:
            await self._appender.run(self.log.end_input)
        except NotLogged as exc:
            raise _not_logged(self.log, exc) from exc
        self.tail.end()

    async def close(self) -> None:
        """Write what was accepted, and let other processes open the log."""
        await self._appender.close()


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


def _retrieve(position: asyncio.Future[int]) -> None:
    """Mark an error as seen: a sender that has stopped waiting does not want it."""
    if not position.cancelled():
        position.exception()
