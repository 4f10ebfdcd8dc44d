"""The thread that writes to a log: one write and one sync for all records that wait (group commit).

A group is what is added on the event loop while the thread writes the preceding one, or, if the thread is idle, until
the end of the present pass of the loop. So one sender that awaits each record gets a sync for each, and 1,000 senders
that are resumed in one pass share one. The loop hands over whole groups, so the thread costs nothing for each record.

The thread is no task of a job: records are accepted before a job runs and while it restarts. It is a daemon, since a
program that ends without closing the log must end; records that were not reported as written may be lost then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Generic, TypeAlias, TypeVar

from aflow.errors import InternalError
from aflow.model.questions import Followed
from aflow.model.time import Clock
from aflow.runtime.record_log.log import NotLogged, RecordLog
from aflow.runtime.record_log.segments import BLOCK_BYTES, LogRecord

T = TypeVar("T")
R = TypeVar("R")


class LogGroup(Generic[T]):
    """Records that are written in one block, and what their senders keep with them. All lists are in order."""

    __slots__ = ("followed", "has_ids", "records", "senders", "size", "values")

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        #: Their decoded values.
        self.values: list[T] = []
        #: The most bytes that they take.
        self.size = 0
        #: For each record the future of its position; None if nothing waits for it.
        self.senders: list[asyncio.Future[int] | None] = []
        #: Questions and traces with the index of their record.
        self.followed: list[tuple[int, Followed]] = []
        #: True if some of the records have ids.
        self.has_ids = False


@dataclass(frozen=True, slots=True)
class GroupWritten(Generic[T]):
    """The outcome of one write: the position of the first record, or the error."""

    group: LogGroup[T]
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


_Item: TypeAlias = "LogGroup[T] | _LogWork | _EndThread"


class LogAppender(Generic[T]):
    """Appends to ``log``, which is open, until ``close``. All methods are called on ``loop``.

    Records are added to ``group``. Then ``added`` is called, unless ``is_scheduled`` and the group is small.
    """

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
        #: The group that is not handed over yet; only the loop changes it.
        self.group: LogGroup[T] = LogGroup()
        #: True if the end of this pass, or of a write, hands the group over.
        self.is_scheduled = False
        #: Groups that were handed over and are not reported yet.
        self._writing = 0
        self._thread = Thread(target=self._run, name=f"log {log.folder.name}", daemon=True)
        self._thread.start()

    def added(self) -> None:
        """Write the group soon."""
        if self.group.size >= BLOCK_BYTES:
            self._hand_over()
        elif not self.is_scheduled:
            self.is_scheduled = True
            if not self._writing:
                self._loop.call_soon(self._on_end_of_pass)

    def _on_end_of_pass(self) -> None:
        if self.is_scheduled:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the group to the thread. It may exceed the limit of a block by the last addition."""
        self.is_scheduled = False
        group = self.group
        if group.records:
            self.group = LogGroup()
            self._writing += 1
            self._queue.put(group)

    def _on_reported(self, written: GroupWritten[T]) -> None:
        self._writing -= 1
        if not self._writing:
            self._hand_over()  # first of all: the disk is idle
        self._on_written(written)

    async def run(self, work: Callable[[], R]) -> R:
        """Do ``work`` in the thread, after the records that were added before. Raises its errors."""
        done: asyncio.Future[R] = self._loop.create_future()
        self._hand_over()
        self._queue.put(_LogWork(work, done))
        return await done

    async def close(self) -> None:
        """Write what was added, close the log, and end the thread."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._hand_over()
        self._queue.put(_LogWork(self._log.close, done))
        self._queue.put(_EndThread())
        await asyncio.shield(done)

    def close_now(self) -> None:
        """Do so without the event loop, which has ended; blocks until the thread has ended."""
        self._hand_over()
        self._queue.put(_LogWork(self._log.close, None))
        self._queue.put(_EndThread())
        self._thread.join()

    # ------------------------------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while self._do_next():
            pass

    def _do_next(self) -> bool:
        """Do the next item; False at the end. Its own frame, so that no records are held while nothing is to do."""
        item = self._queue.get()
        if isinstance(item, LogGroup):
            self._write(item)
        elif isinstance(item, _LogWork):
            self._do(item)
        else:
            return False
        return True

    def _write(self, group: LogGroup[T]) -> None:
        first, error = self._log.end, None
        try:
            self._log.append(group.records, self._clock.now())
        except NotLogged as exc:
            error = exc
        except BaseException as exc:  # the thread must report it, or senders would wait for ever
            error = NotLogged(f"unexpected {exc!r}", is_certain=False)
            error.__cause__ = InternalError("the log could not be written")
        self._report(self._on_reported, GroupWritten(group, first, error, self._log.size))

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
