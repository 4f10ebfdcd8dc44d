"""The choice of the barrier machine for the tasks of a job."""

from __future__ import annotations

from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.alternating_barriers import AlternatingBarriers
from aflow.machines.barriers.events import Barriers
from aflow.machines.barriers.tracker import BarrierTracker
from aflow.runtime.checkpoints.settings import Aligned, Checkpointing, ProcessingGuarantee


def barrier_machine(settings: Checkpointing, channels: int) -> Barriers:
    """Return the machine of a task with so many channels.

    Savepoints are always aligned, so unaligned barriers use the machine that alternates: it switches to unaligned at
    the first unaligned barrier.
    """

    if settings.guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
        return BarrierTracker(channels)
    if isinstance(settings.barriers, Aligned) and settings.barriers.timeout is None:
        return BarrierAligner(channels)
    return AlternatingBarriers(channels)


def may_overtake(settings: Checkpointing) -> bool:
    """Return True if barriers may overtake records, which are then stored."""
    return not isinstance(settings.barriers, Aligned) or settings.barriers.timeout is not None
