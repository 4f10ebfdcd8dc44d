"""Which barrier machine a job's tasks use."""

from __future__ import annotations

from aflow.machines.barriers.aligner import BarrierAligner
from aflow.machines.barriers.alternating import AlternatingBarriers
from aflow.machines.barriers.events import Barriers
from aflow.machines.barriers.tracker import BarrierTracker
from aflow.runtime.checkpoints.settings import Aligned, Checkpointing, ProcessingGuarantee


def barrier_machine(settings: Checkpointing, channels: int) -> Barriers:
    """The machine of a task with so many channels.

    Savepoints are aligned whatever the settings, so unaligned ones use the machine that knows both: it goes on
    unaligned at the first barrier that says so.
    """

    if settings.guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
        return BarrierTracker(channels)
    if isinstance(settings.barriers, Aligned) and settings.barriers.timeout is None:
        return BarrierAligner(channels)
    return AlternatingBarriers(channels)


def may_overtake(settings: Checkpointing) -> bool:
    """Return True if barriers may overtake records, which are stored then."""
    return not isinstance(settings.barriers, Aligned) or settings.barriers.timeout is not None
