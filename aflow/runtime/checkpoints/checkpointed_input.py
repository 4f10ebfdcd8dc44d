"""The shell around a barrier machine: reports events of the channels of a task, and executes the instructions.

Records in flight. Between the trigger of an unaligned checkpoint and the barrier of a channel, elements that the task
takes from that channel are captured before the operators get them. Elements that are queued before a barrier when it
overtakes are captured then, and remain queued. Together, in order, they are the records in flight of the channel.
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
from aflow.runtime.channel import Element, InputChannels
from aflow.runtime.mailbox import Mailbox
from aflow.runtime.task_environment import TaskStart
from aflow.runtime.timer_service import TimerService

#: Elements that a checkpoint stores of a channel.
_CAPTURED: Final = (Batch, Watermark, Idle, Active)

InFlight = Mapping[int, Sequence[Element]]
"""By channel: elements sent before its barrier that the operators get after the trigger of the checkpoint."""


class BarrierListener(Protocol):
    """The checkpointer of a task."""

    def take(self, barrier: Barrier, start_delay: float) -> None:
        """Take a checkpoint now, ``start_delay`` ms after its trigger.

        For an unaligned one, ``all_arrived`` passes the records in flight.
        """
        ...

    def all_arrived(self, checkpoint: int, alignment: int, in_flight: InFlight) -> None:
        """Complete the capture: all barriers have arrived, ``alignment`` ms after the first."""
        ...

    def abandoned(self, checkpoint: int, reason: AbortReason) -> None:
        """Decline a checkpoint whose barriers will not all arrive."""
        ...


class CheckpointedInput:
    """Handles the barriers of the channels of one task, in the coroutine of the task."""

    def __init__(
        self,
        machine: Barriers,
        listener: BarrierListener,
        inputs: InputChannels,
        *,
        clock: Clock,
        mailbox: Mailbox,
        timers: TimerService,
        start: TaskStart,
    ) -> None:
        self._machine = machine
        self._listener = listener
        self._clock = clock
        self._mailbox = mailbox
        self._start = start
        self._inputs = inputs
        #: Channels that the gate must not take from.
        self.blocked: set[int] = set()
        #: Blocked channels that have elements and would be served.
        self._unserved: set[int] = set()
        #: Elements being captured, by channel; lists of ``_in_flight``.
        self.captured: dict[int, list[Element]] = {}
        #: By unaligned checkpoint that waits for barriers, and by channel.
        self._in_flight: dict[int, dict[int, list[Element]]] = {}
        self._timer = timers.timer(lambda _: self._report(AlarmFired()), Lane.CONTROL)
        for index, channel in enumerate(inputs.channels):
            channel.on_barrier = partial(self._announce, index)

    # ------------------------------------------------------------------------------ events of the gate

    def hold(self, index: int) -> None:
        """Keep the turn of a blocked channel until it is unblocked."""
        self._unserved.add(index)

    def on_element(self, index: int, element: Element) -> None:
        """Capture ``element``, which was taken from a channel for the operators, if a checkpoint needs it."""
        captured = self.captured.get(index)
        if captured is not None and isinstance(element, _CAPTURED):
            captured.append(element)

    def arrived(self, index: int, barrier: Barrier) -> None:
        """Handle a barrier that was taken in its order."""
        self._report(BarrierArrived(index, barrier))

    def cancelled(self, index: int, checkpoint: int) -> None:
        """Handle the abort of a checkpoint that was taken in its order."""
        self._report(CancelArrived(index, checkpoint))

    def ended(self, index: int) -> None:
        """Handle the end of a channel."""
        self._report(ChannelEnded(index))

    # -------------------------------------------------------------------------- events of the channels

    def _announce(self, index: int, barrier: Barrier) -> None:
        """Handle a barrier that was sent; called by the writer. The task gets a mail before its next batch."""
        announced = partial(self._announced, index, barrier)
        with suppress(MailboxClosed):  # the task has ended, and its job with it
            self._mailbox.post(partial(self._start.when_initialized, announced), Lane.CONTROL)

    def _announced(self, index: int, barrier: Barrier) -> None:
        if barrier.unaligned:
            self._overtake(index, barrier.id)
        elif self._inputs.channels[index].holds(barrier.id):
            self._report(BarrierAnnounced(index, barrier))

    def _overtake(self, index: int, checkpoint: int) -> None:
        found = self._inputs.channels[index].overtake(checkpoint)
        if found is not None:
            barrier, passed = found
            # The end of a channel is emitted again after a restore; barriers belong to other checkpoints.
            overtaken = [one for one in passed if isinstance(one, _CAPTURED)]
            arrived = BarrierArrived(index, replace(barrier, unaligned=True))
            self._report(arrived, overtaken)

    # --------------------------------------------------------------------------------------- instructions

    def _report(self, event: Event, overtaken: Sequence[Element] = ()) -> None:
        """Report an event and execute the instructions. ``overtaken`` are the elements that its barrier has
        overtaken."""
        instructions = self._machine.handle(event, self._clock.now())
        if overtaken and isinstance(event, BarrierArrived):
            self._execute_capturing(event.channel, event.barrier.id, overtaken, instructions)
        else:
            for one in instructions:
                self._execute(one)

    def _execute_capturing(
        self,
        index: int,
        checkpoint: int,
        overtaken: Sequence[Element],
        instructions: Sequence[Instruction],
    ) -> None:
        """Execute ``instructions``; add ``overtaken`` as soon as the checkpoint was triggered."""
        added = False
        for one in instructions:
            if not added and (of := self._in_flight.get(checkpoint)) is not None:
                of.setdefault(index, []).extend(overtaken)
                added = True
            self._execute(one)
        if not added and (of := self._in_flight.get(checkpoint)) is not None:
            of.setdefault(index, []).extend(overtaken)

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case TriggerCheckpoint(barrier, start_delay):
                if barrier.unaligned:
                    self._in_flight[barrier.id] = {}
                self._listener.take(barrier, start_delay)
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
                self._listener.all_arrived(checkpoint, alignment, in_flight)
            case DiscardCapture(checkpoint):
                self._discard(checkpoint)
            case Abort(checkpoint, reason):
                self._discard(checkpoint)
                self._listener.abandoned(checkpoint, reason)
            case Overtake(channels):
                for index in channels:
                    self._overtake(index, self._machine.latest_id)
            case SetAlarm(at):
                self._timer.set(at)
            case CancelAlarm():
                self._timer.cancel()

    def _unblock(self, channel: int) -> None:
        self.blocked.discard(channel)
        if channel in self._unserved:
            self._unserved.remove(channel)
            self._inputs.ready.append(channel)

    def _discard(self, checkpoint: int) -> None:
        for index in self._in_flight.pop(checkpoint, {}):
            self.captured.pop(index, None)
