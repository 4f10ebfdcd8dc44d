"""What barrier machines are told and what they answer: the interface that all of them share.

Order of instructions. What undoes a checkpoint (``Unblock``, ``CancelAlarm``, ``DiscardCapture``) comes before its
``Abort``, and that before anything of the checkpoint that takes its place. For a checkpoint that comes about:

- aligned: ``Block`` for each barrier but the last, then ``Unblock`` for each of them, ``Trigger``, ``AllArrived``. So
  nothing may be taken from an unblocked channel until all instructions of the event have been carried out.
- unaligned: ``Trigger``, ``Capture`` (unless no channel is waited for), then ``EndCapture`` for each further barrier or
  end, and with the last ``AllArrived``.
- turned unaligned: ``CancelAlarm``, ``Unblock`` for each blocked channel, ``Trigger``, ``Capture``, ``Overtake``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from aflow.model.elements import Barrier
from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """The barrier of a channel: all records in front of it were taken, or, if it is unaligned, it overtook them.

    What it overtook is part of an unaligned checkpoint in any case: the shell adds that itself, ``Capture`` or not.
    """

    channel: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class BarrierAnnounced:
    """A barrier with a timeout is in the channel, behind records that were not taken yet.

    Only machines that can let it overtake take notice.
    """

    channel: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class CancelArrived:
    """The channel says that checkpoint ``id`` will not come through it."""

    channel: int
    id: int


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """No record comes any more on the channel, and all of them were taken."""

    channel: int


@dataclass(frozen=True, slots=True)
class AlarmFired:
    """The time of the last ``SetAlarm`` has come."""


Event: TypeAlias = BarrierArrived | BarrierAnnounced | CancelArrived | ChannelEnded | AlarmFired


class AbortReason(Enum):
    """Why a checkpoint that had begun in this task does not come about."""

    SUBSUMED = "subsumed"
    """A newer one came."""
    CANCELLED = "cancellation barrier"
    """A task upstream could not take part."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Take the checkpoint now. With ``barrier.unaligned`` records in flight are part of it."""

    barrier: Barrier
    start_delay: int
    """Milliseconds from the creation of the barrier to its first arrival here."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Checkpoint ``id`` will not come about here; reported once."""

    id: int
    reason: AbortReason


@dataclass(frozen=True, slots=True)
class Block:
    """Take nothing more from the channel."""

    channel: int


@dataclass(frozen=True, slots=True)
class Unblock:
    """Take from the channel again."""

    channel: int


@dataclass(frozen=True, slots=True)
class Capture:
    """Records that are queued in these channels in front of their barriers, and such as still come in front of them,
    are part of checkpoint ``id``, and are processed all the same.
    """

    id: int
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndCapture:
    """The barrier of the channel has come, so nothing more of it is part of the checkpoint."""

    channel: int


@dataclass(frozen=True, slots=True)
class DiscardCapture:
    """What was captured for checkpoint ``id`` is not needed: it was aborted."""

    id: int


@dataclass(frozen=True, slots=True)
class Overtake:
    """The announced barriers of these channels are to overtake the records in front of them: each is taken out of its
    queue now and arrives as an unaligned one.
    """

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllArrived:
    """All barriers of checkpoint ``id`` are here (or their channels have ended): what was captured is complete.

    Follows the ``Trigger`` of the same checkpoint.
    """

    id: int
    alignment: int
    """Milliseconds between the first and the last barrier; 0 with one channel."""


@dataclass(frozen=True, slots=True)
class SetAlarm:
    """Send ``AlarmFired`` at ``at`` (epoch ms); replaces what was set."""

    at: Timestamp


@dataclass(frozen=True, slots=True)
class CancelAlarm:
    """No alarm is needed."""


Instruction: TypeAlias = (
    Trigger
    | Abort
    | Block
    | Unblock
    | Capture
    | EndCapture
    | DiscardCapture
    | Overtake
    | AllArrived
    | SetAlarm
    | CancelAlarm
)


class Barriers(Protocol):
    """A barrier machine for a fixed number of channels, numbered from 0. ``handle`` is its only input."""

    @property
    def latest_id(self) -> int:
        """The newest checkpoint that was heard of, cancelled ones included; -1 before the first."""
        ...

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """Checkpoints that have begun and wait for further barriers, in the order of their ids."""
        ...

    @property
    def open_channels(self) -> int:
        """Channels that have not ended."""
        ...

    def handle(self, event: Event, now: Timestamp) -> list[Instruction]:
        """What is to be done, in this order. Raises ``InternalError`` for a corrupt stream."""
        ...
