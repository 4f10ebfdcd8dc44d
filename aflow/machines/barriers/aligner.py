"""Exactly once with barriers that keep their place: each channel waits at its barrier until all are here."""

from __future__ import annotations

from aflow.machines.barriers.events import Block, Instruction, TriggerCheckpoint, Unblock
from aflow.machines.barriers.single_checkpoint import PendingBarriers, SingleCheckpointBarriers
from aflow.model.elements import Barrier
from aflow.model.time import Timestamp


class BarrierAligner(SingleCheckpointBarriers):
    """Blocks channels that are ahead, triggers when all barriers are here, and then unblocks.

    What is blocked is exactly what has arrived, less what has ended since, while a checkpoint is pending.
    """

    def _arrived(
        self, pending: PendingBarriers, channel: int, barrier: Barrier, now: Timestamp
    ) -> list[Instruction]:
        if self._all_here(pending):
            return self._aligned(pending, now, but=channel)
        return [Block(channel)]

    def _gone(self, pending: PendingBarriers, channel: int, now: Timestamp) -> list[Instruction]:
        return self._aligned(pending, now) if self._all_here(pending) else []

    def _dropped(self, pending: PendingBarriers) -> list[Instruction]:
        return [Unblock(channel) for channel in sorted(pending.arrived)]

    def _aligned(
        self, pending: PendingBarriers, now: Timestamp, *, but: int = -1
    ) -> list[Instruction]:
        """``but`` is the last channel, which was never blocked."""
        unblocked = [Unblock(channel) for channel in sorted(pending.arrived - {but})]
        return [
            *unblocked,
            TriggerCheckpoint(pending.barrier, pending.start_delay()),
            self._complete(pending, now),
        ]
