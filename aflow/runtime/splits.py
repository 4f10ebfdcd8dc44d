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

    A source that reads all its splits at once deals them in turn. One that reads ``concurrency`` splits at a time deals
    as many to each subtask at the start, and the others on demand, so that a subtask with small splits takes more of
    them. So which subtasks begin without a split is decided before any of them runs, and they can say so before a
    record is read (``has_none``).

    Splits that a checkpoint has found half read come first: they go on where they were read, since records of theirs
    may be in flight there, which nothing that follows may overtake. With another parallelism they are dealt in turn;
    but if such records were in flight, to where these are put.
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
        """Ask the source for new splits again and again, as often as it wants to be asked; returns if it does not."""
        every = self._source.discover_every
        while every is not None:
            await asyncio.sleep(every.total_seconds())
            await self.fill()

    def begun(self, subtask: int) -> list[Assigned]:
        """What ``subtask`` goes on with and has not taken yet."""
        return list(self._begun[subtask])

    def has_none(self, subtask: int) -> bool:
        """Return True if there is no split that ``subtask`` could begin now."""
        return not (self._begun[subtask] or self._dealt[subtask] or self._shared)

    def must_wait(self, subtask: int) -> bool:
        """Return True if ``next`` would wait for a split to be discovered."""
        return self.has_none(subtask) and not self._complete

    async def next(self, subtask: int) -> Assigned | None:
        """The next split for ``subtask``, waiting for one to be discovered; None when there will be no more."""
        if self._begun[subtask]:
            return self._begun[subtask].popleft()
        while self.has_none(subtask):
            if self._complete:
                return None
            self._changed.clear()
            await self._changed.wait()
        return Assigned((self._dealt[subtask] or self._shared).popleft())

    def _deal_first(self, concurrency: int) -> None:
        """Deal shared splits in turn until each subtask has ``concurrency``, those that it goes on with included."""
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
        return SourceError(
            f"source {self._name!r} could not list its splits: {type(cause).__name__}: {cause}"
        )
