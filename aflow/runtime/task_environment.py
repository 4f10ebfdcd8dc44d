"""The parts of a subtask that exist before its operators, and that channels, timers and operators refer to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aflow.graph.plan import TaskPlan
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop
from aflow.runtime.task_id import TaskId
from aflow.runtime.task_start import TaskStart
from aflow.runtime.timer_service import TimerService


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
