"""At least once: counts barriers and blocks nothing.

Several checkpoints may be pending, since channels are not aligned. Each counts the channels whose barrier has arrived.
The first one that is complete triggers and subsumes the older ones. A cancelled checkpoint is kept until all its
channels have reported, so that a late barrier does not begin it anew. After Flink's ``CheckpointBarrierTracker``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from aflow.machines.barriers.channels import BarrierChannels
from aflow.machines.barriers.events import (
    Abort,
    AbortReason,
    AlarmFired,
    AllArrived,
    BarrierAnnounced,
    BarrierArrived,
    CancelArrived,
    ChannelEnded,
    Event,
    Instruction,
    TriggerCheckpoint,
)
from aflow.model.elements import Barrier
from aflow.model.time import Timestamp

#: Maximum of pending checkpoints; beyond it the oldest is forgotten.
MOST: Final = 50


@dataclass(slots=True)
class _Counted:
    """A checkpoint that is not reported by all channels."""

    id: int
    began_at: Timestamp
    #: None until a barrier has arrived.
    barrier: Barrier | None = None
    #: Channels that sent its barrier or its cancellation.
    reported: set[int] = field(default_factory=set[int])
    aborted: bool = False


class BarrierTracker:
    """Triggers when all barriers of a checkpoint have arrived; see ``Barriers``."""

    def __init__(self, channels: int) -> None:
        self._channels = BarrierChannels(channels)
        self._latest = -1
        #: In the order of their ids.
        self._pending: deque[_Counted] = deque()

    @property
    def latest_id(self) -> int:
        """The newest checkpoint of any event, cancelled ones included; -1 before the first."""
        return self._latest

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """Checkpoints that wait for further barriers, cancelled ones included, in the order of their ids."""
        return tuple(one.id for one in self._pending)

    @property
    def open_channels(self) -> int:
        """Channels that have not ended."""
        return self._channels.open

    def handle(self, event: Event, now: Timestamp) -> list[Instruction]:
        """Return the instructions, in order. Raises ``InternalError`` for a corrupt stream."""
        self._channels.observe(event)
        match event:
            case BarrierArrived(channel, barrier):
                return self._barrier(channel, barrier, now)
            case CancelArrived(channel, checkpoint):
                return self._cancel(channel, checkpoint, now)
            case ChannelEnded():
                return self._end(now)
            case BarrierAnnounced() | AlarmFired():
                return []

    def _barrier(self, channel: int, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        if channel in self._channels.ended and self.open_channels:
            return []
        if not self._pending and self.open_channels <= 1:
            return self._at_once(barrier, now)
        counted = self._find(barrier.id)
        if counted is None:
            if barrier.id <= self._latest:
                return []
            counted = self._add(barrier.id, now)
        if channel in counted.reported and not counted.aborted:
            raise self._channels.repeated(channel, barrier)
        counted.barrier = counted.barrier or barrier
        counted.reported.add(channel)
        return self._complete(counted, now) if self._is_complete(counted) else []

    def _at_once(self, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        """Trigger and complete: no other channel is open."""
        if barrier.id <= self._latest:
            return []
        self._latest = barrier.id
        return [
            TriggerCheckpoint(barrier, max(0, now - barrier.created_at)),
            AllArrived(barrier.id, 0),
        ]

    def _cancel(self, channel: int, checkpoint: int, now: Timestamp) -> list[Instruction]:
        done: list[Instruction] = []
        while self._pending and self._pending[0].id < checkpoint:
            done += _aborted(self._pending.popleft(), AbortReason.CANCELLED)
        counted = self._find(checkpoint)
        if counted is None:
            if checkpoint <= self._latest:
                return done
            counted = self._add(checkpoint, now)
        done += _aborted(counted, AbortReason.CANCELLED)
        counted.reported.add(channel)
        if self._is_complete(counted):
            self._pending.remove(counted)
        return done

    def _end(self, now: Timestamp) -> list[Instruction]:
        complete = [one for one in self._pending if self._is_complete(one)]
        return self._complete(complete[-1], now) if complete else []

    def _complete(self, counted: _Counted, now: Timestamp) -> list[Instruction]:
        """Trigger a checkpoint that all channels have reported, and forget it and the older ones."""
        while self._pending and self._pending[0].id <= counted.id:
            self._pending.popleft()
        if counted.aborted or counted.barrier is None:
            return []
        delay = max(0, counted.began_at - counted.barrier.created_at)
        return [
            TriggerCheckpoint(counted.barrier, delay),
            AllArrived(counted.id, now - counted.began_at if self._channels.count > 1 else 0),
        ]

    def _find(self, checkpoint: int) -> _Counted | None:
        return next((one for one in self._pending if one.id == checkpoint), None)

    def _add(self, checkpoint: int, now: Timestamp) -> _Counted:
        self._latest = checkpoint
        counted = _Counted(checkpoint, now)
        self._pending.append(counted)
        if len(self._pending) > MOST:
            self._pending.popleft()
        return counted

    def _is_complete(self, counted: _Counted) -> bool:
        return self._channels.all_reported(counted.reported)


def _aborted(counted: _Counted, reason: AbortReason) -> list[Instruction]:
    """Abort a checkpoint, unless that was reported before."""
    if counted.aborted:
        return []
    counted.aborted = True
    return [Abort(counted.id, reason)]
