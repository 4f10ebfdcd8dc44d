"""Exactly once with barriers in their place: each channel is blocked at its barrier until all have arrived."""

from __future__ import annotations

from aflow.machines.barriers.events import Block, Instruction, TriggerCheckpoint, Unblock
from aflow.machines.barriers.single_checkpoint import PendingBarriers, SingleCheckpointBarriers
from aflow.model.elements import Barrier
from aflow.model.time import Timestamp


class BarrierAligner(SingleCheckpointBarriers):
    """Blocks channels whose barrier has arrived, and triggers and unblocks when all have.

    While a checkpoint is pending, the blocked channels are those whose barrier has arrived.
    """

    def _arrived(
        self, pending: PendingBarriers, channel: int, barrier: Barrier, now: Timestamp
    ) -> list[Instruction]:
        if self._all_here(pending):
            return self._aligned(pending, now, but=channel)
        return [Block(channel)]

    def _ended(self, pending: PendingBarriers, channel: int, now: Timestamp) -> list[Instruction]:
        return self._aligned(pending, now) if self._all_here(pending) else []

    def _undo(self, pending: PendingBarriers) -> list[Instruction]:
        return [Unblock(channel) for channel in sorted(pending.arrived)]

    def _aligned(
        self, pending: PendingBarriers, now: Timestamp, *, but: int = -1
    ) -> list[Instruction]:
        """Complete the checkpoint; ``but`` is the last channel, which was never blocked."""
        unblocked = [Unblock(channel) for channel in sorted(pending.arrived - {but})]
        return [
            *unblocked,
            TriggerCheckpoint(pending.barrier, pending.start_delay()),
            self._complete(pending, now),
        ]
