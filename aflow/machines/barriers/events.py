"""Events and instructions of barrier machines, and the interface that all of them share.

Order of instructions. Those that undo a checkpoint (``Unblock``, ``CancelAlarm``, ``DiscardCapture``) precede its
``Abort``, which precedes all instructions of the checkpoint that replaces it. For a checkpoint that is taken:

- aligned: ``Block`` for each barrier but the last, then ``Unblock`` for each of them, ``TriggerCheckpoint``,
  ``AllArrived``. Take nothing from an unblocked channel until all instructions of the event have been carried out.
- unaligned: ``TriggerCheckpoint``, ``Capture`` (unless no further barrier is expected), then ``EndCapture`` for each
  further barrier or end, and with the last one ``AllArrived``.
- turned unaligned: ``CancelAlarm``, ``Unblock`` for each blocked channel, ``TriggerCheckpoint``, ``Capture``,
  ``Overtake``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from aflow.machines.alarm import AlarmFired as AlarmFired
from aflow.machines.alarm import CancelAlarm as CancelAlarm
from aflow.machines.alarm import SetAlarm as SetAlarm
from aflow.model.elements import Barrier
from aflow.model.time import Timestamp


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """The barrier of a channel: all records before it were taken, or, if it is unaligned, it overtook them.

    Overtaken records are part of the unaligned checkpoint in any case: the shell adds them itself.
    """

    channel: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class BarrierAnnounced:
    """A barrier with a timeout is in the channel, after records that were not taken yet.

    Machines whose barriers never overtake ignore it.
    """

    channel: int
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class CancelArrived:
    """A cancellation barrier: the channel has no barrier of checkpoint ``id``."""

    channel: int
    id: int


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """All records of the channel were taken, and it has no more."""

    channel: int


Event: TypeAlias = BarrierArrived | BarrierAnnounced | CancelArrived | ChannelEnded | AlarmFired


class AbortReason(Enum):
    """Reason for which a task aborts a checkpoint that it had begun."""

    SUBSUMED = "subsumed"
    """A newer barrier arrived."""
    CANCELLED = "cancellation barrier"
    """A task upstream could not take part."""


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Take the checkpoint now. If ``barrier.unaligned``, records in flight are part of it."""

    barrier: Barrier
    start_delay: int
    """Milliseconds from the creation of the barrier to its first arrival here."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort checkpoint ``id`` in this task; reported once."""

    id: int
    reason: AbortReason


@dataclass(frozen=True, slots=True)
class Block:
    """Take nothing from the channel until ``Unblock``."""

    channel: int


@dataclass(frozen=True, slots=True)
class Unblock:
    """Take from the channel again."""

    channel: int


@dataclass(frozen=True, slots=True)
class Capture:
    """Add the records before the barriers of these channels to checkpoint ``id``: those queued and those still to come.

    They are processed all the same.
    """

    id: int
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndCapture:
    """The barrier of the channel has arrived: no further record of it is part of the checkpoint."""

    channel: int


@dataclass(frozen=True, slots=True)
class DiscardCapture:
    """Discard the records captured for checkpoint ``id``, which was aborted."""

    id: int


@dataclass(frozen=True, slots=True)
class Overtake:
    """Let the announced barriers of these channels overtake the records before them.

    Each is taken out of its queue now and arrives as an unaligned one.
    """

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllArrived:
    """All barriers of checkpoint ``id`` have arrived, or their channels have ended: the captured records are complete.

    Follows the ``TriggerCheckpoint`` of the same checkpoint.
    """

    id: int
    alignment: int
    """Milliseconds between the first and the last barrier; 0 with one channel."""


Instruction: TypeAlias = (
    TriggerCheckpoint
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
        """The newest checkpoint of any event, cancelled ones included; -1 before the first."""
        ...

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """Checkpoints that wait for further barriers, in the order of their ids."""
        ...

    @property
    def open_channels(self) -> int:
        """Channels that have not ended."""
        ...

    def handle(self, event: Event, now: Timestamp) -> list[Instruction]:
        """Return the instructions, in order. Raises ``InternalError`` for a corrupt stream."""
        ...
