"""Input of a task that runs over history.

In a keyed fragment the watermark is ideal: after a record with timestamp t it is t - 1, since all earlier records have
been read. It is emitted before each batch or, if user code with timers must observe time, between any two timestamps.
In an epoch of a stream it begins at the watermark before the epoch and ends at that after it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from aflow.backfill.blocks import ExchangedRows, Inbox, InputRows
from aflow.backfill.epoch_time import EpochWatermarks
from aflow.backfill.fragments import Fragment
from aflow.errors import InternalError
from aflow.machines.batch_size import BatchSize
from aflow.model.batch import Batch
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.base import Operator, Output
from aflow.runtime.cancellation import asked_to_end
from aflow.runtime.clock import RuntimeClock

#: Buffered inputs while the task is busy; the inbox bounds its own.
_AHEAD: Final = 2


class Feed:
    """Fetches rows from ``inbox`` and emits them to the operators in batches: a ``TaskInput``."""

    def __init__(
        self,
        inbox: Inbox,
        emitter: SourceRowEmitter | OrderedRowEmitter,
        size: BatchSize,
        clock: RuntimeClock,
        on_input: Callable[[], None],
    ) -> None:
        """``emitter`` emits the rows; ``on_input`` is called when a block has arrived, and at the end."""
        self._inbox = inbox
        self._emitter = emitter
        self._on_input = on_input
        self.size = size
        self._steady = clock.steady
        self._blocks: deque[InputRows] = deque()
        #: Rows of the first input that were emitted.
        self._at = 0
        self._input_ended = False
        self._capacity = asyncio.Event()
        self.finished = False

    @property
    def queued_records(self) -> int:
        """Number of buffered rows."""
        return sum(map(_rows, self._blocks)) - self._at

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start fetching in ``group``."""
        group.create_task(self._fetch(), name="rows of the partition")

    def stop(self, *, drain: bool) -> None:
        """No-op: history ends by itself."""

    async def _fetch(self) -> None:
        while (block := await self._take()) is not None:
            self._blocks.append(block)
            self._on_input()
            while len(self._blocks) >= _AHEAD:
                self._capacity.clear()
                await self._capacity.wait()
        self._input_ended = True
        self._on_input()

    async def _take(self) -> InputRows | None:
        try:
            return await self._inbox.take()
        except asyncio.CancelledError as exc:
            if asked_to_end():
                raise
            # The task group would ignore the cancellation, and the end of the rows would never be noticed.
            raise InternalError(
                "the inbox was cancelled while rows of the partition were read"
            ) from exc

    def step(self) -> bool:
        """Emit some rows to the operators; return False if there are none yet."""
        if not self._blocks:
            if self._input_ended and not self.finished:
                self.finished = True
                self._emitter.end()
            return False
        block, start = self._blocks[0], self._at
        began = self._steady()
        stop = self._emitter.push(block, start, min(start + self.size.limit, _rows(block)))
        self.size.took(stop - start, self._steady() - began)
        self._at = stop
        if stop == _rows(block):
            self._blocks.popleft()
            self._at = 0
            self._capacity.set()
        return True


class SourceRowEmitter:
    """Records of a source, which have no event time yet."""

    def __init__(
        self, head: Output, operators: Sequence[Operator] = (), *, ends_time: bool
    ) -> None:
        """``operators`` are told the split of the records."""
        self._head = head
        self._operators = operators
        self._ends_time = ends_time
        self._split = ""

    def push(self, block: InputRows, start: int, stop: int) -> int:
        """Emit rows from ``start`` to ``stop`` (exclusive) at most; return the index after the last one."""
        assert not isinstance(block, ExchangedRows)
        split, values = ("", block) if isinstance(block, list) else (block.split, block.values)
        if split != self._split:
            self._split = split
            for operator in self._operators:
                operator.on_split(split)
        self._head.emit(Batch(values[start:stop]))
        return stop

    def end(self) -> None:
        """Emit the final watermark: all rows were emitted."""
        if self._ends_time:
            self._head.watermark(MAX_TIMESTAMP)


class OrderedRowEmitter:
    """Rows of one or two exchanges, each emitted to its input port of the step that reads by key."""

    def __init__(
        self,
        input_ports: Sequence[Output],
        fragment: Fragment,
        until: Timestamp | None,
        watermarks: EpochWatermarks | None = None,
    ) -> None:
        self._input_ports = input_ports
        self._watermark_per_timestamp = fragment.watermark_per_timestamp
        self._watermark_lag = fragment.watermark_lag
        end = MAX_TIMESTAMP if until is None else until - fragment.end_margin - self._watermark_lag
        self._end = max(end, MIN_TIMESTAMP)
        self._watermark = MIN_TIMESTAMP
        #: Least watermark that a record meets: over history all are in order, in an epoch some may be late.
        self._start = MIN_TIMESTAMP
        if watermarks is not None:
            # A live job delays the watermark of merging windows by the same.
            margin = fragment.end_margin + self._watermark_lag - 1
            self._start = max(watermarks.before - margin, MIN_TIMESTAMP)
            if watermarks.after < MAX_TIMESTAMP:
                self._end = min(self._end, max(watermarks.after - margin, MIN_TIMESTAMP))

    @property
    def last_watermark(self) -> Timestamp:
        """The watermark that ``end`` emits."""
        return self._end

    def push(self, block: InputRows, start: int, stop: int) -> int:
        """Emit rows from ``start`` to ``stop`` (exclusive) at most, of one input; return the index after the last
        one."""
        assert isinstance(block, ExchangedRows)
        times = block.times
        self._advance(max(times[start] - self._watermark_lag, self._start))
        if self._watermark_per_timestamp:
            stop = bisect_right(times, times[start], start, stop)
        if len(self._input_ports) > 1:
            stop = _same_until(block.inputs, start, stop)
        batch = Batch(block.values[start:stop], list(times[start:stop]), block.keys[start:stop])
        self._input_ports[block.inputs[start]].emit(batch)
        return stop

    def end(self) -> None:
        """Emit the final watermark: all rows were emitted."""
        self._advance(self._end)

    def _advance(self, to: Timestamp) -> None:
        """Advance the watermark, at most to the end of the history."""
        to = min(to, self._end)
        if to > self._watermark:
            self._watermark = to
            self._input_ports[0].watermark(to)


def _rows(block: InputRows) -> int:
    return len(block.times) if isinstance(block, ExchangedRows) else len(block)


def _same_until(column: Sequence[int], start: int, stop: int) -> int:
    """Return the end of the run of equal values that begins at ``start``, at most ``stop``."""
    first = column[start]
    return next((index for index in range(start + 1, stop) if column[index] != first), stop)
