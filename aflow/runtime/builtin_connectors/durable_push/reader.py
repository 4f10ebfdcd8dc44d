"""The reader of a durable push source, and its positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from anyio import to_thread

from aflow.connect import Chunk, Position, Reader
from aflow.errors import RestoreError, SourceError, shown
from aflow.model.codecs import Codec, CodecError, decode_all
from aflow.model.questions import Correlation, Followed
from aflow.runtime.builtin_connectors.asked_chunk import AskedChunk
from aflow.runtime.builtin_connectors.durable_push.open_log import OpenLog
from aflow.runtime.builtin_connectors.durable_push.tail import Logged
from aflow.runtime.record_log.log import LogReader

T = TypeVar("T")


class LoggedReader(Reader[T]):
    """Reads from files until it has reached the end of the log, then from memory."""

    def __init__(
        self, opened: OpenLog[T], codec: Codec[T], position: int, on_closed: Callable[[], None]
    ) -> None:
        """``on_closed`` is called when the reader is closed."""
        self._on_closed = on_closed
        self._opened = opened
        self._codec = codec
        self._position = position
        #: Records that were read from files and not returned yet.
        self._read: list[Logged[T]] = []
        self._files: LogReader | None = None
        self._begun = False
        opened.tail.unfollow()

    async def read(self, limit: int) -> Chunk[T] | None:
        tail = self._opened.tail
        if not self._begun:
            # A checkpoint before the first record has the position, too.
            self._begun = True
            return Chunk((), self._place())
        while True:
            if self._read:
                return self._chunk(self._read, limit)
            if tail.follows and (records := tail.take(limit)):
                return self._chunk(records, limit)
            if self._position < self._opened.end:
                tail.unfollow()
                await self._read_files()
            else:
                # Nothing is written between the comparison and this line: both are on the loop.
                tail.follow()
                self._files = None
                if not await tail.wait() and self._position >= self._opened.end:
                    return None

    def leftover(self) -> Chunk[T] | None:
        """Return the records in memory. Others are still in the log, for the next job."""
        tail = self._opened.tail
        if not self._read and tail.follows:
            self._read = tail.take(len(tail))
        return self._chunk(self._read, len(self._read), asked=False) if self._read else None

    async def _read_files(self) -> None:
        if self._files is None:
            self._files = LogReader(self._opened.log, self._position)
        records = await to_thread.run_sync(self._files.read)
        try:
            values = decode_all(self._codec, [data for data, _, _ in records])
        except CodecError as exc:
            raise SourceError(
                f"a record of the log in {self._opened.log.folder}, from position {self._position} on, cannot be "
                f"read: {exc}"
            ) from exc
        self._read = [(value, record[1]) for value, record in zip(values, records, strict=True)]

    def _chunk(self, records: list[Logged[T]], limit: int, *, asked: bool = True) -> Chunk[T]:
        """Return the first of ``records``, all with or all without timestamps, and keep the others.

        A record with a question or a trace is returned alone, unless ``asked`` is False.
        """
        dated = records[0][1] is not None
        count = min(limit, len(records))
        followed = None
        if asked and self._opened.unread:
            count, followed = self._opened.next_followed(self._position, count)
        for place in range(count):
            if (records[place][1] is not None) is not dated:
                count = place
                break
        taken, self._read = records[:count], records[count:]
        self._position += count
        times = [at for _, at in taken if at is not None] if dated else None
        values = [value for value, _ in taken]
        if followed is not None:
            return AskedChunk(values, self._place(), times, correlation=self._correlation(followed))
        return Chunk(values, self._place(), times)

    def _correlation(self, followed: Followed) -> Correlation:
        """Return the correlation of the last record that was taken."""
        if followed.trace is None:
            return Correlation(followed.question)
        followed.trace.begin()
        forget = partial(self._opened.followed.pop, self._position - 1, None)
        return Correlation(followed.question, followed.trace, forget)

    def _place(self) -> Position:
        return self._opened.log.identity, self._position

    async def on_checkpoint_completed(self, position: Position) -> None:
        self._opened.checkpointed.reach(read_position(position)[1])

    async def on_results_committed(self, position: Position) -> None:
        self._opened.processed.reach(read_position(position)[1])

    async def on_checkpoints_removed(self, position: Position) -> None:
        await self._opened.release(read_position(position)[1])

    async def close(self) -> None:
        self._opened.tail.unfollow()
        self._on_closed()


def read_position(position: Position) -> tuple[str, int]:
    """Return the identity of the log, and the number of records. Raises ``RestoreError``."""
    match position:
        case (str(identity), int(records)) if records >= 0:
            return identity, records
        case _:
            raise RestoreError(
                f"DurablePushSource continues at the identity of a log and a number of records, not at "
                f"{shown(position)}: the checkpoint was taken with another kind of source under this name"
            )
