"""One subtask: a coroutine with a mailbox, an input, a chain of operators, and outputs.

All access to the state of the operators is in ``StreamTask.run``: input, timers, and mails. The default action takes
one element of the input and pushes it through the whole chain, synchronously. It is suspended while there is no input,
while a downstream exchange or sink is full, and while the source is ahead of its alignment group.

A checkpoint is triggered by a mail in tasks that read a source, and by barriers in the channels of the others. In a job
with checkpoints, a task whose input has ended is *drained*: it has emitted everything, and takes part in checkpoints
until ``finish`` is called, after the last one was committed.

An operator may leave work unfinished, to yield to the event loop (``runtime/pieces.py``). The default action resumes
it, and takes new input when all work is finished.

Slots make the calls of asynchronous steps, and mails emit the results. A step starts no call while a downstream part is
full, and its downstream steps see the end of the input when all of its calls have ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from aflow.connect import Committable
from aflow.errors import InternalError
from aflow.model.batch import Batch
from aflow.model.elements import Barrier
from aflow.operators.base import Operator, StateSize
from aflow.operators.calls.operator import AsyncOperator
from aflow.operators.sink import SinkOperator
from aflow.runtime.cancellation import JobTaskGroup, end_if_asked, user_code
from aflow.runtime.checkpoints.chains import SubtaskChains
from aflow.runtime.checkpoints.subtask_checkpointer import SubtaskCheckpointer
from aflow.runtime.failures import closing, closing_async
from aflow.runtime.gate import Gate
from aflow.runtime.mailbox_loop import MailboxLoop, SuspendReason
from aflow.runtime.operator_chain import OperatorChain
from aflow.runtime.outputs import OutputLink
from aflow.runtime.pieces import Room
from aflow.runtime.source_input import SourceInput
from aflow.runtime.task_environment import TaskEnvironment
from aflow.runtime.timer_service import LoopTimer


class TaskInput(Protocol):
    """The input of a task: a ``Gate`` for the channels of other tasks, or a ``SourceInput``."""

    @property
    def finished(self) -> bool:
        """True once the input has ended and all elements were taken."""
        ...

    @property
    def queued_records(self) -> int:
        """Records that have arrived and were not taken yet."""
        ...

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start coroutines of the input in ``group``, if it has any."""
        ...

    def stop(self, *, drain: bool) -> None:
        """End the input early; only sources can."""
        ...

    def step(self) -> bool:
        """Emit the next element to the operators. Return False if there is none."""
        ...


class ElementCheck(Protocol):
    """A check that runs after elements until nothing is left to check."""

    def after_step(self) -> bool:
        """Run after one element. Return True if it need not run again."""
        ...


class StreamTask:
    """Runs a chain of operators over an input until it ends."""

    def __init__(
        self,
        environment: TaskEnvironment,
        task_input: TaskInput,
        chain: OperatorChain,
        checkpointer: SubtaskCheckpointer | None = None,
        *,
        check: ElementCheck | None = None,
        replay: Sequence[tuple[OutputLink, Batch[Any]]] = (),
        on_finished: Callable[[], None] | None = None,
    ) -> None:
        """``checkpointer`` is None in a job without checkpoints.

        ``replay`` are records that were in flight inside the chain when a checkpoint was taken, with their links.
        ``on_finished`` is called when all is processed and flushed, before the operators are closed.
        """
        self.id = environment.id
        self.name = environment.name
        self.loop = environment.loop
        self.timers = environment.timers
        self.input = task_input
        self.chain = chain
        self._member = chain.member
        self._pieces = chain.pieces
        #: Operators with unfinished work; nearly always none.
        self._unfinished = chain.pieces.unfinished
        self._start = environment.start
        #: True from the first element on; read for each batch.
        self._initialized = False
        self._clock = environment.clock
        self._checkpointer = checkpointer
        #: None when there is nothing left to check.
        self._check = check
        self._replay = replay
        self._on_finished = on_finished
        self._capacity: tuple[Room, ...] = (*chain.edges, *chain.sinks, *chain.slots)
        #: Asynchronous steps, each with the downstream parts that must not be full for its calls to start.
        self._calling = [(operator, slots.rooms) for operator, slots in chain.slots.items()]
        #: Operators that were not told of the end of the input yet, with their timers; None before the end.
        self._unended: deque[tuple[Operator, LoopTimer]] | None = None
        self._ended = False
        #: Set when the task has nothing more to process.
        self.drained = asyncio.Event()
        #: True once the task may end when it is drained.
        self._may_end = checkpointer is None
        #: True once ``run`` has begun, which closes the operators.
        self._begun = False
        self.started_at = 0.0
        self.stopped_at: float | None = None

    def stop(self, *, drain: bool) -> None:
        """End the input early if it is a source. Records that were read are processed, without waiting for other
        sources."""
        self.input.stop(drain=drain)
        for operator in self.chain.slots:
            operator.on_stop()
        self._leave_alignment()

    def announce_status(self) -> None:
        """Emit the status of the input before any task runs; to be called once all tasks are built.

        If the chain holds restored records, this is postponed until the task is initialized, so that it cannot overtake
        them.
        """
        task_input = self.input
        if not isinstance(task_input, SourceInput | Gate) or not task_input.has_early_status:
            return
        if self._replay or any(one.size() != StateSize() for one in self.chain.operators):
            self._start.when_initialized(task_input.announce_status)
        else:
            task_input.announce_status()

    @property
    def is_source(self) -> bool:
        """True if checkpoints are triggered here."""
        return isinstance(self.input, SourceInput)

    @property
    def checkpointer(self) -> SubtaskCheckpointer:
        """The checkpointer of this task. Raises ``InternalError`` in a job without checkpoints."""
        if self._checkpointer is None:
            raise InternalError(f"task {self.id} was asked for a checkpoint, in a job without")
        return self._checkpointer

    @property
    def chains(self) -> SubtaskChains:
        """The stored parts of the steps of this task."""
        return self.checkpointer.chains

    def begin_checkpoint(self, barrier: Barrier, posted_at: float) -> None:
        """Take a checkpoint that was triggered at ``posted_at`` (s, steady), and emit its barrier; only of a source."""
        self._start.when_initialized(partial(self.checkpointer.begin, barrier, posted_at))

    def checkpoint_completed(self, checkpoint: int) -> None:
        """Let sinks commit: the checkpoint can be restored."""
        self.checkpointer.completed(checkpoint)
        self.loop.resume()

    def checkpoint_aborted(self, checkpoint: int) -> None:
        """Release what the task keeps for an aborted checkpoint."""
        self.checkpointer.aborted(checkpoint)

    def finish(self) -> None:
        """End when drained, and when the sinks have completed their commits."""
        self._may_end = True
        self.loop.resume()

    async def run(self) -> None:
        """Process the whole input, flush the sinks, emit the end of the input, and close the operators."""
        self._begun = True
        self.started_at = self._clock.steady()
        try:
            with closing(self._closers()):
                await self._process_all()
        finally:
            self.stopped_at = self._clock.steady()

    def abandon(self) -> None:
        """Close the operators if ``run`` has not begun, since its coroutine was cancelled before."""
        if not self._begun:
            with closing(self._closers()):
                self._begun = True

    def _closers(self) -> list[Callable[[], None]]:
        return [self._pieces.close, *(operator.close for operator in self.chain.operators)]

    async def _process_all(self) -> None:
        async with JobTaskGroup() as group:
            writing = [
                group.create_task(_write(sink, woken, self.loop))
                for sink, woken in self.chain.sinks.items()
            ]
            self.input.start(group)
            async with closing_async([self._end_calls]):
                await self.loop.run(self._step, self._on_backpressure)
            group.end()
            for task in writing:
                task.cancel()
        await self._finish()

    async def _end_calls(self) -> None:
        """Cancel and close all slots at the same time, so that they share a grace period."""
        for slots in self.chain.slots.values():
            slots.cancel()
        for slots in self.chain.slots.values():
            await slots.close()

    def _step(self) -> None:
        """Resume unfinished work, or take one element of the input, if the results have room: the default action."""
        if not self._initialized and not self._initialize():
            return
        if self._calling:
            self._start_calls()
        if self._unfinished:
            if (full := self._pieces.waits_for()) is None:
                self._pieces.step()
            else:
                self._wait_for(full)
            return
        for room in self._capacity:
            if room.full:
                self._wait_for(room)
                return
        if self._member is not None and self._member.ahead:
            self.loop.suspend(SuspendReason.ALIGNING)
            return
        if self.input.step():
            if self._check is not None and not self._unfinished and self._check.after_step():
                self._check = None
            return
        if self._unfinished:
            return  # at the end of the input, event time ends
        if not self.input.finished:
            self.loop.suspend(SuspendReason.IDLE)
        elif not self._ended:
            self._end()
        elif any(sink.busy for sink in self.chain.sinks):
            self.loop.suspend(SuspendReason.BACKPRESSURED)
        else:
            self.drained.set()
            if self._may_end:
                self.loop.complete()
            else:
                self.loop.suspend(SuspendReason.IDLE)

    def _wait_for(self, room: Room) -> None:
        """Suspend the default action until ``room`` is not full any more."""
        if isinstance(room, AsyncOperator):
            room.input_waits = True
            self.loop.suspend(SuspendReason.CALLING)
        else:
            self.loop.suspend(SuspendReason.BACKPRESSURED)

    def _initialize(self) -> bool:
        """Process the records in flight inside the chain. Return False if other tasks have to process theirs first."""
        if self._start.blocked:
            self.loop.suspend(SuspendReason.IDLE)
            return False
        # Before anything is emitted: from here on, steps with calls can request that their results are emitted.
        for slots in self.chain.slots.values():
            slots.start()
        for link, batch in self._replay:
            link.emit(batch)
        self._replay = ()
        for operator in self.chain.operators:
            operator.on_start()
        self._initialized = True
        self._start.complete()
        return True

    def _start_calls(self) -> None:
        """Block the calls of steps with a full downstream part, and resume those of the others."""
        for operator, rooms in self._calling:
            if any(room.full for room in rooms):
                operator.held = True
            elif operator.held:
                operator.resume()

    def _leave_alignment(self) -> None:
        if self._member is not None:
            self._member.leave()

    def _end(self) -> None:
        """End the input of one operator after the other, as long as none has calls under way or unfinished work."""
        if self._unended is None:
            self._leave_alignment()
            self._unended = deque(zip(self.chain.operators, self.chain.timers, strict=True))
        while self._unended:
            operator, timer = self._unended[0]
            if isinstance(operator, AsyncOperator) and operator.busy:
                operator.on_input_end()
                self.loop.suspend(SuspendReason.CALLING)
                return
            operator.end_input()
            timer.cancel()  # nothing follows the end of the input, so no timer fires after it
            self._unended.popleft()
            if self._unfinished:
                return
        for edge in self.chain.edges:
            edge.end()
        self._ended = True

    async def _finish(self) -> None:
        self.loop.mailbox.order.quiesce()
        for sink in self.chain.sinks:
            await _flush(sink)
        if self._on_finished is not None:
            self._on_finished()
        self.loop.mailbox.order.close()

    def _on_backpressure(self, blocked: bool) -> None:
        now = self._clock.now()
        for operator in self.chain.operators:
            operator.on_backpressure(blocked, now)


async def _flush(sink: SinkOperator) -> None:
    with user_code(sink.failed):
        await sink.writer.flush()


async def _write(sink: SinkOperator, woken: asyncio.Event, loop: MailboxLoop) -> None:
    """Await the work of the sink's writer, batch after batch, until cancelled; post a mail when each ends."""

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
