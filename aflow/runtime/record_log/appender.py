"""The thread that writes to a log: one write and one sync for all records that wait (group commit).

A group is what has been added since the thread began its last write, in the order in which it was added. So one sender
that awaits each record gets a sync for each, and 1,000 senders share one.

The thread is no task of a job: records are accepted before a job runs and while it restarts. It is a daemon, since a
program that ends without closing the log must end; records that were not reported as written may be lost then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Generic, TypeAlias, TypeVar

from aflow.errors import InternalError
from aflow.model.time import Clock
from aflow.runtime.record_log.log import NotLogged, RecordLog
from aflow.runtime.record_log.segments import BLOCK_BYTES, LogRecord

T = TypeVar("T")
R = TypeVar("R")


class Addition(Generic[T]):
    """Records of one call, which are written in one block, and what their sender keeps with them."""

    __slots__ = ("has_ids", "position", "records", "size", "values")

    def __init__(
        self,
        records: Sequence[LogRecord],
        values: Sequence[T],
        size: int,
        position: asyncio.Future[int] | None,
        *,
        has_ids: bool,
    ) -> None:
        """``size`` is the most bytes that they take; ``position`` resolves to that of the first, if a sender waits."""
        self.records = records
        self.values = values
        self.size = size
        self.position = position
        #: True if some of the records have ids.
        self.has_ids = has_ids


@dataclass(frozen=True, slots=True)
class GroupWritten(Generic[T]):
    """The outcome of one write: the position of the first record, or the error."""

    additions: Sequence[Addition[T]]
    first: int
    error: NotLogged | None
    log_bytes: int
    """The size of the log afterwards."""


@dataclass(frozen=True, slots=True)
class _LogWork:
    """Work on the log between two writes."""

    do: Callable[[], Any]
    done: asyncio.Future[Any] | None


class _EndThread:
    """The end of the thread."""


_Item: TypeAlias = "Addition[T] | _LogWork | _EndThread"


class LogAppender(Generic[T]):
    """Appends to ``log``, which is open, until ``close``. All methods are called on ``loop``."""

    def __init__(
        self,
        log: RecordLog,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        on_written: Callable[[GroupWritten[T]], None],
    ) -> None:
        """``on_written`` is called on ``loop`` after each write, in order."""
        self._log = log
        self._clock = clock
        self._loop: Final = loop
        self._on_written = on_written
        self._queue: SimpleQueue[_Item[T]] = SimpleQueue()
        #: Writes records with the next group.
        self.add: Final[Callable[[Addition[T]], None]] = self._queue.put
        self._thread = Thread(target=self._run, name=f"log {log.folder.name}", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], R]) -> R:
        """Do ``work`` in the thread, after the records that were added before. Raises its errors."""
        done: asyncio.Future[R] = self._loop.create_future()
        self._queue.put(_LogWork(work, done))
        return await done

    async def close(self) -> None:
        """Write what was added, close the log, and end the thread."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(_LogWork(self._log.close, done))
        self._queue.put(_EndThread())
        await asyncio.shield(done)

    def close_now(self) -> None:
        """Do so without the event loop, which has ended; blocks until the thread has ended."""
        self._queue.put(_LogWork(self._log.close, None))
        self._queue.put(_EndThread())
        self._thread.join()

    # ------------------------------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            following: _Item[T] | None = item
            if isinstance(item, Addition):
                group, following = self._group(item)
                self._write(group)
            if isinstance(following, _LogWork):
                self._do(following)
            elif isinstance(following, _EndThread):
                return

    def _group(self, first: Addition[T]) -> tuple[list[Addition[T]], _Item[T] | None]:
        """Return the additions that wait, as many as fit into a block, and the item that follows if it is none.

        A block may exceed its limit by one addition.
        """
        group, size = [first], first.size
        while size < BLOCK_BYTES:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if not isinstance(item, Addition):
                return group, item
            group.append(item)
            size += item.size
        return group, None

    def _write(self, group: list[Addition[T]]) -> None:
        first, error = self._log.end, None
        records = [record for addition in group for record in addition.records]
        try:
            self._log.append(records, self._clock.now())
        except NotLogged as exc:
            error = exc
        except BaseException as exc:  # the thread must report it, or senders would wait for ever
            error = NotLogged(f"unexpected {exc!r}", is_certain=False)
            error.__cause__ = InternalError("the log could not be written")
        self._report(self._on_written, GroupWritten(group, first, error, self._log.size))

    def _do(self, work: _LogWork) -> None:
        try:
            result = work.do()
        except BaseException as exc:
            self._report(_fail, work.done, exc)
        else:
            self._report(_resolve, work.done, result)

    def _report(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed: the program ends, and nothing waits
            return


def _resolve(done: asyncio.Future[Any] | None, result: Any) -> None:
    if done is not None and not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[Any] | None, error: BaseException) -> None:
    if done is not None and not done.done():
        done.set_exception(error)
