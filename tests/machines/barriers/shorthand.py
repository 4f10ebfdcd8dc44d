"""Short names for events of barrier machines."""

from __future__ import annotations

from aflow.machines.barriers.events import (
    BarrierAnnounced,
    BarrierArrived,
    Barriers,
    CancelArrived,
    ChannelEnded,
    Event,
    Instruction,
)
from aflow.model.elements import Barrier, CheckpointKind


def barrier(
    number: int,
    *,
    at: int = 0,
    timeout: int | None = None,
    kind: CheckpointKind = CheckpointKind.PERIODIC,
    unaligned: bool = False,
) -> Barrier:
    """Return the barrier of checkpoint ``number``, created at ``at``."""
    return Barrier(number, at, kind, timeout, unaligned)


def arrived(channel: int, what: int | Barrier) -> BarrierArrived:
    """Return the arrival of a barrier, or of the plain barrier of a checkpoint."""
    return BarrierArrived(channel, barrier(what) if isinstance(what, int) else what)


def announced(channel: int, what: Barrier) -> BarrierAnnounced:
    return BarrierAnnounced(channel, what)


def cancelled(channel: int, number: int) -> CancelArrived:
    return CancelArrived(channel, number)


def ended(channel: int) -> ChannelEnded:
    return ChannelEnded(channel)


def tell(machine: Barriers, *events: Event, now: int = 0) -> list[Instruction]:
    """Return the instructions for all events together."""
    return [step for event in events for step in machine.handle(event, now)]
