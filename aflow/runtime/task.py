"""One subtask: a coroutine with a mailbox, an input, a chain of operators, and outputs.

All that touches the state of the operators runs in ``StreamTask.run``: input, timers, and what others post. The default
action takes one element of the input and pushes it through the whole chain, synchronously. It rests while there is no
input, while there is no room in an exchange or a sink behind the chain, and while its source is too far ahead of those
that it is aligned with.

Checkpoints come as mails where the task reads a source, and as barriers through the channels elsewhere. A task of a job
with checkpoints whose input has ended is *drained*: everything it had to say is said, and it stays to take part in
checkpoints until it is told to finish, which is when the last one has been committed.

Calls of asynchronous steps are made by slots beside the task, and what comes of them is emitted by mails. A step begins
no calls while there is no room behind it, and the input ends for those behind it when all of its calls have.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from aflow.connect import Committable
from aflow.errors import InternalError
from aflow.model.batch import Batch
from aflow.model.elements import Barrier
from aflow.operators.base import Operator, StateSize
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.sink import SinkOperator
from aflow.runtime.alignment import AlignedMember
from aflow.runtime.calls.slots import CallSlots, Room
from aflow.runtime.cancellation import end_if_asked, user_code
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.storable import StorableCheck
from aflow.runtime.checkpoints.taking import SubtaskCheckpointer
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.edges import OutEdge
from aflow.runtime.failures import closing, closing_async
from aflow.runtime.gate import Gate
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop, SuspendReason
from aflow.runtime.outputs import Link
from aflow.runtime.source_input import SourceInput
from aflow.runtime.task_id import TaskId
from aflow.runtime.timer_service import LoopTimer, TimerService


class TaskInput(Protocol):
    """What a task reads: a ``Gate`` behind other tasks, a ``SourceInput`` at the start."""

    @property
    def finished(self) -> bool:
        """True once the input has ended and all of it was taken."""
        ...

    @property
    def queued_records(self) -> int:
        """Records that are here and were not taken yet."""
        ...

    def start(self, on_input: Callable[[], None], group: asyncio.TaskGroup) -> None:
        """Have ``on_input`` called whenever there is something to take."""
        ...

    def stop(self, *, drain: bool) -> None:
        """End the input early; only sources can."""
        ...

    def has_queued(self, split: str) -> bool:
        """True if records of ``split`` are here and were not taken yet; any records, where there are no splits."""
        ...

    def step(self) -> bool:
        """Hand the next element to the operators; False if there is none."""
        ...


@dataclass(slots=True)
class Chain:
    """The operators of one subtask, and where their results leave it."""

    operators: Sequence[Operator]
    """Each behind the one that feeds it."""
    timers: Sequence[LoopTimer]
    """The processing-time timer of each operator."""
    edges: Sequence[OutEdge]
    sinks: Sequence[SinkOperator]
    member: AlignedMember | None = None
    """The place of a source in its group of aligned sources, if it is in one."""
    slots: Mapping[AsyncOperator, CallSlots] = field(
        default_factory=dict["AsyncOperator", "CallSlots"]
    )
    """Who makes the calls of its asynchronous steps."""
    rooms: Mapping[AsyncOperator, Sequence[Room]] = field(
        default_factory=dict["AsyncOperator", "Sequence[Room]"]
    )
    """What must not be full for the calls of an asynchronous step to begin: all that is behind it."""


class StreamTask:
    """Runs a chain of operators over an input until it ends."""

    def __init__(
        self,
        id: TaskId,
        name: str,
        *,
        loop: asyncio.AbstractEventLoop,
        loop_budget: LoopBudget,
        clock: RuntimeClock,
    ) -> None:
        """``name`` is made of the names of all steps of the task."""
        self.id = id
        self.name = name
        self._clock = clock
        self.loop = MailboxLoop(loop=loop, loop_budget=loop_budget, clock=clock)
        self.timers = TimerService(loop, clock, self.loop.mailbox)
        #: Set by ``attach``, since input and chain need to know whom to tell of input and of room.
        self.input: TaskInput
        self.chain: Chain
        self._rooms: tuple[Room, ...] = ()
        self._member: AlignedMember | None = None
        #: Takes the checkpoints of this task; None in a job without.
        self._taking: SubtaskCheckpointer | None = None
        #: Checks that what the operators hold can be stored; None in a job without checkpoints, and when it is done.
        self._unchecked: StorableCheck | None = None
        #: What was in flight in the middle of the chain when a checkpoint was taken, and where it goes on.
        self._first: list[tuple[Link, Batch[Any]]] = []
        #: Why nothing is processed yet: so many others have to process first what was in flight.
        self._holds = 0
        #: True until the task has processed anything.
        self._beginning = True
        #: What waits for that.
        self._postponed: list[Callable[[], None]] = []
        #: Asynchronous steps, each with what must not be full for its calls to begin.
        self._calling: Sequence[tuple[AsyncOperator, Sequence[Room]]] = ()
        #: Operators that have not been told of the end of the input yet, with their timers; None before the end.
        self._to_end: deque[tuple[Operator, LoopTimer]] | None = None
        self._ended = False
        #: Resolved when the task has nothing more to process.
        self.drained = asyncio.Event()
        #: True once the task may end when it is drained.
        self._may_end = True
        self.started_at = 0.0
        self.stopped_at: float | None = None

    def attach(
        self,
        task_input: TaskInput,
        chain: Chain,
        taking: SubtaskCheckpointer | None = None,
        check: StorableCheck | None = None,
    ) -> None:
        """Give the task what it reads and what it does; once, before ``run``."""
        self._unchecked = check
        self.input = task_input
        self.chain = chain
        self._taking = taking
        self._may_end = taking is None
        self._rooms = (*chain.edges, *chain.sinks, *chain.slots)
        self._calling = list(chain.rooms.items())
        for operator, rooms in self._calling:
            chain.slots[operator].rooms = rooms
        self._member = chain.member

    def stop(self, *, drain: bool) -> None:
        """End the input early, if it is a source. What it has read is processed, without waiting for other sources."""
        self.input.stop(drain=drain)
        for operator in self.chain.slots:
            operator.on_stop()
        self._leave_group()

    def begin_with(self, link: Link, batches: Iterable[Batch[Any]]) -> None:
        """Send ``batches`` through ``link`` before anything is taken from the input."""
        self._first += [(link, batch) for batch in batches]

    def announce_status(self) -> None:
        """Emit what the input can say about event time before any task runs; to be called once all tasks are built.

        If the chain holds restored records, this is postponed until the task begins, so that it cannot overtake them.
        """
        task_input = self.input
        if not isinstance(task_input, SourceInput | Gate) or not task_input.has_early_status:
            return
        if self._first or any(one.size() != StateSize() for one in self.chain.operators):
            self._postponed.append(task_input.announce_status)
        else:
            task_input.announce_status()

    def hold(self) -> None:
        """Process nothing before ``release`` is called as often as this: others are to go first."""
        self._holds += 1

    def release(self) -> None:
        """One of those that are to go first is done."""
        self._holds -= 1
        if not self._holds:
            self.loop.resume()

    @property
    def is_source(self) -> bool:
        """True if checkpoints begin here."""
        return isinstance(self.input, SourceInput)

    @property
    def taking(self) -> SubtaskCheckpointer:
        """What takes the checkpoints of this task; only in jobs that take some."""
        if self._taking is None:
            raise InternalError(f"task {self.id} was asked for a checkpoint, in a job without")
        return self._taking

    @property
    def chains(self) -> SubtaskChains:
        """What the steps of this task have stored."""
        return self.taking.chains

    def begin_checkpoint(self, barrier: Barrier, posted_at: float) -> None:
        """Take a checkpoint that was triggered at ``posted_at`` (s, steady), and send its barrier on: of a source."""
        self.once_begun(partial(self.taking.begin, barrier, posted_at))

    def once_begun(self, work: Callable[[], None]) -> None:
        """Do ``work`` now, or as soon as what was in flight in the middle of the chain is processed.

        No checkpoint is taken before: those records are in no channel, and in no operator's state yet.
        """
        if self._beginning:
            self._postponed.append(work)
        else:
            work()

    def checkpoint_completed(self, checkpoint: int) -> None:
        """A checkpoint can be restored: sinks commit."""
        self.taking.completed(checkpoint)
        self.loop.resume()

    def checkpoint_aborted(self, checkpoint: int) -> None:
        """A checkpoint does not come about."""
        self.taking.aborted(checkpoint)

    def finish(self) -> None:
        """End when drained, and when the sinks have done what they were asked for."""
        self._may_end = True
        self.loop.resume()

    async def run(self) -> None:
        """Process the whole input, flush the sinks, tell the readers of the end, and close the operators."""
        self.started_at = self._clock.steady()
        try:
            with closing(operator.close for operator in self.chain.operators):
                await self._process_all()
        finally:
            self.stopped_at = self._clock.steady()

    async def _process_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            writing = [group.create_task(_write(sink, self.loop)) for sink in self.chain.sinks]
            self.input.start(self.loop.resume, group)
            async with closing_async([self._end_calls]):
                await self.loop.run(self._step, self._on_backpressure)
            for task in writing:
                task.cancel()
        await self._finish()

    async def _end_calls(self) -> None:
        """All steps at once, so that they share a grace time."""
        for slots in self.chain.slots.values():
            slots.cancel()
        for slots in self.chain.slots.values():
            await slots.close()

    def _step(self) -> None:
        """The default action: one element of the input, if there is room for what comes of it."""
        if self._beginning and not self._begin():
            return
        if self._calling:
            self._let_calls_begin()
        for room in self._rooms:
            if room.full:
                if isinstance(room, AsyncOperator):
                    room.input_waits = True
                    self.loop.suspend(SuspendReason.CALLING)
                else:
                    self.loop.suspend(SuspendReason.BACKPRESSURED)
                return
        if self._member is not None and self._member.ahead:
            self.loop.suspend(SuspendReason.ALIGNING)
            return
        if self.input.step():
            if self._unchecked is not None and self._unchecked.after_step():
                self._unchecked = None
            return
        if not self.input.finished:
            self.loop.suspend(SuspendReason.IDLE)
        elif not self._ended:
            if not self._end():
                self.loop.suspend(SuspendReason.CALLING)
        elif any(sink.busy for sink in self.chain.sinks):
            self.loop.suspend(SuspendReason.BACKPRESSURED)
        else:
            self.drained.set()
            if self._may_end:
                self.loop.complete()
            else:
                self.loop.suspend(SuspendReason.IDLE)

    def _begin(self) -> bool:
        """Process what was in flight in the middle of the chain; False if others are to go first."""
        if self._holds:
            self.loop.suspend(SuspendReason.IDLE)
            return False
        self._beginning = False
        # Before anything is emitted: from now on the steps with calls can ask for their results to be emitted.
        for slots in self.chain.slots.values():
            slots.start()
        for link, batch in self._first:
            link.emit(batch)
        self._first.clear()
        for operator in self.chain.operators:
            operator.on_start()
        postponed, self._postponed = self._postponed, []
        for work in postponed:
            work()
        return True

    def _let_calls_begin(self) -> None:
        """Where there is room behind a step, and only there."""
        for operator, rooms in self._calling:
            if any(room.full for room in rooms):
                operator.held = True
            elif operator.held:
                operator.resume()

    def _leave_group(self) -> None:
        if self._member is not None:
            self._member.leave()

    def _end(self) -> bool:
        """Tell the operators of the end, one after the other; False if one has to be waited for."""
        if self._to_end is None:
            self._leave_group()
            self._to_end = deque(zip(self.chain.operators, self.chain.timers, strict=True))
        while self._to_end:
            operator, timer = self._to_end[0]
            if isinstance(operator, AsyncOperator) and operator.busy:
                operator.on_input_end()
                return False
            operator.end_input()
            timer.cancel()  # nothing follows the end of the input, so no timer fires after it
            self._to_end.popleft()
        for edge in self.chain.edges:
            edge.end()
        self._ended = True
        return True

    async def _finish(self) -> None:
        self.loop.mailbox.order.quiesce()
        for sink in self.chain.sinks:
            await _flush(sink)
        self.loop.mailbox.order.close()

    def _on_backpressure(self, blocked: bool) -> None:
        now = self._clock.now()
        for operator in self.chain.operators:
            operator.on_backpressure(blocked, now)


async def _flush(sink: SinkOperator) -> None:
    with user_code(sink.failed):
        await sink.writer.flush()


async def _write(sink: SinkOperator, loop: MailboxLoop) -> None:
    """Await what the sink's writer is busy with, batch after batch, until cancelled; each end comes back as a mail."""
    woken = asyncio.Event()
    sink.on_writing = woken.set
    if sink.writing is not None:
        woken.set()

    def written(result: Committable | None) -> None:
        sink.written(result)
        loop.resume()

    while True:
        await woken.wait()
        woken.clear()
        if sink.writing is not None:
            with user_code(sink.failed):
                result = await sink.writing
            end_if_asked()
            loop.mailbox.post(partial(written, result))
