"""Exactly once with barriers that overtake: the first one triggers, and what the others have overtaken is captured."""

from __future__ import annotations

from dataclasses import replace

from aflow.machines.barriers.events import (
    Capture,
    DiscardCapture,
    EndCapture,
    Instruction,
    Trigger,
)
from aflow.machines.barriers.one_at_a_time import OneAtATime, Pending
from aflow.model.elements import Barrier
from aflow.model.time import Timestamp


class BarrierUnaligner(OneAtATime):
    """Triggers at the first barrier, and captures of every other channel what comes in front of its own."""

    def _arrived(
        self, pending: Pending, channel: int, barrier: Barrier, now: Timestamp
    ) -> list[Instruction]:
        if len(pending.arrived) > 1:
            return [EndCapture(channel), *self._if_complete(pending, now)]
        rest = self._channels.silent(pending.arrived)
        return [
            Trigger(replace(pending.barrier, unaligned=True), pending.start_delay()),
            *([Capture(pending.id, rest)] if rest else []),
            *self._if_complete(pending, now),
        ]

    def _gone(self, pending: Pending, channel: int, now: Timestamp) -> list[Instruction]:
        return [EndCapture(channel), *self._if_complete(pending, now)]

    def _dropped(self, pending: Pending) -> list[Instruction]:
        return [DiscardCapture(pending.id)]

    def _if_complete(self, pending: Pending, now: Timestamp) -> list[Instruction]:
        return [self._complete(pending, now)] if self._all_here(pending) else []
