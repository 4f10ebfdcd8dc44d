"""The input of a task that runs over history.

In a keyed fragment the watermark is ideal: behind a record with timestamp t it is t - 1, since all before t has come.
It is sent in front of each batch, or, where users' code with timers has to see time pass, between any two timestamps.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from aflow.backfill.blocks import ExchangedRows, Inbox, InputRows
from aflow.backfill.fragments import Fragment
from aflow.errors import InternalError
from aflow.machines.batch_size import BatchSize
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import Output
from aflow.runtime.cancellation import asked_to_end
from aflow.runtime.clock import RuntimeClock

#: Blocks that wait here while the task is busy; the inbox bounds what waits in front of it.
_AHEAD: Final = 2


class Feed(ABC):
    """Fetches blocks of rows from ``inbox``, and hands them to the operators piece by piece: a ``TaskInput``."""

    def __init__(
        self, inbox: Inbox, size: BatchSize, clock: RuntimeClock, on_input: Callable[[], None]
    ) -> None:
        """``on_input`` is called when a block has arrived, and at the end."""
        self._inbox = inbox
        self._on_input = on_input
        self.size = size
        self._steady = clock.steady
        self._blocks: deque[InputRows] = deque()
        #: Rows of the first block that were handed on.
        self._at = 0
        self._over = False
        self._capacity = asyncio.Event()
        self.finished = False

    @property
    def queued_records(self) -> int:
        """Rows that are here."""
        return sum(map(_rows, self._blocks)) - self._at

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start to fetch, in ``group``."""
        group.create_task(self._fetch(), name="rows of the partition")

    def stop(self, *, drain: bool) -> None:
        """History ends by itself."""

    async def _fetch(self) -> None:
        while (block := await self._take()) is not None:
            self._blocks.append(block)
            self._on_input()
            while len(self._blocks) >= _AHEAD:
                self._capacity.clear()
                await self._capacity.wait()
        self._over = True
        self._on_input()

    async def _take(self) -> InputRows | None:
        try:
            return await self._inbox.take()
        except asyncio.CancelledError as exc:
            if asked_to_end():
                raise
            # A task group takes it for the end of this task, and nobody would say that no rows come any more.
            raise InternalError("the inbox was cancelled while rows of the partition came") from exc

    def step(self) -> bool:
        """Hand some rows to the operators; False if there are none (yet)."""
        if not self._blocks:
            if self._over and not self.finished:
                self.finished = True
                self.end()
            return False
        block, start = self._blocks[0], self._at
        began = self._steady()
        stop = self.push(block, start, min(start + self.size.limit, _rows(block)))
        self.size.took(stop - start, self._steady() - began)
        self._at = stop
        if stop == _rows(block):
            self._blocks.popleft()
            self._at = 0
            self._capacity.set()
        return True

    @abstractmethod
    def push(self, block: InputRows, start: int, stop: int) -> int:
        """Hand on rows from ``start``, up to ``stop`` (exclusive) at most; how far it came."""

    @abstractmethod
    def end(self) -> None:
        """All rows were handed on: say how far time has come."""


class SourceFeed(Feed):
    """Records of a source, whose time begins behind it, or never."""

    def __init__(
        self,
        inbox: Inbox,
        size: BatchSize,
        clock: RuntimeClock,
        on_input: Callable[[], None],
        head: Output,
        *,
        ends_time: bool,
    ) -> None:
        super().__init__(inbox, size, clock, on_input)
        self._head = head
        self._ends_time = ends_time

    def push(self, block: InputRows, start: int, stop: int) -> int:
        assert isinstance(block, list)
        self._head.emit(Batch(block[start:stop]))
        return stop

    def end(self) -> None:
        if self._ends_time:
            self._head.watermark(MAX_TIMESTAMP)


class ExchangeFeed(Feed):
    """Rows of one or two exchanges, each into its door of the step that reads by key."""

    def __init__(
        self,
        inbox: Inbox,
        size: BatchSize,
        clock: RuntimeClock,
        on_input: Callable[[], None],
        input_ports: Sequence[Output],
        *,
        fragment: Fragment,
        until: Timestamp | None,
    ) -> None:
        super().__init__(inbox, size, clock, on_input)
        self._input_ports = input_ports
        self._every_moment = fragment.watermark_per_timestamp
        self._behind = fragment.watermark_lag
        end = MAX_TIMESTAMP if until is None else until - fragment.end_margin - self._behind
        self._end = max(end, MIN_TIMESTAMP)
        self._watermark = MIN_TIMESTAMP

    def push(self, block: InputRows, start: int, stop: int) -> int:
        assert isinstance(block, ExchangedRows)
        times = block.times
        self._pass(times[start] - self._behind)
        if self._every_moment:
            stop = bisect_right(times, times[start], start, stop)
        if len(self._input_ports) > 1:
            stop = _same_until(block.inputs, start, stop)
        batch = Batch(block.values[start:stop], list(times[start:stop]), block.keys[start:stop])
        self._input_ports[block.inputs[start]].emit(batch)
        return stop

    def end(self) -> None:
        self._pass(self._end)

    def _pass(self, to: Timestamp) -> None:
        """Let time pass, not beyond the end of the history."""
        to = min(to, self._end)
        if to > self._watermark:
            self._watermark = to
            self._input_ports[0].watermark(to)


def _rows(block: InputRows) -> int:
    return len(block.times) if isinstance(block, ExchangedRows) else len(block)


def _same_until(column: Sequence[int], start: int, stop: int) -> int:
    """The end of the run of equal values that begins at ``start``, ``stop`` at most."""
    first = column[start]
    return next((index for index in range(start + 1, stop) if column[index] != first), stop)
