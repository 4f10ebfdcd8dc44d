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
from itertools import islice
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
            self._write(batch)
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
        mark = _Preparation(checkpoint, done)
        start = self._after_marks() if overtaking else len(self._waiting)
        overtaken = [one for one in list(self._waiting)[start:] if isinstance(one, Batch)]
        self._waiting.insert(start, mark)
        self._continue()
        return overtaken

    def overtake(self, checkpoint: int) -> list[Batch[Any]]:
        """Let the mark of a checkpoint, if it is still queued, overtake the batches before it, and return these."""
        place = next(
            (at for at, one in enumerate(self._waiting) if _is_mark(one, checkpoint)), None
        )
        if place is None:
            return []
        mark = self._waiting[place]
        before = list(islice(self._waiting, place))
        start = max(
            (at + 1 for at, one in enumerate(before) if not isinstance(one, Batch)), default=0
        )
        del self._waiting[place]
        self._waiting.insert(start, mark)
        return [one for one in before[start:] if isinstance(one, Batch)]

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
                    self._write(batch)
                case _Preparation() as mark:
                    self._doing = mark
                    self._begin(self.writer.prepare, mark.checkpoint)
                case _Commit() as commit:
                    self._doing = commit
                    self._begin(self.writer.commit, self._pending[commit.checkpoint])

    def _write(self, batch: Batch[Any]) -> None:
        # Hot path: a writer that takes a batch at once costs one call.
        try:
            self.writing = self.writer.write(batch)
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            # Synchronous, so a CancelledError was raised by the writer, and is no cancellation.
            raise self.failed(exc) from exc
        if self.writing is not None:
            self._on_writing()

    def _begin(self, method: Callable[[Any], Awaitable[Committable | None]], about: object) -> None:
        try:
            self.writing = method(about)
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            raise self.failed(exc) from exc
        self._on_writing()

    def _after_marks(self) -> int:
        """Return the index after the last queued mark or commit: batches from there on belong to no checkpoint."""
        places = [i for i, one in enumerate(self._waiting) if not isinstance(one, Batch)]
        return places[-1] + 1 if places else 0

    def _all_commits(self) -> list[_Commit]:
        return [one for one in (self._doing, *self._waiting) if isinstance(one, _Commit)]


def _is_mark(one: object, checkpoint: int) -> bool:
    return isinstance(one, _Preparation) and one.checkpoint == checkpoint
