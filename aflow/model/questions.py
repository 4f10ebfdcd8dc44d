"""Questions of the host to a pipeline: the way of a record through it, to a reply or to the end of all results.

Theory. The record of a question is processed as a batch of its own. While the operators of a task process that batch,
its *correlation* is the current one of the thread. All that they emit meanwhile belongs to the question: a channel
marks the batches that are sent then, and the reader makes the correlation current again; an asynchronous step remembers
the calls that are begun then, and emits each of their results as a batch of its own. So maps, filters and keyed steps
need to know nothing. Watermarks and timers belong to no question.

A correlation counts its parts: batches in channels, calls, elements in queues. If none is left and there was no reply,
there will be none. Storm tracks tuples in this way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

from aflow.errors import JobStopped, NoResult


class Question:
    """A question that waits for its answer."""

    __slots__ = ("answer", "is_kept")

    def __init__(self, *, is_kept: bool) -> None:
        """``is_kept`` is True if a restarted job gets the record again."""
        self.answer: Final[asyncio.Future[Any]] = asyncio.get_running_loop().create_future()
        self.is_kept: Final = is_kept

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in the host, unless there is an answer."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def fail_restarted(self) -> None:
        """Raise ``JobStopped``: the record went into an attempt that has failed."""
        outcome = "processed" if self.is_kept else "lost unless a checkpoint covers it"
        self.fail(
            JobStopped(f"the job was restarted before it replied to the record, which is {outcome}")
        )


class Correlation:
    """One way of the record of a question through one attempt of a job."""

    __slots__ = ("_parts", "question")

    def __init__(self, question: Question) -> None:
        self.question: Final = question
        #: Parts of the pipeline that hold the record, or something made of it.
        self._parts = 0

    def hold(self) -> None:
        """Count a part of the pipeline that holds something."""
        self._parts += 1

    def release(self) -> None:
        """Discount a part; at the last one there is no result."""
        self._parts -= 1
        if not self._parts and not self.question.answer.done():
            self.question.fail(NoResult("the pipeline has no result for the record"))

    def reply(self, value: object) -> None:
        """Answer the question with ``value``, unless it was answered or the host does not wait any more."""
        if not self.question.answer.done():
            self.question.answer.set_result(value)

    def run(self, work: Callable[[], None]) -> None:
        """Do ``work``, whose output belongs to the question, and release one part."""
        before, _HERE.current = _HERE.current, self
        try:
            work()
        finally:
            _HERE.current = before
        self.release()


class _Here(threading.local):
    """The correlation that is current in a thread. No code awaits while there is one.

    A context variable would be copied into tasks that are created meanwhile.
    """

    current: Correlation | None = None


_HERE: Final = _Here()


def current_correlation() -> Correlation | None:
    """Return the correlation to which output belongs now; None for nearly all of it."""
    return _HERE.current


def without_correlation(work: Callable[[], None]) -> None:
    """Do ``work``, whose output belongs to no question."""
    before = _HERE.current
    if before is None:
        work()
        return
    _HERE.current = None
    try:
        work()
    finally:
        _HERE.current = before
