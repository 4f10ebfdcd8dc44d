"""The splits of a source: their assignment to subtasks, and the positions to continue from."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from aflow.connect import Position, Source, Split
from aflow.errors import SourceError, described
from aflow.runtime.cancellation import user_code


@dataclass(frozen=True, slots=True)
class SplitPosition:
    """The start of a split: ``position``, after skipping ``skip`` records, which were processed."""

    position: Position | None = None
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Assigned:
    """A split, and the position to read it from."""

    split: Split
    place: SplitPosition = field(default_factory=SplitPosition)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a source in a checkpoint."""

    places: Mapping[str, SplitPosition] = field(default_factory=dict[str, SplitPosition])
    """Of splits that had been started and had not ended, by their ids."""
    ended: Collection[str] = ()
    """Ids of splits that were read to their end."""
    readers: Mapping[str, int] = field(default_factory=dict[str, int])
    """The subtask that has read each split that has not ended, as far as known."""
    parallelism: int = 0
    """The number of subtasks; 0 if unknown."""
    in_flight: bool = False
    """True if records were in flight from a subtask to the one of the same number: later ones must take that way."""

    def reader(self, split: str, parallelism: int) -> int | None:
        """Return the subtask, of ``parallelism``, that continues ``split``; None if any may, or if it is unknown."""
        reader = self.readers.get(split)
        if reader is None or not (self.in_flight or parallelism == self.parallelism):
            return None
        return reader % parallelism


class SplitQueue:
    """The splits of one source that are not assigned yet, shared by the subtasks of the source.

    A source that reads all its splits at once deals them in turn. One that reads ``concurrency`` splits at a time deals
    as many to each subtask at the start, and the others on demand, so that a subtask with small splits gets more of
    them. So it is known before any task runs which subtasks start without a split (``has_none``), and they can emit
    their status.

    Splits that were partly read in a checkpoint are first, in the subtask that has read them: records of theirs may be
    in flight there, which must not be overtaken. With another parallelism they are dealt in turn; if such records were
    in flight, to the subtasks that get those.
    """

    def __init__(
        self, name: str, source: Source[Any], parallelism: int, progress: Progress | None = None
    ) -> None:
        self._name = name
        self._source = source
        #: The splits that were dealt to each subtask.
        self._dealt = [deque[Split]() for _ in range(parallelism)]
        #: The splits that are dealt on demand. Always empty for a source that reads all its splits at once.
        self._shared: deque[Split] = deque()
        #: True once the first splits were dealt.
        self._filled = False
        #: Restored splits of each subtask.
        self._begun = [deque[Assigned]() for _ in range(parallelism)]
        self._known: set[str] = set()
        #: True once no split will be added any more.
        self._complete = False
        self._changed = asyncio.Event()
        if progress is not None:
            self._known.update(progress.ended, progress.places)
            for number, (split, place) in enumerate(sorted(progress.places.items())):
                reader = progress.reader(split, parallelism)
                subtask = number % parallelism if reader is None else reader
                self._begun[subtask].append(Assigned(Split(split), place))

    async def fill(self) -> None:
        """List the splits of the source and add the new ones. Raises ``SourceError``."""
        on_demand = self._source.concurrency is not None
        for split in await self._list():
            if split.id not in self._known:
                in_turn = self._dealt[len(self._known) % len(self._dealt)]
                (self._shared if on_demand else in_turn).append(split)
                self._known.add(split.id)
        if not self._filled:
            self._filled = True
            self._deal_first(self._source.concurrency or 0)
        self._complete = self._source.discover_every is None
        self._changed.set()

    async def keep_discovering(self) -> None:
        """List the splits again at the interval that the source has chosen; return if it has none."""
        every = self._source.discover_every
        while every is not None:
            await asyncio.sleep(every.total_seconds())
            await self.fill()

    def begun(self, subtask: int) -> list[Assigned]:
        """Return the restored splits that ``subtask`` has not taken yet."""
        return list(self._begun[subtask])

    def has_none(self, subtask: int) -> bool:
        """Return True if there is no split that ``subtask`` could start now."""
        return not (self._begun[subtask] or self._dealt[subtask] or self._shared)

    def must_wait(self, subtask: int) -> bool:
        """Return True if ``next`` would wait for a split to be discovered."""
        return self.has_none(subtask) and not self._complete

    async def next(self, subtask: int) -> Assigned | None:
        """Return the next split for ``subtask``, waiting for one to be discovered; None when there are no more."""
        if self._begun[subtask]:
            return self._begun[subtask].popleft()
        while self.has_none(subtask):
            if self._complete:
                return None
            self._changed.clear()
            await self._changed.wait()
        return Assigned((self._dealt[subtask] or self._shared).popleft())

    def _deal_first(self, concurrency: int) -> None:
        """Deal shared splits in turn until each subtask has ``concurrency``, including its restored ones."""
        for number in range(concurrency):
            for begun, dealt in zip(self._begun, self._dealt, strict=True):
                if not self._shared:
                    return
                if len(begun) + len(dealt) <= number:
                    dealt.append(self._shared.popleft())

    async def _list(self) -> list[Split]:
        with user_code(self._failed):
            splits = list(await self._source.splits())
        ids = [split.id for split in splits]
        if len(set(ids)) < len(ids):
            raise SourceError(f"source {self._name!r} names the same split twice: {ids}")
        return splits

    def _failed(self, cause: BaseException) -> SourceError:
        return SourceError(f"source {self._name!r} could not list its splits: {described(cause)}")
