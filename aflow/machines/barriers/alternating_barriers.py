"""Starts each checkpoint aligned, and turns it unaligned when a barrier has overtaken or its timeout has expired.

A checkpoint *turns* once, for good: when the alarm goes off, when an event is handled after the timeout while barriers
are missing (the alarm may be late), or when a barrier arrives that has overtaken already. Savepoints have no timeout
and never turn. A barrier that completes the checkpoint completes it aligned, however late it is.

After ``SingleCheckpointBarrierHandler.alternating`` of Flink.
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
    """Blocks channels until the checkpoint turns, and captures records in flight from then on."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        #: True once the pending checkpoint has turned unaligned.
        self._turned = False
        #: Channels that are blocked for the pending checkpoint. Empty once it has turned.
        self._blocked: set[int] = set()
        #: Channels whose barrier of the pending checkpoint was announced and has not arrived.
        self._announced_in: set[int] = set()
        #: The time that the alarm is set to; None if it is not set.
        self._alarm_at: Timestamp | None = None

    def _arrived(
        self, pending: PendingBarriers, channel: int, barrier: Barrier, now: Timestamp
    ) -> list[Instruction]:
        self._announced_in.discard(channel)
        if self._turned:
            return [EndCapture(channel), *self._if_complete(pending, now)]
        if barrier.unaligned:
            return self._turn(pending, now)
        if self._all_here(pending):
            return self._aligned(pending, now)
        self._blocked.add(channel)
        return [Block(channel), *self._turn_or_wait(pending, now)]

    def _announced(self, channel: int, barrier: Barrier, now: Timestamp) -> list[Instruction]:
        """Begin the checkpoint if its first event is an announcement: it subsumes the former one as a barrier does."""
        if channel in self._channels.ended or self._is_late(barrier.id):
            return []
        done = self._begun(barrier, now)
        pending = self._current()
        if channel in pending.arrived:
            return done
        self._announced_in.add(channel)
        if self._turned:
            return [*done, Overtake((channel,))]
        return [*done, *self._turn_or_wait(pending, now)]

    def _ended(self, pending: PendingBarriers, channel: int, now: Timestamp) -> list[Instruction]:
        # If its barrier was announced, it follows the end: no record is left to overtake.
        self._announced_in.discard(channel)
        if self._turned:
            return [EndCapture(channel), *self._if_complete(pending, now)]
        if self._all_here(pending):
            return self._aligned(pending, now)
        return self._turn_or_wait(pending, now)

    def _alarm(self, now: Timestamp) -> list[Instruction]:
        self._alarm_at = None
        pending = self._pending
        if pending is None or self._turned:
            return []
        return self._turn_or_wait(pending, now)

    def _undo(self, pending: PendingBarriers) -> list[Instruction]:
        undone = [*self._unblock(), *self._cancel_alarm()]
        if self._turned:
            undone.append(DiscardCapture(pending.id))
        self._forget()
        return undone

    def _turn_or_wait(self, pending: PendingBarriers, now: Timestamp) -> list[Instruction]:
        """Turn if the timeout has expired, else set the alarm to its end."""
        due = _due(pending.barrier)
        if due is None:
            return []
        if now >= due:
            return self._turn(pending, now)
        if self._alarm_at == due:
            return []
        self._alarm_at = due
        return [SetAlarm(due)]

    def _turn(self, pending: PendingBarriers, now: Timestamp) -> list[Instruction]:
        self._turned = True
        rest = self._channels.missing(pending.arrived)
        overtaking = tuple(sorted(self._announced_in))
        turned: list[Instruction] = [*self._cancel_alarm(), *self._unblock()]
        turned.append(
            TriggerCheckpoint(replace(pending.barrier, unaligned=True), pending.start_delay())
        )
        if rest:
            turned.append(Capture(pending.id, rest))
        if overtaking:
            turned.append(Overtake(overtaking))
        return [*turned, *self._if_complete(pending, now)]

    def _aligned(self, pending: PendingBarriers, now: Timestamp) -> list[Instruction]:
        done: list[Instruction] = [*self._cancel_alarm(), *self._unblock()]
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

    def _cancel_alarm(self) -> list[Instruction]:
        if self._alarm_at is None:
            return []
        self._alarm_at = None
        return [CancelAlarm()]

    def _forget(self) -> None:
        self._turned = False
        self._announced_in.clear()


def _due(barrier: Barrier) -> Timestamp | None:
    """Return the time from which on ``barrier`` may overtake; None: never."""
    if barrier.timeout is None or barrier.kind is not CheckpointKind.PERIODIC:
        return None
    return barrier.created_at + barrier.timeout
