"""The input of a task under test: real channels, gate and mailbox, and a record of its outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aflow.machines.barriers.events import AbortReason, Barriers
from aflow.machines.batch_size import BatchSize
from aflow.model.batch import Batch
from aflow.model.elements import Barrier, Marker
from aflow.model.time import Timestamp
from aflow.runtime.channel import Element, InputChannels
from aflow.runtime.checkpoints.checkpointed_input import CheckpointedInput, InFlight
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.gate import Gate
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop
from aflow.runtime.task_environment import TaskStart
from aflow.runtime.timer_service import TimerService
from aflow.testing.virtual_time import VirtualClock


@dataclass(frozen=True)
class Triggered:
    """A checkpoint was triggered."""

    id: int
    start_delay: float
    unaligned: bool = False


@dataclass(frozen=True)
class Complete:
    """All barriers have arrived; ``in_flight`` has the records, and watermarks, by channel."""

    id: int
    alignment: int
    in_flight: dict[int, list[object]]


@dataclass(frozen=True)
class Abandoned:
    """The checkpoint was aborted."""

    id: int
    reason: AbortReason


Line: TypeAlias = Triggered | Complete | Abandoned | str


class RecordedOutput:
    """Outputs of a task's input in their order: records (strings), watermarks (``"t=5"``) and checkpoints."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def emit(self, batch: Batch[Any]) -> None:
        self.lines += batch.values

    def watermark(self, timestamp: Timestamp) -> None:
        self.lines.append(f"t={timestamp}")

    def idle(self) -> None:
        self.lines.append("idle")

    def active(self) -> None:
        self.lines.append("active")

    def marker(self, marker: Marker) -> None:
        self.lines.append(str(marker))

    def side(self, tag: str, batch: Batch[Any]) -> None:
        self.lines += [f"{tag}: {value}" for value in batch.values]

    def take(self, barrier: Barrier, start_delay: float) -> None:
        self.lines.append(Triggered(barrier.id, start_delay, barrier.unaligned))

    def all_arrived(self, checkpoint: int, alignment: int, in_flight: InFlight) -> None:
        """Record only channels with elements in flight."""
        flat = {index: _flatten(elements) for index, elements in in_flight.items() if elements}
        self.lines.append(Complete(checkpoint, alignment, flat))

    def abandoned(self, checkpoint: int, reason: AbortReason) -> None:
        self.lines.append(Abandoned(checkpoint, reason))


class Bench:
    """A gate with a checkpointed input, which a test runs step by step; timers need virtual time."""

    def __init__(
        self,
        machine: Barriers,
        channels: int,
        *,
        most: int = 1000,
        clock: RuntimeClock | None = None,
    ) -> None:
        """``most`` is the largest number of records of one batch."""
        loop = asyncio.get_running_loop()
        clock = VirtualClock() if clock is None else clock
        self.machine = machine
        self.mails = MailboxLoop(
            loop=loop, loop_budget=LoopBudget(loop, clock, budget=1.0), clock=clock
        )
        inputs = InputChannels(self.mails.resume)
        self.channels = [inputs.add(1000, _nothing) for _ in range(channels)]
        self.recorded = RecordedOutput()
        self.timers = TimerService(loop, clock, self.mails.mailbox)
        start = TaskStart(self.mails.resume)
        start.complete()
        self.checkpointed_input = CheckpointedInput(
            machine,
            self.recorded,
            inputs,
            clock=clock,
            mailbox=self.mails.mailbox,
            timers=self.timers,
            start=start,
        )
        heads = [self.recorded] * channels
        self.gate = Gate(inputs, heads, BatchSize(most, budget=1.0), clock, self.checkpointed_input)

    def send(self, channel: int, *what: str | Element) -> None:
        """Send into a channel; each string is a batch, with a record for each word."""
        for one in what:
            match one:
                case str():
                    self.channels[channel].put_batch(Batch(one.split()))
                case Barrier():
                    self.channels[channel].put_barrier(one)
                case _:
                    self.channels[channel].put(one)

    def step(self) -> list[Line]:
        """Run the mails that are there and then one step of the gate, as a task does. Return the outputs."""
        seen = len(self.recorded.lines)
        self.mails.run_mails()
        self.gate.step()
        return self.recorded.lines[seen:]

    def run(self) -> list[Line]:
        """Run until there is nothing to do. Return the outputs."""
        seen = len(self.recorded.lines)
        self.mails.run_mails()
        while self.gate.step():
            self.mails.run_mails()
        return self.recorded.lines[seen:]


def _flatten(elements: Sequence[Element]) -> list[object]:
    flat: list[object] = []
    for one in elements:
        flat += one.values if isinstance(one, Batch) else [one]
    return flat


def _nothing() -> None:
    """Do nothing."""
