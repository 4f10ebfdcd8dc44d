"""What a task reads: its channels, merged into one stream of batches and watermarks.

Channels that have something are served in turn, one batch each. Watermarks and idleness of the channels go through the
``WatermarkValve``, so the operators behind the gate see one watermark: the smallest of all channels that are active.
Where the operator behind the gate tells its inputs apart, batches go to the *head* of the channel they came by: the
same operator, entered by another door. Time is common, so it comes by the first door whatever its channel.

The gate passes barriers to the ``CheckpointedInput``, which decides when the task takes its checkpoint and blocks
channels until then. A task whose input has ended still receives barriers through its channels, after their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from aflow.errors import InternalError
from aflow.machines.batch_size import BatchSize
from aflow.machines.watermarks.valve import WatermarkValve
from aflow.model.batch import Batch
from aflow.model.elements import Active, Barrier, CancelBarrier, EndOfInput, Idle, Watermark
from aflow.operators.base import Output
from aflow.runtime.channel import Element
from aflow.runtime.checkpoints.checkpointed_input import CheckpointedInput
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.input_channels import InputChannels


class Gate:
    """The input of a task that reads from other tasks."""

    def __init__(
        self,
        inputs: InputChannels,
        heads: Sequence[Output],
        size: BatchSize,
        clock: RuntimeClock,
        desk: CheckpointedInput | None,
        *,
        timeless: Collection[int] = (),
    ) -> None:
        self._inputs = inputs
        self._channels = channels = inputs.channels
        #: Where the batches of each channel go.
        self._heads = heads
        #: Where watermarks and idleness go, which are those of all channels.
        self._head = heads[0]
        self._size = size
        self._steady = clock.steady
        self._valve = WatermarkValve(len(channels))
        #: Indices of the channels that never say anything about time but that it is over: idle for ever, for the valve.
        self._timeless = frozenset(timeless)
        for index in self._timeless:
            self._valve.on_idle(index)
        self._ready = inputs.ready
        #: None in a job without checkpoints, where no barriers come.
        self._desk = desk
        #: The channels whose records a checkpoint wants to see before the operators do; empty nearly always.
        self._captured: Mapping[int, object] = {} if desk is None else desk.captured
        #: The channels that are held up until a checkpoint has the barriers of the others; empty nearly always.
        self._blocked: Collection[int] = frozenset[int]() if desk is None else desk.blocked
        self._open = len(channels)
        #: By channel, records that a checkpoint had in flight and that were not processed yet. Empty nearly always.
        self._left: dict[int, int] = {}
        self._done: Callable[[], None] | None = None

    def begin_with_queued(self, done: Callable[[], None]) -> None:
        """Call ``done`` when the records that are queued now, which a checkpoint had in flight, have been processed."""
        self._left = {
            index: channel.records
            for index, channel in enumerate(self._channels)
            if channel.records
        }
        self._done = done
        if not self._left:
            done()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Do nothing: channels need no coroutine."""

    @property
    def has_early_status(self) -> bool:
        """True if ``announce_status`` has something to emit."""
        return bool(self._ready) and not self.queued_records

    def announce_status(self) -> None:
        """Hand on the watermarks and idleness that were sent before any task runs, unless records wait here."""
        while self.has_early_status:
            self.step()

    def stop(self, *, drain: bool) -> None:
        """Only sources stop; what they have sent comes through here until its end."""

    @property
    def queued_records(self) -> int:
        """Records that wait in the channels."""
        return self._inputs.queued_records

    @property
    def finished(self) -> bool:
        """True once all channels have ended and all of them was taken."""
        return self._open == 0

    def step(self) -> bool:
        """Hand the next element to the operators; False if there is none."""
        if not self._ready:
            return False
        index = self._ready.popleft()
        if index in self._blocked and self._desk is not None:
            self._desk.hold(index)
            return True
        channel = self._channels[index]
        if not len(channel):
            return True  # a barrier was all there was, and has overtaken
        element = channel.take(self._size.limit)
        if len(channel):
            self._ready.append(index)
        if self._captured and self._desk is not None:
            self._desk.taken(index, element)
        if type(element) is Batch:
            start = self._steady()
            self._heads[index].emit(element)
            self._size.took(len(element.values), self._steady() - start)
            if self._left:
                self._count_down(index, len(element.values))
        else:
            self._control(index, element)
        return True

    def _count_down(self, index: int, records: int) -> None:
        left = self._left.pop(index, 0) - records
        if left > 0:
            self._left[index] = left
        elif not self._left and self._done is not None:
            self._done()

    def _control(self, index: int, element: Element) -> None:
        valve = self._valve
        match element:
            case Watermark(timestamp):
                combined = valve.on_watermark(index, timestamp)
                if combined is not None:
                    self._head.watermark(combined)
            case Idle() | Active() if index in self._timeless:
                pass
            case Idle():
                self._push(valve.on_idle(index))
            case Active():
                self._push(valve.on_active(index))
            case EndOfInput():
                self._open -= 1
                self._push(valve.on_end(index))
                if self._desk is not None:
                    self._desk.ended(index)
            case Barrier() if self._desk is not None:
                self._desk.arrived(index, element)
            case CancelBarrier(checkpoint) if self._desk is not None:
                self._desk.cancelled(index, checkpoint)
            case _:
                raise InternalError(f"channel {index} carried {element!r}, which nobody handles")

    def _push(self, elements: Sequence[Watermark | Idle | Active]) -> None:
        for element in elements:
            match element:
                case Watermark(timestamp):
                    self._head.watermark(timestamp)
                case Idle():
                    self._head.idle()
                case Active():
                    self._head.active()
