"""Which subtask reads which split of a source."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from aflow.connect import Source, Split
from aflow.errors import SourceError
from aflow.runtime.cancellation import user_code


class SplitQueue:
    """The splits of one source that nobody reads yet, shared by the source's subtasks.

    A source that reads few splits at a time deals them out on demand, so that a subtask with small splits takes
    more of them; one that reads all its splits at once deals them in turn.
    """

    def __init__(self, name: str, source: Source[Any], parallelism: int) -> None:
        self._name = name
        self._source = source
        on_demand = source.concurrency is not None
        shared: deque[Split] = deque()
        #: What each subtask may take from; all the same queue where splits are dealt on demand.
        self._queues = [shared if on_demand else deque[Split]() for _ in range(parallelism)]
        self._known: set[str] = set()
        #: True once no split will be added any more.
        self._complete = False
        self._changed = asyncio.Event()

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

    def must_wait(self, subtask: int) -> bool:
        """True if ``next`` would wait for a split to be discovered."""
        return not self._queues[subtask] and not self._complete

    async def next(self, subtask: int) -> Split | None:
        """The next split for ``subtask``, waiting for one to be discovered; None when there will be no more."""
        queue = self._queues[subtask]
        while not queue:
            if self._complete:
                return None
            self._changed.clear()
            await self._changed.wait()
        return queue.popleft()

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
