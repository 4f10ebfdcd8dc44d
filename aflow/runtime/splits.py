"""Which subtask reads which split of a source, and from where on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from aflow.connect import Position, Source, Split
from aflow.errors import SourceError
from aflow.runtime.cancellation import user_code


@dataclass(frozen=True, slots=True)
class Place:
    """Where a split is read on: at ``position``, but for the first ``skip`` records there, which were processed."""

    position: Position | None = None
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Assigned:
    """A split, and where it is to be read on."""

    split: Split
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a source was read when a checkpoint was taken."""

    places: Mapping[str, Place] = field(default_factory=dict[str, Place])
    """Of splits that had begun and not ended, by their ids."""
    ended: Collection[str] = ()
    """Ids of splits that were read to their end."""
    readers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Which subtask has read each split that has not ended, as far as that is known."""
    parallelism: int = 0
    """How many subtasks there were; 0 if that is not known."""
    in_flight: bool = False
    """True if records were in flight from a subtask to the one of the same number: what follows must go that way."""

    def reader(self, split: str, parallelism: int) -> int | None:
        """Who of so many subtasks is to go on with ``split``; None if that does not matter, or nobody knows."""
        reader = self.readers.get(split)
        if reader is None or not (self.in_flight or parallelism == self.parallelism):
            return None
        return reader % parallelism


class SplitQueue:
    """The splits of one source that nobody reads yet, shared by the source's subtasks.

    A source that reads few splits at a time deals them out on demand, so that a subtask with small splits takes
    more of them; one that reads all its splits at once deals them in turn. Splits that a checkpoint has found half
    read come first: they go on where they were read, since records of theirs may be in flight there, which nothing
    that follows may overtake. With another parallelism they are dealt in turn; but if such records were in flight, to
    where these are put.
    """

    def __init__(
        self, name: str, source: Source[Any], parallelism: int, progress: Progress | None = None
    ) -> None:
        self._name = name
        self._source = source
        on_demand = source.concurrency is not None
        shared: deque[Split] = deque()
        #: What each subtask may take from; all the same queue where splits are dealt on demand.
        self._queues = [shared if on_demand else deque[Split]() for _ in range(parallelism)]
        #: What each subtask goes on with.
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
        """Ask the source for its splits and add the new ones. Raises ``SourceError``."""
        for split in await self._list():
            if split.id not in self._known:
                self._queues[len(self._known) % len(self._queues)].append(split)
                self._known.add(split.id)
        self._complete = self._source.discover_every is None
        self._changed.set()

    async def keep_discovering(self) -> None:
        """Ask the source for new splits again and again, as often as it wants to be asked; returns if it does not."""
        every = self._source.discover_every
        while every is not None:
            await asyncio.sleep(every.total_seconds())
            await self.fill()

    def begun(self, subtask: int) -> list[Assigned]:
        """What ``subtask`` goes on with and has not taken yet."""
        return list(self._begun[subtask])

    def must_wait(self, subtask: int) -> bool:
        """True if ``next`` would wait for a split to be discovered."""
        return not self._begun[subtask] and not self._queues[subtask] and not self._complete

    async def next(self, subtask: int) -> Assigned | None:
        """The next split for ``subtask``, waiting for one to be discovered; None when there will be no more."""
        if self._begun[subtask]:
            return self._begun[subtask].popleft()
        queue = self._queues[subtask]
        while not queue:
            if self._complete:
                return None
            self._changed.clear()
            await self._changed.wait()
        return Assigned(queue.popleft())

    async def _list(self) -> list[Split]:
        with user_code(self._failed):
            splits = list(await self._source.splits())
        ids = [split.id for split in splits]
        if len(set(ids)) < len(ids):
            raise SourceError(f"source {self._name!r} names the same split twice: {ids}")
        return splits

    def _failed(self, cause: BaseException) -> SourceError:
        return SourceError(
            f"source {self._name!r} could not list its splits: {type(cause).__name__}: {cause}"
        )
