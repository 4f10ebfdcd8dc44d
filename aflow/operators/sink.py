"""The end of a chain: passes batches to the writer of a sink, one at a time and in order.

Checkpoints are in the same queue. The *mark* of a checkpoint is where the writer prepares what it has written: after
all queued batches, or, when barriers overtake, before them, and then these batches are in flight and belong to the
checkpoint. Prepared output is *pending* until a checkpoint that covers it is complete, and is then committed, before
anything else.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import iscoroutine
from typing import Any, Final, TypeAlias

from aflow.connect import Committable, Writer
from aflow.errors import AflowError, SinkError, described
from aflow.model.batch import Batch
from aflow.operators.base import Operator

#: Number of queued records from which on the task takes no more input.
_CAPACITY: Final = 2048

Pending: TypeAlias = Sequence[tuple[int, Committable]]
"""Output that was prepared and not committed, with its checkpoint, ascending."""


@dataclass(frozen=True, slots=True)
class _Preparation:
    """Let the writer prepare what it has written; ``done`` gets all pending output then."""

    checkpoint: int
    done: Callable[[Pending], None]


@dataclass(frozen=True, slots=True)
class _Commit:
    """Let the writer commit what it has prepared for a checkpoint."""

    checkpoint: int


class SinkOperator(Operator):
    """Passes each batch to the writer at once if it is free, and queues batches while it is busy.

    The operator never waits. An awaitable of the writer is kept in ``writing``; the runtime awaits it in a coroutine of
    its own and then posts ``written`` with its result, which continues with the queue.
    """

    def __init__(self, writer: Writer[Any], on_writing: Callable[[], None]) -> None:
        """``on_writing`` is called when ``writing`` was set."""
        self.writer = writer
        self._on_writing = on_writing
        #: The awaitable of the writer; None while it is free, and then the queue is empty.
        self.writing: Awaitable[Committable | None] | None = None
        #: The purpose of ``writing``; None for a batch.
        self._doing: _Preparation | _Commit | None = None
        self._waiting: deque[Batch[Any] | _Preparation | _Commit] = deque()
        self._waiting_records = 0
        #: Output that was prepared and not committed, by checkpoint, ascending.
        self._pending: dict[int, Committable] = {}
        #: Called when all restored batches are written; None if they are.
        self._caught_up: Callable[[], None] | None = None

    @property
    def full(self) -> bool:
        """True while the task should take no more input."""
        return self._waiting_records >= _CAPACITY

    @property
    def busy(self) -> bool:
        """True while the writer has work."""
        return self.writing is not None or bool(self._waiting)

    @property
    def waiting(self) -> Iterator[Batch[Any]]:
        """The queued batches, oldest first."""
        return (one for one in self._waiting if isinstance(one, Batch))

    def process(self, batch: Batch[Any]) -> None:
        if self.writing is None:
            self._begin(self.writer.write, batch)
        else:
            self._waiting.append(batch)
            self._waiting_records += len(batch)

    def mark(
        self, checkpoint: int, done: Callable[[Pending], None], *, overtaking: bool
    ) -> list[Batch[Any]]:
        """Queue the preparation for a checkpoint; ``done`` gets all pending output then.

        Return the batches that the checkpoint must store, because they are written after it: none, unless the mark is
        ``overtaking`` them.
        """
        self._waiting.append(_Preparation(checkpoint, done))
        overtaken = self.overtake(checkpoint) if overtaking else []
        self._continue()
        return overtaken

    def overtake(self, checkpoint: int) -> list[Batch[Any]]:
        """Let the mark of a checkpoint, if it is still queued, overtake the batches before it, and return these.

        It does not overtake other marks and commits: the batches before those belong to other checkpoints.
        """
        overtaken: list[Batch[Any]] = []
        for place, one in enumerate(self._waiting):
            if isinstance(one, Batch):
                overtaken.append(one)
            elif isinstance(one, _Preparation) and one.checkpoint == checkpoint:
                del self._waiting[place]
                self._waiting.insert(place - len(overtaken), one)
                return overtaken
            else:
                overtaken = []
        return []

    def commit_up_to(self, checkpoint: int) -> None:
        """Commit the output prepared for ``checkpoint``, which is complete, and for older ones."""
        under_way = {one.checkpoint for one in self._all_commits()}
        due = [one for one in self._pending if one <= checkpoint and one not in under_way]
        self._waiting.extendleft(_Commit(one) for one in reversed(due))
        self._continue()

    def continue_with(self, batches: Iterable[Batch[Any]], done: Callable[[], None]) -> None:
        """Write the batches of a restored checkpoint before any other; call ``done`` once all are written."""
        for batch in batches:
            self.process(batch)
        if self.busy:
            self._caught_up = done
        else:
            done()

    def written(self, result: Committable | None = None) -> None:
        """Handle ``result`` of the finished ``writing``, and continue with the queue."""
        doing, self.writing, self._doing = self._doing, None, None
        match doing:
            case _Preparation(checkpoint, done):
                if result is not None:
                    self._pending[checkpoint] = result
                done(tuple(self._pending.items()))
            case _Commit(checkpoint):
                self._pending.pop(checkpoint, None)
            case None:
                pass
        self._continue()
        if self._caught_up is not None and not self.busy:
            caught_up, self._caught_up = self._caught_up, None
            caught_up()

    def close(self) -> None:
        """Discard a write that is not awaited yet because the job has ended."""
        if iscoroutine(self.writing):
            self.writing.close()

    def failed(self, cause: BaseException) -> SinkError:
        """Describe ``cause``, raised by the writer."""
        what = "write"
        if isinstance(self._doing, _Preparation):
            what = f"prepare checkpoint {self._doing.checkpoint}"
        elif isinstance(self._doing, _Commit):
            what = f"commit checkpoint {self._doing.checkpoint}"
        return SinkError(f"sink {self.name!r} could not {what}: {described(cause)}")

    def _continue(self) -> None:
        while self.writing is None and self._waiting:
            match self._waiting.popleft():
                case Batch() as batch:
                    self._waiting_records -= len(batch)
                    self._begin(self.writer.write, batch)
                case _Preparation() as mark:
                    self._doing = mark
                    self._begin(self.writer.prepare, mark.checkpoint)
                case _Commit() as commit:
                    self._doing = commit
                    self._begin(self.writer.commit, self._pending[commit.checkpoint])

    def _begin(
        self, method: Callable[[Any], Awaitable[Committable | None] | None], about: object
    ) -> None:
        try:
            self.writing = method(about)
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            # Synchronous, so a CancelledError was raised by the writer, and is no cancellation.
            raise self.failed(exc) from exc
        if self.writing is not None:
            self._on_writing()

    def _all_commits(self) -> list[_Commit]:
        return [one for one in (self._doing, *self._waiting) if isinstance(one, _Commit)]
