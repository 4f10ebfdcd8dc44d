"""Carries out the instructions of a barrier machine, for simulations and scenarios, as the runtime does for a task.

Written anew from ``aflow.machines.barriers.events``: it must not share the mistakes of the runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from aflow.machines.barriers.events import (
    Abort,
    AllArrived,
    BarrierArrived,
    Barriers,
    Block,
    CancelAlarm,
    Capture,
    DiscardCapture,
    EndCapture,
    Event,
    Instruction,
    Overtake,
    SetAlarm,
    TriggerCheckpoint,
    Unblock,
)
from aflow.model.elements import Barrier
from aflow.model.time import Timestamp

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class Checkpoints(Protocol[R_contra]):
    """The task of an interpreter: it takes checkpoints, and its channels let barriers overtake."""

    def on_trigger(self, barrier: Barrier) -> None:
        """Take the checkpoint of ``barrier`` and send the barrier on."""
        ...

    def on_abort(self, checkpoint: int) -> None:
        """Forget the checkpoint and send its cancellation on."""
        ...

    def on_all_arrived(self, checkpoint: int, in_flight: Sequence[tuple[int, R_contra]]) -> None:
        """Complete the part of this task with captured records, each with its channel, in the order of capture."""
        ...

    def overtake(self, channel: int, checkpoint: int) -> None:
        """Take the barrier out of its channel and ``handle`` its arrival, if it is still there."""
        ...


@dataclass
class BarrierInterpreter(Generic[R]):
    """Channels that are blocked, records that are captured, and the alarm, as one machine wants them.

    With ``tolerant`` an instruction may contradict the ones before, as those of a machine that omits some.
    """

    machine: Barriers
    task: Checkpoints[R]
    tolerant: bool = False
    cancels_alarms: bool = True
    """False: a cancelled alarm fires nevertheless."""
    blocked: set[int] = field(default_factory=set[int])
    alarm: Timestamp | None = None
    #: Channels of which records are captured now, and the checkpoint for which.
    capturing: dict[int, int] = field(default_factory=dict[int, int])
    #: Records captured for each unaligned checkpoint that waits for barriers.
    in_flight: dict[int, list[tuple[int, R]]] = field(
        default_factory=dict[int, list[tuple[int, R]]]
    )
    #: All instructions so far.
    instructions: list[Instruction] = field(default_factory=list[Instruction])

    @property
    def is_at_rest(self) -> bool:
        """Return True if no checkpoint has left anything to undo."""
        return not (self.blocked or self.capturing or self.in_flight or self.alarm is not None)

    def on_record(self, channel: int, record: R) -> None:
        """Capture a record that is processed now, if it belongs to a checkpoint."""
        captured = self.in_flight.get(self.capturing.get(channel, -1))
        if captured is not None:
            captured.append((channel, record))

    def handle(self, event: Event, now: Timestamp, overtaken: Sequence[R] = ()) -> None:
        """Carry out the answer to ``event``; ``overtaken`` are the records that its barrier has overtaken.

        They belong to the checkpoint of the barrier as soon as it is triggered.
        """
        for instruction in self.machine.handle(event, now):
            overtaken = self._capture(event, overtaken)
            self.instructions.append(instruction)
            self._follow(instruction)
        self._capture(event, overtaken)

    def _capture(self, event: Event, overtaken: Sequence[R]) -> Sequence[R]:
        """Return the records that are still to be captured."""
        if isinstance(event, BarrierArrived) and event.barrier.id in self.in_flight:
            self.in_flight[event.barrier.id] += [(event.channel, record) for record in overtaken]
            return ()
        return overtaken

    def _follow(self, instruction: Instruction) -> None:
        match instruction:
            case TriggerCheckpoint(barrier):
                if barrier.unaligned:
                    self.in_flight[barrier.id] = []
                self.task.on_trigger(barrier)
            case AllArrived(checkpoint):
                assert not self.capturing or self.tolerant
                self.task.on_all_arrived(checkpoint, self.in_flight.pop(checkpoint, []))
            case Abort(checkpoint):
                assert checkpoint not in self.in_flight, "captured records are discarded first"
                self.task.on_abort(checkpoint)
            case Block(channel):
                assert channel not in self.blocked
                self.blocked.add(channel)
            case Unblock(channel):
                assert channel in self.blocked or self.tolerant
                self.blocked.discard(channel)
            case Capture(checkpoint, channels):
                self.capturing = dict.fromkeys(channels, checkpoint)
            case EndCapture(channel):
                assert channel in self.capturing or self.tolerant
                self.capturing.pop(channel, None)
            case DiscardCapture(checkpoint):
                del self.in_flight[checkpoint]
                self.capturing.clear()
            case Overtake(channels):
                for channel in channels:
                    self.task.overtake(channel, self.machine.latest_id)
            case SetAlarm(at):
                self.alarm = at
            case CancelAlarm():
                self.alarm = None if self.cancels_alarms else self.alarm


def by_channel(in_flight: Sequence[tuple[int, R]]) -> dict[int, list[R]]:
    """Return captured records by channel."""
    channels: dict[int, list[R]] = {}
    for channel, record in in_flight:
        channels.setdefault(channel, []).append(record)
    return channels
