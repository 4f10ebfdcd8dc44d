"""The end of a chain: hands batches to the writer of a sink, one at a time and in order.

A checkpoint stands in the same queue. Its *mark* is where the writer prepares what was written before: behind all that
waits, or, when barriers overtake, in front of it, and then what waits is in flight and belongs to the checkpoint. What
was prepared is *pending* until a checkpoint that covers it is complete, and is then committed, before anything else.
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
from aflow.errors import AflowError, SinkError
from aflow.model.batch import Batch
from aflow.operators.base import Operator

#: Records that may wait while the writer is busy before the task takes no more input.
_CAPACITY: Final = 2048

Pending: TypeAlias = Sequence[tuple[int, Committable]]
"""What was prepared and not committed, with the checkpoint it was prepared for, ascending."""


@dataclass(frozen=True, slots=True)
class _Preparation:
    """The writer is to prepare what it has written; ``done`` gets all that is pending then."""

    checkpoint: int
    done: Callable[[Pending], None]


@dataclass(frozen=True, slots=True)
class _Commit:
    """The writer is to commit what it has prepared for a checkpoint."""

    checkpoint: int


class SinkOperator(Operator):
    """Gives each batch to the writer at once if it is free, and keeps what comes while it is busy.

    The operator never waits. When the writer returned an awaitable, it stands in ``writing``; the runtime awaits it in
    a coroutine of its own and then posts ``written`` with its result, which goes on with what came meanwhile.
    """

    def __init__(self, writer: Writer[Any]) -> None:
        self.writer = writer
        #: What the writer is doing; None while it is free. Something waits only while it is not None.
        self.writing: Awaitable[Committable | None] | None = None
        #: What ``writing`` is for; None for a batch.
        self._doing: _Preparation | _Commit | None = None
        self._waiting: deque[Batch[Any] | _Preparation | _Commit] = deque()
        self._waiting_records = 0
        #: What was prepared and not committed, by checkpoint, ascending.
        self._pending: dict[int, Committable] = {}
        #: Called when everything is written that a checkpoint had remembered; None if that was.
        self._caught_up: Callable[[], None] | None = None
        #: Called when ``writing`` was set; given by the runtime.
        self.on_writing: Callable[[], None] = _nobody

    @property
    def full(self) -> bool:
        """True while the task should take no more input."""
        return self._waiting_records >= _CAPACITY

    @property
    def busy(self) -> bool:
        """True while the writer has something to do."""
        return self.writing is not None or bool(self._waiting)

    @property
    def waiting(self) -> Iterator[Batch[Any]]:
        """The batches that the writer has not got yet, oldest first."""
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
        """Have the writer prepare for a checkpoint, and tell ``done`` of everything that is pending then.

        The batches that the checkpoint must remember, because they will be written after it: none, unless the mark
        is ``overtaking`` them.
        """
        mark = _Preparation(checkpoint, done)
        behind = self._behind_marks() if overtaking else len(self._waiting)
        overtaken = [one for one in list(self._waiting)[behind:] if isinstance(one, Batch)]
        self._waiting.insert(behind, mark)
        self._go_on()
        return overtaken

    def overtake(self, checkpoint: int) -> list[Batch[Any]]:
        """Let the mark of a checkpoint, if it still waits, overtake the batches in front of it, which are returned."""
        place = next(
            (at for at, one in enumerate(self._waiting) if _is_mark(one, checkpoint)), None
        )
        if place is None:
            return []
        mark = self._waiting[place]
        before = list(islice(self._waiting, place))
        behind = max(
            (at + 1 for at, one in enumerate(before) if not isinstance(one, Batch)), default=0
        )
        del self._waiting[place]
        self._waiting.insert(behind, mark)
        return [one for one in before[behind:] if isinstance(one, Batch)]

    def commit_up_to(self, checkpoint: int) -> None:
        """Checkpoint ``checkpoint`` is complete: commit what was prepared for it and for those before it."""
        under_way = {one.checkpoint for one in self._all_commits()}
        due = [one for one in self._pending if one <= checkpoint and one not in under_way]
        self._waiting.extendleft(_Commit(one) for one in reversed(due))
        self._go_on()

    def continue_with(self, batches: Iterable[Batch[Any]], done: Callable[[], None]) -> None:
        """Write first what a checkpoint has remembered, before any other batch; ``done`` once all is written."""
        for batch in batches:
            self.process(batch)
        if self.busy:
            self._caught_up = done
        else:
            done()

    def written(self, result: Committable | None = None) -> None:
        """The writer has done what it was busy with, with ``result``: go on."""
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
        self._go_on()
        if self._caught_up is not None and not self.busy:
            caught_up, self._caught_up = self._caught_up, None
            caught_up()

    def close(self) -> None:
        """Discard a write that nobody has begun to await: the job ended in that very moment."""
        if iscoroutine(self.writing):
            self.writing.close()

    def failed(self, cause: BaseException) -> SinkError:
        """Describe ``cause``, raised by the writer."""
        what = "write"
        if isinstance(self._doing, _Preparation):
            what = f"prepare checkpoint {self._doing.checkpoint}"
        elif isinstance(self._doing, _Commit):
            what = f"commit checkpoint {self._doing.checkpoint}"
        return SinkError(f"sink {self.name!r} could not {what}: {type(cause).__name__}: {cause}")

    def _go_on(self) -> None:
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
            # Synchronous, so a CancelledError comes from the writer and cancels nobody.
            raise self.failed(exc) from exc
        if self.writing is not None:
            self.on_writing()

    def _begin(self, method: Callable[[Any], Awaitable[Committable | None]], about: object) -> None:
        try:
            self.writing = method(about)
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            raise self.failed(exc) from exc
        self.on_writing()

    def _behind_marks(self) -> int:
        """The place behind the last mark or commit that waits: what stands there was not promised to anybody yet."""
        places = [i for i, one in enumerate(self._waiting) if not isinstance(one, Batch)]
        return places[-1] + 1 if places else 0

    def _all_commits(self) -> list[_Commit]:
        return [one for one in (self._doing, *self._waiting) if isinstance(one, _Commit)]


def _is_mark(one: object, checkpoint: int) -> bool:
    return isinstance(one, _Preparation) and one.checkpoint == checkpoint


def _nobody() -> None:
    """Stands in until the runtime wants to be told."""
