"""Notices to the readers of sources: which positions a completed checkpoint covers, and which ones none needs any more.

A checkpoint captures the position of each split. When it is complete, the readers of these splits are told that
position; and the position that the oldest kept checkpoint has, which is the first one that a restore could continue at.
The third notice is the position whose preceding records are processed, with their results committed by all sinks.
It follows from the progress markers that sources emit before each barrier: a sink that prepares for a checkpoint has
received the results of all records before the last such marker, and reports that when it has committed.

Each reader gets its notices one after the other, in a coroutine of its own. While it handles one, newer notices replace
those that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from aflow.connect import Position, Reader
from aflow.errors import SourceError, described, message_of
from aflow.runtime.cancellation import user_code
from aflow.runtime.close_limit import close_in_time

#: The methods of a reader that get notices.
_NOTICES: Final = ("on_checkpoint_completed", "on_results_committed", "on_checkpoints_removed")

SplitId: TypeAlias = tuple[str, str]
"""The names of a source and a split."""


@dataclass(slots=True)
class _Notified:
    """A reader that gets notices, and those that wait."""

    reader: Reader[Any]
    completed: Position | None = None
    committed: Position | None = None
    removed: Position | None = None
    waits: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set while no notice waits and none is being handled.
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Handle the notices that wait."""
        self.idle.clear()
        self.waits.set()


class ReaderNotices:
    """The notices of one attempt to run a job."""

    def __init__(self, restored: int | None, closers: list[Callable[[], Awaitable[None]]]) -> None:
        """``restored`` is the checkpoint that the attempt continues from, if it is in the storage of the job.

        ``closers`` are called at the end of the attempt; those of the readers are added.
        """
        self._restored: Final = restored
        self._closers = closers
        self._notified: dict[SplitId, _Notified] = {}
        #: By checkpoint: those that are pending or kept, as far as this attempt knows their positions.
        self._captured: dict[int, dict[SplitId, Position | None]] = {}
        #: By checkpoint: those whose preceding records are not known to be processed.
        self._unprocessed: dict[int, dict[SplitId, Position | None]] = {}
        #: For each subtask of a sink, the checkpoint of the last progress marker whose preceding output is committed.
        self._committed: list[int] = []
        #: True if a reader wants to know which results are committed: then sources emit progress markers.
        self.need_progress = False
        self._group: asyncio.TaskGroup | None = None
        self._handling: list[asyncio.Task[None]] = []

    def start(self, group: asyncio.TaskGroup) -> None:
        """Handle notices in ``group``, of readers that are opened from now on."""
        self._group = group

    def opened(self, split: SplitId, reader: Reader[Any], position: Position | None) -> bool:
        """Add a reader at its position. Return True if it gets notices: then it is closed with the attempt."""
        if not _handles_notices(reader) or self._group is None:
            return False
        if self._restored is not None and position is not None:
            self._captured.setdefault(self._restored, {})[split] = position
        self.need_progress |= _overrides(reader, "on_results_committed")
        notified = self._notified[split] = _Notified(reader)
        notified.idle.set()
        self._closers.append(partial(close_in_time, reader.close))
        work = self._handle(split, notified)
        self._handling.append(self._group.create_task(work, name=f"notices {split[0]} {split[1]}"))
        return True

    def captured(
        self, checkpoint: int, source: str, positions: Mapping[str, Position | None]
    ) -> None:
        """Record the positions of a source, by split, in a checkpoint that is being taken."""
        if self._notified:
            captured = self._captured.setdefault(checkpoint, {})
            for split, position in positions.items():
                captured[source, split] = position
            if self.need_progress:
                self._unprocessed[checkpoint] = captured

    def of_sink(self) -> Callable[[int], None]:
        """Add a subtask of a sink; return the function to call with progress that it has committed."""
        place = len(self._committed)
        self._committed.append(0)

        def committed(progress: int) -> None:
            self._committed[place] = progress
            self._results_committed(min(self._committed))

        return committed

    def _results_committed(self, progress: int) -> None:
        """Give notice: all sinks have committed the results of what precedes the barrier of checkpoint ``progress``."""
        reached = [one for one in self._unprocessed if one <= progress]
        for checkpoint in reached:
            positions = self._unprocessed.pop(checkpoint)
            for split, notified in self._notified.items():
                if (position := positions.get(split)) is not None:
                    notified.committed = position
                    notified.wake()

    def completed(self, checkpoint: int, oldest: int) -> None:
        """Give notice of a completed checkpoint; ``oldest`` is the oldest one that is kept."""
        for gone in [one for one in self._captured if one < oldest]:
            del self._captured[gone]
        covered = self._captured.get(checkpoint, {})
        needed = self._captured.get(oldest, {})
        for split, notified in self._notified.items():
            if (position := covered.get(split)) is not None:
                notified.completed = position
            if (position := needed.get(split)) is not None:
                notified.removed = position
            if notified.completed is not None or notified.removed is not None:
                notified.wake()

    async def finish(self) -> None:
        """Wait until all notices are handled, and handle no more."""
        for notified in self._notified.values():
            await notified.idle.wait()
        for handling in self._handling:
            handling.cancel()

    async def _handle(self, split: SplitId, notified: _Notified) -> None:
        while True:
            await notified.waits.wait()
            notified.waits.clear()
            completed, notified.completed = notified.completed, None
            committed, notified.committed = notified.committed, None
            removed, notified.removed = notified.removed, None
            with user_code(lambda exc: _failed(split, exc)):
                if completed is not None:
                    await notified.reader.on_checkpoint_completed(completed)
                if committed is not None:
                    await notified.reader.on_results_committed(committed)
                if removed is not None:
                    await notified.reader.on_checkpoints_removed(removed)
            if not notified.waits.is_set():
                notified.idle.set()


def _handles_notices(reader: Reader[Any]) -> bool:
    """Return True if the class of a reader has one of the methods."""
    return any(_overrides(reader, name) for name in _NOTICES)


def _overrides(reader: Reader[Any], name: str) -> bool:
    return getattr(type(reader), name) is not getattr(Reader, name)


def _failed(split: SplitId, error: BaseException) -> SourceError:
    source, name = split
    what = message_of(error) if type(error) is SourceError else described(error)
    return SourceError(f"source {source!r} could not handle a checkpoint in split {name!r}: {what}")
