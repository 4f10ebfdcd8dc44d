"""Rules shared by the machines that have at most one checkpoint pending.

States: *idle*, or *pending* from the first event of a checkpoint until all its barriers have arrived. This class
decides the meaning of an event; its subclasses decide the instructions.

- A newer barrier subsumes the pending checkpoint.
- A late barrier (older than the latest checkpoint, or of one that was cancelled or is complete) is ignored.
- A cancellation of the latest checkpoint or a newer one aborts the pending checkpoint, and is reported once, with the
  cancelled id.
- The end of a channel counts as its barrier.
- Barriers may follow the end of a channel (see ``aflow.machines.barriers``). While other channels are open they are
  ignored; when all have ended, the first barrier of a new checkpoint completes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

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


@dataclass(slots=True)
class PendingBarriers:
    """A checkpoint of which barriers are missing."""

    barrier: Barrier
    began_at: Timestamp
    #: Channels whose barrier has arrived.
    arrived: set[int] = field(default_factory=set[int])

    @property
    def id(self) -> int:
        return self.barrier.id

    def start_delay(self) -> int:
        """Return the milliseconds from the creation of the barrier to its first event in this task."""
        return max(0, self.began_at - self.barrier.created_at)


class SingleCheckpointBarriers(ABC):
    """The base of the machines that have at most one checkpoint pending."""

    def __init__(self, channels: int) -> None:
        self._channels = BarrierChannels(channels)
        #: The newest checkpoint of any event.
        self._latest = -1
        #: None while idle, and always when all channels have ended. Its id is the latest.
        self._pending: PendingBarriers | None = None

    @property
    def latest_id(self) -> int:
        """The newest checkpoint of any event, cancelled ones included; -1 before the first."""
        return self._latest

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """The pending checkpoint, if there is one."""
        return () if self._pending is None else (self._pending.id,)

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
            case BarrierAnnounced(channel, barrier):
                return self._announced(channel, barrier, now)
            case CancelArrived(_, checkpoint):
                return self._cancel(checkpoint)
            case ChannelEnded(channel):
                return self._end(channel, now)
            case AlarmFired():
                return self._alarm(now)

    # -------------------------------------------------------------------------------- decisions of the machines

    @abstractmethod
    def _arrived(
        self, pending: PendingBarriers, channel: int, barrier: Barrier, now: Timestamp
    ) -> list[Instruction]:
        """Handle the barrier of an open channel, which is in ``pending.arrived`` already."""

    @abstractmethod
    def _ended(self, pending: PendingBarriers, channel: int, now: Timestamp) -> list[Instruction]:
        """Handle the end of a channel whose barrier has not arrived."""

    @abstractmethod
    def _undo(self, pending: PendingBarriers) -> list[Instruction]:
        """Return the instructions that undo ``pending``, which is aborted."""

    def _announced(self, channel: int, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        """Handle an announcement. Nothing by default: barriers do not overtake."""
        return []

    def _alarm(self, now: Timestamp) -> list[Instruction]:
        """Handle the alarm. Nothing by default: none is set."""
        return []

    # --------------------------------------------------------------------------------------- common rules

    def _barrier(self, channel: int, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        if channel in self._channels.ended:
            return self._after_all_ends(barrier, now)
        if self._is_late(barrier.id):
            return []
        done = self._begun(barrier, now)
        pending = self._current()
        if channel in pending.arrived:
            raise self._channels.repeated(channel, barrier)
        pending.arrived.add(channel)
        return done + self._arrived(pending, channel, barrier, now)

    def _after_all_ends(self, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        if self.open_channels or self._is_late(barrier.id):
            return []
        self._latest = barrier.id
        delay = max(0, now - barrier.created_at)
        return [
            TriggerCheckpoint(replace(barrier, unaligned=False), delay),
            AllArrived(barrier.id, 0),
        ]

    def _cancel(self, checkpoint: int) -> list[Instruction]:
        pending = self._pending
        is_pending = pending is not None and pending.id == checkpoint
        if checkpoint < self._latest or (checkpoint == self._latest and not is_pending):
            return []
        self._latest = checkpoint
        return [*self._drop(), Abort(checkpoint, AbortReason.CANCELLED)]

    def _end(self, channel: int, now: Timestamp) -> list[Instruction]:
        pending = self._pending
        if pending is None or channel in pending.arrived:
            return []
        return self._ended(pending, channel, now)

    def _is_late(self, checkpoint: int) -> bool:
        if checkpoint == self._latest:
            return self._pending is None or self._pending.id != checkpoint
        return checkpoint < self._latest

    def _begun(self, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        """Make the checkpoint of ``barrier`` the pending one."""
        former = self._pending
        if former is not None and former.id == barrier.id:
            return []
        done = self._drop()
        self._latest = barrier.id
        self._pending = PendingBarriers(barrier, now)
        return done if former is None else [*done, Abort(former.id, AbortReason.SUBSUMED)]

    def _current(self) -> PendingBarriers:
        assert self._pending is not None
        return self._pending

    def _drop(self) -> list[Instruction]:
        pending, self._pending = self._pending, None
        return [] if pending is None else self._undo(pending)

    def _all_here(self, pending: PendingBarriers) -> bool:
        """Return True if every channel has sent its barrier or has ended."""
        return self._channels.all_reported(pending.arrived)

    def _complete(self, pending: PendingBarriers, now: Timestamp) -> AllArrived:
        """End the pending checkpoint and return its last instruction."""
        self._pending = None
        return AllArrived(pending.id, now - pending.began_at if self._channels.count > 1 else 0)
