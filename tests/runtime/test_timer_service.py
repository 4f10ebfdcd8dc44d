"""Timers of a task when clocks disagree."""

from __future__ import annotations

import asyncio

import pytest

from aflow.machines.mail_order import Lane
from aflow.model.time import Timestamp
from aflow.runtime.mailbox import Mailbox
from aflow.runtime.timer_service import TimerService


class Clock:
    """Shows the time that a test sets."""

    def __init__(self) -> None:
        self.at = 1_000

    def now(self) -> Timestamp:
        return self.at


@pytest.mark.asyncio
async def test_a_timer_fires_later_if_the_clock_is_set_back_before_its_mail_runs() -> None:
    loop, clock, fired = asyncio.get_running_loop(), Clock(), list[Timestamp]()
    mailbox = Mailbox(loop, lambda: None)
    timer = TimerService(loop, clock, mailbox).timer(fired.append, Lane.TIMERS)
    timer.set(1_000)
    await asyncio.sleep(0.001)  # the mail is posted

    clock.at = 999
    _deliver(mailbox)
    clock.at = 1_000
    await asyncio.sleep(0.003)
    _deliver(mailbox)

    assert fired == [1_000]


@pytest.mark.asyncio
async def test_a_timer_that_is_cancelled_before_its_mail_runs_does_not_fire() -> None:
    loop, fired = asyncio.get_running_loop(), list[Timestamp]()
    mailbox = Mailbox(loop, lambda: None)
    service = TimerService(loop, Clock(), mailbox)
    service.timer(fired.append, Lane.TIMERS).set(1_000)
    await asyncio.sleep(0.001)  # the mail is posted

    service.close()
    _deliver(mailbox)

    assert fired == []


def _deliver(mailbox: Mailbox) -> None:
    mailbox.order.create_batch()
    while (mail := mailbox.order.try_take_from_batch()) is not None:
        mail()
