"""Rules shared by the machines that have at most one checkpoint pending.

States: *idle*, or *pending*, from the first word of a checkpoint until all its barriers are here. The rules here say
what an event means; the machines say what is done about it.

- A newer barrier subsumes the pending checkpoint.
- A barrier that is late (older than the latest checkpoint, or of one that was cancelled or is complete) is nothing.
- A cancellation of the latest checkpoint or a newer one ends what is pending, and is reported once, under its own id.
- The end of a channel counts as its barrier.
- Barriers follow the end of a channel (see ``aflow.machines.barriers``). While others are open they are nothing; when
  all have ended, the first of a new checkpoint is all there is to wait for.
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
    """A checkpoint whose barriers are not all here."""

    barrier: Barrier
    began_at: Timestamp
    #: BarrierChannels whose barrier has come.
    arrived: set[int] = field(default_factory=set[int])

    @property
    def id(self) -> int:
        return self.barrier.id

    def start_delay(self) -> int:
        """Milliseconds from the creation of the barrier to the first word of it here."""
        return max(0, self.began_at - self.barrier.created_at)


class SingleCheckpointBarriers(ABC):
    """The base of the machines that have at most one checkpoint pending."""

    def __init__(self, channels: int) -> None:
        self._channels = BarrierChannels(channels)
        #: The newest checkpoint that was heard of.
        self._latest = -1
        #: None while idle, and always when all channels have ended. Its id is the latest.
        self._pending: PendingBarriers | None = None

    @property
    def latest_id(self) -> int:
        """The newest checkpoint that was heard of, cancelled ones included; -1 before the first."""
        return self._latest

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """The checkpoint that has begun and waits for further barriers."""
        return () if self._pending is None else (self._pending.id,)

    @property
    def open_channels(self) -> int:
        """BarrierChannels that have not ended."""
        return self._channels.open

    def handle(self, event: Event, now: Timestamp) -> list[Instruction]:
        """What is to be done, in this order. Raises ``InternalError`` for a corrupt stream."""
        self._channels.hear(event)
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

    # -------------------------------------------------------------------------------- what machines decide

    @abstractmethod
    def _arrived(
        self, pending: PendingBarriers, channel: int, barrier: Barrier, now: Timestamp
    ) -> list[Instruction]:
        """The barrier of an open channel has come; it is among ``pending.arrived``."""

    @abstractmethod
    def _gone(self, pending: PendingBarriers, channel: int, now: Timestamp) -> list[Instruction]:
        """A channel has ended without its barrier, which its end stands for."""

    @abstractmethod
    def _dropped(self, pending: PendingBarriers) -> list[Instruction]:
        """``pending`` will not come about: undo what was done for it."""

    def _announced(self, channel: int, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        """A barrier is on its way. Nothing, for machines whose barriers keep their place."""
        return []

    def _alarm(self, now: Timestamp) -> list[Instruction]:
        """Nothing, for machines that set none."""
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
        return self._gone(pending, channel, now)

    def _is_late(self, checkpoint: int) -> bool:
        if checkpoint == self._latest:
            return self._pending is None or self._pending.id != checkpoint
        return checkpoint < self._latest

    def _begun(self, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        """Make sure that the checkpoint of ``barrier`` is the pending one."""
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
        return [] if pending is None else self._dropped(pending)

    def _all_here(self, pending: PendingBarriers) -> bool:
        """True if every channel has sent its barrier or has ended."""
        return self._channels.all_spoke(pending.arrived)

    def _complete(self, pending: PendingBarriers, now: Timestamp) -> AllArrived:
        """Nothing is pending any more."""
        self._pending = None
        return AllArrived(pending.id, now - pending.began_at if self._channels.count > 1 else 0)
