"""The parts of a subtask that exist before its operators, and that channels, timers and operators refer to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aflow.graph.plan import TaskPlan
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop
from aflow.runtime.timer_service import TimerService


@dataclass(frozen=True, slots=True)
class TaskId:
    """A subtask as checkpoints identify it; its text is ``sums[2]``."""

    step: str
    """The step that reads the input of the task."""
    subtask: int

    def __str__(self) -> str:
        return f"{self.step}[{self.subtask}]"


class TaskStart:
    """Conditions of the first element of a task, and work that is postponed until they hold.

    After a restore, other tasks may have to process their records in flight before this one emits anything.
    """

    def __init__(self, resume: Callable[[], None]) -> None:
        """``resume`` is called when the last condition is met."""
        self._resume = resume
        self._blockers = 0
        #: True once the task has processed the records that were in flight inside its chain.
        self.initialized = False
        self._postponed: list[Callable[[], None]] = []

    @property
    def blocked(self) -> bool:
        """True while the task must not process anything."""
        return self._blockers > 0

    def block(self) -> None:
        """Process nothing until ``unblock`` was called as often as this."""
        self._blockers += 1

    def unblock(self) -> None:
        """Meet one condition."""
        self._blockers -= 1
        if not self._blockers:
            self._resume()

    def when_initialized(self, work: Callable[[], None]) -> None:
        """Do ``work`` now, or as soon as the records in flight inside the chain are processed.

        Checkpoints wait for that: until then those records are in no channel and in the state of no operator.
        """
        if self.initialized:
            work()
        else:
            self._postponed.append(work)

    def complete(self) -> None:
        """Do the postponed work."""
        self.initialized = True
        postponed, self._postponed = self._postponed, []
        for work in postponed:
            work()


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """Identity, mailbox, timers and start of one subtask."""

    id: TaskId
    name: str
    """The names of all steps of the task, as one."""
    clock: RuntimeClock
    loop: MailboxLoop
    timers: TimerService
    start: TaskStart

    @classmethod
    def create(
        cls, plan: TaskPlan, subtask: int, clock: RuntimeClock, loop_budget: LoopBudget
    ) -> TaskEnvironment:
        """Create the environment of ``subtask`` on the running event loop."""
        loop = asyncio.get_running_loop()
        mails = MailboxLoop(loop=loop, loop_budget=loop_budget, clock=clock)
        return cls(
            id=TaskId(plan.head.name, subtask),
            name=plan.name,
            clock=clock,
            loop=mails,
            timers=TimerService(loop, clock, mails.mailbox),
            start=TaskStart(mails.resume),
        )
