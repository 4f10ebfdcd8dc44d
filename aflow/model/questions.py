"""Questions of the host to a pipeline: the way of a record through it, to a reply or to the end of all results.

Theory. The record of a question is processed as a batch of its own. While the operators of a task process that batch,
its *correlation* is the current one of the thread. All that they emit meanwhile belongs to the question: a channel
marks the batches that are sent then, and the reader makes the correlation current again; an asynchronous step remembers
the calls that are begun then, and emits each of their results as a batch of its own. So maps, filters and keyed steps
need to know nothing. Watermarks and timers belong to no question.

A correlation counts its parts: batches in channels, calls, elements in queues. If none is left and there was no reply,
there will be none. Storm tracks tuples in this way. A traced record has a correlation for the same reason: its calls
have to find its trace.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aflow.errors import JobStopped, NoResult
from aflow.model.record_trace import RecordTrace


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


@dataclass(slots=True)
class Followed:
    """The question of a record, its trace, or both, through all attempts of a job."""

    question: Question | None
    trace: RecordTrace | None = None

    def fail(self, error: Exception) -> None:
        """The record was not accepted, because of ``error``."""
        if self.question is not None:
            self.question.fail(error)
        if self.trace is not None:
            self.trace.processed()


class Correlation:
    """One way of the record of a question, or of a traced one, through one attempt of a job."""

    __slots__ = ("_on_released", "_parts", "question", "trace")

    def __init__(
        self,
        question: Question | None,
        trace: RecordTrace | None = None,
        on_released: Callable[[], object] | None = None,
    ) -> None:
        """``on_released`` is called when the last part is released."""
        self.question: Final = question
        self.trace: Final = trace
        self._on_released = on_released
        #: Parts of the pipeline that hold the record, or something made of it.
        self._parts = 0

    def hold(self) -> None:
        """Count a part of the pipeline that holds something."""
        self._parts += 1

    def release(self) -> None:
        """Discount a part; at the last one the record is processed, and no result follows."""
        self._parts -= 1
        if self._parts:
            return
        if self.question is not None:
            self.question.fail(NoResult("the pipeline has no result for the record"))
        if self.trace is not None:
            self.trace.processed()
        if self._on_released is not None:
            self._on_released()

    def withdraw(self) -> None:
        """The record was not accepted."""
        if self.trace is not None:
            self.trace.processed()

    def reply(self, value: object) -> None:
        """Answer the question with ``value``, unless it was answered or the host does not wait any more."""
        if self.question is not None and not self.question.answer.done():
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
