"""The shell around a barrier machine: tells it what happens in the channels of a task, and does what it says.

Records in flight. Between the trigger of an unaligned checkpoint and the barrier of a channel, what the task takes from
that channel is noted before the operators get it; what is still queued in front of the barrier when that overtakes is
noted then, and stays in the queue. Together, in order, that is what the checkpoint needs of the channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from aflow.errors import MailboxClosed
from aflow.machines.barriers.events import (
    Abort,
    AbortReason,
    AlarmFired,
    AllArrived,
    BarrierAnnounced,
    BarrierArrived,
    Barriers,
    Block,
    CancelAlarm,
    CancelArrived,
    Capture,
    ChannelEnded,
    DiscardCapture,
    EndCapture,
    Event,
    Instruction,
    Overtake,
    SetAlarm,
    TriggerCheckpoint,
    Unblock,
)
from aflow.machines.mail_order import Lane
from aflow.model.batch import Batch
from aflow.model.elements import Active, Barrier, Idle, Watermark
from aflow.model.time import Clock
from aflow.runtime.channel import Element
from aflow.runtime.input_channels import InputChannels
from aflow.runtime.mailbox import Mailbox
from aflow.runtime.task_start import TaskStart
from aflow.runtime.timer_service import TimerService

#: What a checkpoint remembers of a channel.
_CAPTURED: Final = (Batch, Watermark, Idle, Active)

InFlight = Mapping[int, Sequence[Element]]
"""By channel: what was in front of its barrier when the checkpoint was triggered, or came in front of it later."""


class CheckpointTaker(Protocol):
    """Who takes the checkpoints of a task."""

    def take(self, barrier: Barrier, start_delay: float) -> None:
        """Take a checkpoint now, ``start_delay`` ms after its trigger.

        Of an unaligned one, ``all_arrived`` brings the records in flight.
        """
        ...

    def all_arrived(self, checkpoint: int, alignment: int, in_flight: InFlight) -> None:
        """All barriers have come, ``alignment`` ms after the first."""
        ...

    def abandoned(self, checkpoint: int, reason: AbortReason) -> None:
        """The barriers of a checkpoint will not all come."""
        ...


class CheckpointedInput:
    """Handles the barriers of one task's channels, in the task's coroutine."""

    def __init__(
        self,
        machine: Barriers,
        taker: CheckpointTaker,
        inputs: InputChannels,
        *,
        clock: Clock,
        mailbox: Mailbox,
        timers: TimerService,
        start: TaskStart,
    ) -> None:
        self._machine = machine
        self._taker = taker
        self._clock = clock
        self._mailbox = mailbox
        self._start = start
        self._inputs = inputs
        #: Channels of which nothing is taken for now.
        self.blocked: set[int] = set()
        #: Those of them whose turn has come meanwhile.
        self._held: set[int] = set()
        #: What is being noted, by channel; lists of ``_in_flight``.
        self.captured: dict[int, list[Element]] = {}
        #: By checkpoint that was triggered unaligned and waits for barriers, and by channel.
        self._in_flight: dict[int, dict[int, list[Element]]] = {}
        self._timer = timers.timer(lambda _: self._tell(AlarmFired()), Lane.CONTROL)
        for index, channel in enumerate(inputs.channels):
            channel.on_barrier = partial(self._announce, index)

    # --------------------------------------------------------------------------------- told by the gate

    def hold(self, index: int) -> None:
        """A blocked channel would have had its turn."""
        self._held.add(index)

    def taken(self, index: int, element: Element) -> None:
        """``element`` was taken from a channel, on its way to the operators."""
        noted = self.captured.get(index)
        if noted is not None and isinstance(element, _CAPTURED):
            noted.append(element)

    def arrived(self, index: int, barrier: Barrier) -> None:
        """A barrier was taken, in its place."""
        self._tell(BarrierArrived(index, barrier))

    def cancelled(self, index: int, checkpoint: int) -> None:
        """The word that a checkpoint does not come about was taken."""
        self._tell(CancelArrived(index, checkpoint))

    def ended(self, index: int) -> None:
        """The end of a channel was taken."""
        self._tell(ChannelEnded(index))

    # ------------------------------------------------------------------------------ told by the channels

    def _announce(self, index: int, barrier: Barrier) -> None:
        """Called by who writes into the channel; the task hears of it before its next batch."""
        announced = partial(self._announced, index, barrier)
        with suppress(MailboxClosed):  # the task has ended: its job is over
            self._mailbox.post(partial(self._start.when_initialized, announced), Lane.CONTROL)

    def _announced(self, index: int, barrier: Barrier) -> None:
        if barrier.unaligned:
            self._overtake(index, barrier.id)
        elif self._inputs.channels[index].holds(barrier.id):
            self._tell(BarrierAnnounced(index, barrier))

    def _overtake(self, index: int, checkpoint: int) -> None:
        found = self._inputs.channels[index].overtake(checkpoint)
        if found is not None:
            barrier, passed = found
            # The end of a channel is sent again after a restore; barriers are of other checkpoints.
            overtaken = [one for one in passed if isinstance(one, _CAPTURED)]
            arrived = BarrierArrived(index, replace(barrier, unaligned=True))
            self._tell(arrived, overtaken)

    # --------------------------------------------------------------------------------------- instructions

    def _tell(self, event: Event, overtaken: Sequence[Element] = ()) -> None:
        """Tell the machine, and do what it says. ``overtaken`` is what stood in front of a barrier that arrived."""
        instructions = self._machine.handle(event, self._clock.now())
        if overtaken and isinstance(event, BarrierArrived):
            self._note(event.channel, event.barrier.id, overtaken, instructions)
        else:
            for one in instructions:
                self._do(one)

    def _note(
        self,
        index: int,
        checkpoint: int,
        overtaken: Sequence[Element],
        instructions: Sequence[Instruction],
    ) -> None:
        """Carry out ``instructions``; ``overtaken`` is added as soon as the checkpoint has been triggered."""
        noted = False
        for one in instructions:
            if not noted and (of := self._in_flight.get(checkpoint)) is not None:
                of.setdefault(index, []).extend(overtaken)
                noted = True
            self._do(one)
        if not noted and (of := self._in_flight.get(checkpoint)) is not None:
            of.setdefault(index, []).extend(overtaken)

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case TriggerCheckpoint(barrier, start_delay):
                if barrier.unaligned:
                    self._in_flight[barrier.id] = {}
                self._taker.take(barrier, start_delay)
            case Block(channel):
                self.blocked.add(channel)
            case Unblock(channel):
                self._unblock(channel)
            case Capture(checkpoint, channels):
                of = self._in_flight[checkpoint]
                self.captured.update({index: of.setdefault(index, []) for index in channels})
            case EndCapture(channel):
                self.captured.pop(channel, None)
            case AllArrived(checkpoint, alignment):
                in_flight = self._in_flight.pop(checkpoint, {})
                self._taker.all_arrived(checkpoint, alignment, in_flight)
            case DiscardCapture(checkpoint):
                self._discard(checkpoint)
            case Abort(checkpoint, reason):
                self._discard(checkpoint)
                self._taker.abandoned(checkpoint, reason)
            case Overtake(channels):
                for index in channels:
                    self._overtake(index, self._machine.latest_id)
            case SetAlarm(at):
                self._timer.set(at)
            case CancelAlarm():
                self._timer.cancel()

    def _unblock(self, channel: int) -> None:
        self.blocked.discard(channel)
        if channel in self._held:
            self._held.remove(channel)
            self._inputs.ready.append(channel)

    def _discard(self, checkpoint: int) -> None:
        for index in self._in_flight.pop(checkpoint, {}):
            self.captured.pop(index, None)
