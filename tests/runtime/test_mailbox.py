"""The mailbox of a task and the loop around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread

import pytest
import uvloop

from aflow.errors import MailboxClosed
from aflow.machines.mail_order import Lane
from aflow.runtime.clock import SystemClock
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop, SuspendReason
from aflow.testing.virtual_time import virtual_time


def make_loop() -> MailboxLoop:
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    return MailboxLoop(loop=loop, loop_budget=LoopBudget(loop, clock, 0.002), clock=clock)


@virtual_time
async def test_control_mails_run_before_timers_and_timers_before_the_rest() -> None:
    ran: list[str] = []
    loop = make_loop()

    loop.mailbox.post(lambda: ran.append("normal"))
    loop.mailbox.post(lambda: ran.append("timer"), Lane.TIMERS)
    loop.mailbox.post(lambda: ran.append("control"), Lane.CONTROL)
    await loop.run(lambda: loop.complete())

    assert ran == ["control", "timer", "normal"]


@virtual_time
async def test_control_mails_are_looked_at_between_any_two_actions() -> None:
    story: list[str] = []

    def act() -> None:
        story.append("action")
        loop.mailbox.post(lambda: story.append("control"), Lane.CONTROL)
        if len(story) > 4:
            loop.complete()

    loop = make_loop()
    await loop.run(act)

    assert story == ["action", "control", "action", "control", "action"]


@virtual_time
async def test_a_mail_that_posts_itself_again_runs_once_a_round() -> None:
    story: list[str] = []

    def again() -> None:
        story.append("mail")
        loop.mailbox.post(again, Lane.TIMERS)

    def act() -> None:
        story.append("action")
        if story.count("action") == 3:
            loop.complete()

    loop = make_loop()
    loop.mailbox.post(again, Lane.TIMERS)
    await loop.run(act)

    assert story == ["mail", "action"] * 3


@virtual_time
async def test_mails_run_while_the_action_is_suspended() -> None:
    story: list[str] = []

    def act() -> None:
        story.append("action")
        if story.count("action") == 2:
            loop.complete()
        else:
            loop.suspend(SuspendReason.IDLE)

    def resume() -> None:
        story.append("mail")
        loop.resume()

    loop = make_loop()
    async with asyncio.TaskGroup() as group:
        group.create_task(loop.run(act))
        await asyncio.sleep(1)
        loop.mailbox.post(lambda: story.append("nothing new"))
        await asyncio.sleep(1)
        loop.mailbox.post(resume)

    assert story == ["action", "nothing new", "mail", "action"]


@virtual_time
async def test_a_mail_from_another_thread_runs_in_the_tasks_own() -> None:
    ran: list[bool] = []
    loop = make_loop()
    here = asyncio.get_running_loop()

    def mail() -> None:
        ran.append(asyncio.get_running_loop() is here)
        loop.complete()

    thread = Thread(target=lambda: loop.mailbox.post(mail))
    thread.start()
    thread.join()
    await loop.run(lambda: loop.suspend(SuspendReason.IDLE))

    assert ran == [True]


@virtual_time
async def test_posting_to_a_mailbox_that_is_closed_is_refused_from_any_thread() -> None:
    loop = make_loop()
    loop.mailbox.order.close()
    refused: list[BaseException] = []

    def post() -> None:
        try:
            loop.mailbox.post(lambda: None)
        except MailboxClosed as exc:
            refused.append(exc)

    thread = Thread(target=post)
    thread.start()
    thread.join()

    assert len(refused) == 1
    with pytest.raises(MailboxClosed):
        loop.mailbox.post(lambda: None)


@virtual_time
async def test_an_exception_of_a_mail_is_raised_by_the_loop() -> None:
    class Mine(Exception):
        pass

    def fail() -> None:
        raise Mine

    loop = make_loop()
    loop.mailbox.post(fail)

    with pytest.raises(Mine):
        await loop.run(lambda: None)


@virtual_time
async def test_other_coroutines_run_while_the_action_is_never_suspended() -> None:
    ticks = 0

    def act() -> None:
        if ticks == 5:
            loop.complete()

    loop = make_loop()

    async def tick() -> None:
        nonlocal ticks
        while ticks < 5:
            await asyncio.sleep(0)
            ticks += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(loop.run(act))
        group.create_task(tick())

    assert ticks == 5


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_timers_are_not_delayed_by_the_work_before_a_suspension(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def measure() -> float:
        event_loop, clock = asyncio.get_running_loop(), SystemClock()
        loop_budget = LoopBudget(
            event_loop, clock, budget=60
        )  # the task rests in the pass that it worked in
        await loop_budget.hand_over()
        rung: list[float] = []

        def ring() -> None:
            rung.append(clock.steady())
            loop.complete()

        def act() -> None:
            event_loop.call_later(0.3, ring)
            while clock.steady() < began + 0.2:
                pass
            loop.suspend(SuspendReason.IDLE)

        loop = MailboxLoop(loop=event_loop, loop_budget=loop_budget, clock=clock)
        began = clock.steady()
        await loop.run(act)
        return rung[0] - began

    with asyncio.Runner(loop_factory=new_loop) as runner:
        # Other programs delay some timers, and the work before the suspension would delay all.
        late = (runner.run(measure()) - 0.3 for _ in range(20))

        assert any(one < 0.1 for one in late)
