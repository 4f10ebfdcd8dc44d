"""The input of a task that reads from other tasks: its channels, merged into one stream of batches and watermarks.

Channels that are not empty are served in turn, one batch each. Watermarks and idleness pass the ``WatermarkValve``, so
the operators see one watermark: the smallest of all active channels. If the first operator distinguishes its inputs,
the batches of a channel go to the port of its input. Time is common to the inputs, so it goes to the first port.

The gate passes barriers to the ``CheckpointedInput``, which decides when the task takes its checkpoint and blocks
channels until then. A task whose input has ended still receives barriers through its channels, after their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from aflow.errors import InternalError
from aflow.machines.batch_size import BatchSize
from aflow.machines.watermarks.valve import WatermarkValve
from aflow.model.batch import Batch
from aflow.model.elements import (
    Active,
    Barrier,
    CancelBarrier,
    EndOfInput,
    Idle,
    LatencyMarker,
    ProgressMarker,
    Watermark,
)
from aflow.model.time import Timestamp
from aflow.operators.base import Output
from aflow.runtime.channel import Element, InputChannels
from aflow.runtime.checkpoints.checkpointed_input import CheckpointedInput
from aflow.runtime.clock import RuntimeClock


class Gate:
    """Merges the channels of one subtask."""

    def __init__(
        self,
        inputs: InputChannels,
        heads: Sequence[Output],
        size: BatchSize,
        clock: RuntimeClock,
        checkpointed: CheckpointedInput | None,
        *,
        timeless: Collection[int] = (),
    ) -> None:
        self._inputs = inputs
        self._channels = channels = inputs.channels
        #: The output for the batches of each channel.
        self._heads = heads
        #: The output for watermarks and idleness.
        self._head = heads[0]
        self._size = size
        self._steady = clock.steady
        self._valve = WatermarkValve(len(channels))
        #: Indices of channels without event time, which only tell that it has ended; always idle for the valve.
        self._timeless = frozenset(timeless)
        for index in self._timeless:
            self._valve.on_idle(index)
        self._ready = inputs.ready
        #: None in a job without checkpoints, which has no barriers.
        self._checkpointed = checkpointed
        #: Channels whose records an unaligned checkpoint captures before the operators get them; usually empty.
        self._captured: Mapping[int, object] = {} if checkpointed is None else checkpointed.captured
        #: Channels that are blocked until a checkpoint has the barriers of the others; usually empty.
        self._blocked: Collection[int] = (
            frozenset[int]() if checkpointed is None else checkpointed.blocked
        )
        self._open = len(channels)
        #: By channel that has not ended, the checkpoint of its last progress marker.
        self._progress = dict.fromkeys(range(len(channels)), 0)
        #: The checkpoint of the last one that was passed on.
        self._passed = 0
        #: By channel, restored records in flight that were not processed yet. Usually empty.
        self._restored: dict[int, int] = {}
        self._on_restored_all: Callable[[], None] | None = None

    def begin_with_queued(self, done: Callable[[], None]) -> None:
        """Call ``done`` when the records that are queued now, which were in flight in a checkpoint, are processed."""
        self._restored = {
            index: channel.records
            for index, channel in enumerate(self._channels)
            if channel.records
        }
        self._on_restored_all = done
        if not self._restored:
            done()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Do nothing: channels need no coroutine."""

    @property
    def has_early_status(self) -> bool:
        """True if ``announce_status`` has something to emit."""
        return bool(self._ready) and not self.queued_records

    def announce_status(self) -> None:
        """Emit watermarks and idleness that arrived before any task runs, unless records are queued."""
        while self.has_early_status:
            self.step()

    def stop(self, *, drain: bool) -> None:
        """Do nothing: only sources stop, and their records arrive here until the end."""

    @property
    def queued_records(self) -> int:
        """Records in the channels."""
        return self._inputs.queued_records

    @property
    def finished(self) -> bool:
        """True once all channels have ended and all elements were taken."""
        return self._open == 0

    def step(self) -> bool:
        """Emit the next element to the operators. Return False if there is none."""
        if not self._ready:
            return False
        index = self._ready.popleft()
        if index in self._blocked and self._checkpointed is not None:
            self._checkpointed.hold(index)
            return True
        channel = self._channels[index]
        if not len(channel):
            return True  # the only element was a barrier, which has overtaken
        element = channel.take(self._size.limit)
        if len(channel):
            self._ready.append(index)
        if self._captured and self._checkpointed is not None:
            self._checkpointed.on_element(index, element)
        if type(element) is Batch:
            start = self._steady()
            if element.correlation is not None:
                element.correlation.run(partial(self._emit, index, element))
            elif element.watermarks is None:
                self._heads[index].emit(element)
            else:
                self._emit_with_watermarks(index, element, element.watermarks)
            self._size.took(len(element.values), self._steady() - start)
            if self._restored:
                self._on_restored(index, len(element.values))
        else:
            self._control(index, element)
        return True

    def _emit(self, index: int, batch: Batch[Any]) -> None:
        if batch.watermarks is None:
            self._heads[index].emit(batch)
        else:
            self._emit_with_watermarks(index, batch, batch.watermarks)

    def _emit_with_watermarks(self, index: int, batch: Batch[Any], earned: list[Timestamp]) -> None:
        """Emit records of one channel with the watermarks that they meet here: no channel that counts is behind them.

        A channel that has not sent a watermark yet, as after a restore, holds them back.
        """
        bound = self._valve.bound(index)
        if bound is None or min(earned[-1], bound) <= self._valve.watermark:
            self._heads[index].emit(batch.without_watermarks())
            return
        if bound < earned[-1]:
            met = [min(at, bound) for at in earned]
            batch = Batch(batch.values, batch.timestamps, batch.keys, met)
        self._heads[index].emit(batch)
        # The operators have applied them. So this one is emitted before any that is smaller.
        combined = self._valve.on_watermark(index, earned[-1])
        if combined is not None:
            self._head.watermark(combined)

    def _on_restored(self, index: int, records: int) -> None:
        left = self._restored.pop(index, 0) - records
        if left > 0:
            self._restored[index] = left
        elif not self._restored and self._on_restored_all is not None:
            self._on_restored_all()

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
            case LatencyMarker():
                self._head.marker(element)
            case ProgressMarker(checkpoint):
                self._progress[index] = checkpoint
                self._pass_progress()
            case EndOfInput():
                self._open -= 1
                del self._progress[index]
                self._pass_progress()
                self._push(valve.on_end(index))
                if self._checkpointed is not None:
                    self._checkpointed.ended(index)
            case Barrier() if self._checkpointed is not None:
                self._checkpointed.arrived(index, element)
            case CancelBarrier(checkpoint) if self._checkpointed is not None:
                self._checkpointed.cancelled(index, checkpoint)
            case _:
                raise InternalError(
                    f"channel {index} carried {element!r}, which the gate does not handle"
                )

    def _pass_progress(self) -> None:
        """Pass on a progress marker that all channels have sent. Without any channel, the sinks see the end."""
        reached = min(self._progress.values(), default=0)
        if reached > self._passed:
            self._passed = reached
            self._head.marker(ProgressMarker(reached))

    def _push(self, elements: Sequence[Watermark | Idle | Active]) -> None:
        for element in elements:
            match element:
                case Watermark(timestamp):
                    self._head.watermark(timestamp)
                case Idle():
                    self._head.idle()
                case Active():
                    self._head.active()
