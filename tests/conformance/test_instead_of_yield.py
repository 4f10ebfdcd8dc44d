"""The counterpart of yields to the mailbox of Flink's operators: see DEVIATIONS.md."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

from aflow.machines.mail_order import Lane
from aflow.runtime.clock import SystemClock
from aflow.runtime.loop_budget import DEFAULT_BUDGET, LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop, SuspendReason
from aflow.testing.virtual_time import run, settle


def mailbox_loop() -> MailboxLoop:
    """A mailbox loop on the running event loop."""
    loop, clock = asyncio.get_running_loop(), SystemClock()
    return MailboxLoop(loop=loop, loop_budget=LoopBudget(loop, clock, DEFAULT_BUDGET), clock=clock)


def test_no_mail_of_any_lane_runs_inside_the_default_action() -> None:
    story: list[str] = []

    def action(loop: MailboxLoop) -> None:
        story.append("action begins")
        for lane in Lane:
            loop.mailbox.post(lambda lane=lane: story.append(lane.name), lane)  # type: ignore[misc]
        loop.mailbox.post(loop.complete)
        story.append("action ends")

    async def scenario() -> None:
        loop = mailbox_loop()
        await loop.run(partial(action, loop))

    run(scenario())

    assert story == ["action begins", "action ends", "CONTROL", "TIMERS", "NORMAL"]


def test_an_action_without_capacity_is_suspended_until_a_mail_brings_capacity() -> None:
    story: list[str] = []
    capacity = 1

    def action(loop: MailboxLoop) -> None:
        nonlocal capacity
        if capacity == 0:
            story.append("no capacity")
            loop.suspend(SuspendReason.BACKPRESSURED)
            return
        capacity -= 1
        story.append("record")
        if story.count("record") == 3:
            loop.complete()

    def completion(loop: MailboxLoop) -> None:
        nonlocal capacity
        story.append("completion")
        capacity += 1
        loop.resume()

    async def scenario() -> None:
        loop = mailbox_loop()
        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run(partial(action, loop)))
            for _ in range(2):
                await settle()
                loop.mailbox.post(lambda: completion(loop))

    run(scenario())

    assert story == [
        "record",
        *("no capacity", "completion", "record"),
        *("no capacity", "completion", "record"),
    ]


def test_a_mail_of_another_thread_wakes_a_resting_task_and_runs_in_the_thread_of_the_task() -> None:
    ran_in: list[int] = []

    async def scenario() -> None:
        loop = mailbox_loop()

        def mail() -> None:
            ran_in.append(threading.get_ident())
            loop.complete()

        async with asyncio.TaskGroup() as group:
            group.create_task(loop.run(lambda: loop.suspend(SuspendReason.IDLE)))
            await settle()
            await asyncio.to_thread(loop.mailbox.post, mail)

    run(scenario())

    assert ran_in == [threading.get_ident()]
