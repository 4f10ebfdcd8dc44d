"""Begins aligned, and goes on unaligned when a barrier is older than its timeout. The next one begins aligned again.

A checkpoint *turns* once, and for good: when the alarm rings, when anything is handled after the timeout and barriers
are still missing (the alarm may be late), or when a barrier comes that has overtaken already. Savepoints have no
timeout and never turn. A barrier that completes the checkpoint completes it aligned, however late it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from aflow.machines.barriers.events import (
    Block,
    CancelAlarm,
    Capture,
    DiscardCapture,
    EndCapture,
    Instruction,
    Overtake,
    SetAlarm,
    TriggerCheckpoint,
    Unblock,
)
from aflow.machines.barriers.single_checkpoint import PendingBarriers, SingleCheckpointBarriers
from aflow.model.elements import Barrier, CheckpointKind
from aflow.model.time import Timestamp


class AlternatingBarriers(SingleCheckpointBarriers):
    """Aligns until the timeout of the barrier, and captures records in flight from then on."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        #: True once the pending checkpoint has turned unaligned.
        self._turned = False
        #: BarrierChannels that are blocked for the pending checkpoint. Empty once it has turned.
        self._blocked: set[int] = set()
        #: BarrierChannels with a barrier of the pending checkpoint that was announced and has not arrived.
        self._on_the_way: set[int] = set()
        #: What the alarm is set to; None: it is not set.
        self._set_to: Timestamp | None = None

    def _arrived(
        self, pending: PendingBarriers, channel: int, barrier: Barrier, now: Timestamp
    ) -> list[Instruction]:
        self._on_the_way.discard(channel)
        if self._turned:
            return [EndCapture(channel), *self._if_complete(pending, now)]
        if barrier.unaligned:
            return self._turn(pending, now)
        if self._all_here(pending):
            return self._aligned(pending, now)
        self._blocked.add(channel)
        return [Block(channel), *self._look_at_the_clock(pending, now)]

    def _announced(self, channel: int, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        """The first word of a checkpoint may be an announcement, and subsumes the former one as a barrier does."""
        if channel in self._channels.ended or self._is_late(barrier.id):
            return []
        done = self._begun(barrier, now)
        pending = self._current()
        if channel in pending.arrived:
            return done
        self._on_the_way.add(channel)
        if self._turned:
            return [*done, Overtake((channel,))]
        return [*done, *self._look_at_the_clock(pending, now)]

    def _gone(self, pending: PendingBarriers, channel: int, now: Timestamp) -> list[Instruction]:
        # Its barrier, if it was announced, stands behind the end: there is nothing more to overtake.
        self._on_the_way.discard(channel)
        if self._turned:
            return [EndCapture(channel), *self._if_complete(pending, now)]
        if self._all_here(pending):
            return self._aligned(pending, now)
        return self._look_at_the_clock(pending, now)

    def _alarm(self, now: Timestamp) -> list[Instruction]:
        self._set_to = None
        pending = self._pending
        if pending is None or self._turned:
            return []
        return self._look_at_the_clock(pending, now)

    def _dropped(self, pending: PendingBarriers) -> list[Instruction]:
        undone = [*self._unblock(), *self._silence()]
        if self._turned:
            undone.append(DiscardCapture(pending.id))
        self._forget()
        return undone

    def _look_at_the_clock(self, pending: PendingBarriers, now: Timestamp) -> list[Instruction]:
        """Turn if it is time, else see to it that the alarm will ring then."""
        due = _due(pending.barrier)
        if due is None:
            return []
        if now >= due:
            return self._turn(pending, now)
        if self._set_to == due:
            return []
        self._set_to = due
        return [SetAlarm(due)]

    def _turn(self, pending: PendingBarriers, now: Timestamp) -> list[Instruction]:
        self._turned = True
        rest = self._channels.silent(pending.arrived)
        overtaking = tuple(sorted(self._on_the_way))
        turned: list[Instruction] = [*self._silence(), *self._unblock()]
        turned.append(
            TriggerCheckpoint(replace(pending.barrier, unaligned=True), pending.start_delay())
        )
        if rest:
            turned.append(Capture(pending.id, rest))
        if overtaking:
            turned.append(Overtake(overtaking))
        return [*turned, *self._if_complete(pending, now)]

    def _aligned(self, pending: PendingBarriers, now: Timestamp) -> list[Instruction]:
        done: list[Instruction] = [*self._silence(), *self._unblock()]
        done.append(TriggerCheckpoint(pending.barrier, pending.start_delay()))
        self._forget()
        return [*done, self._complete(pending, now)]

    def _if_complete(self, pending: PendingBarriers, now: Timestamp) -> list[Instruction]:
        if not self._all_here(pending):
            return []
        self._forget()
        return [self._complete(pending, now)]

    def _unblock(self) -> Iterable[Instruction]:
        blocked, self._blocked = sorted(self._blocked), set()
        return [Unblock(channel) for channel in blocked]

    def _silence(self) -> list[Instruction]:
        if self._set_to is None:
            return []
        self._set_to = None
        return [CancelAlarm()]

    def _forget(self) -> None:
        self._turned = False
        self._on_the_way.clear()


def _due(barrier: Barrier) -> Timestamp | None:
    """When ``barrier`` may overtake; None: never."""
    if barrier.timeout is None or barrier.kind is not CheckpointKind.PERIODIC:
        return None
    return barrier.created_at + barrier.timeout
