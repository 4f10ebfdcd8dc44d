"""The alarm of an operator, when clocks do not agree."""

from __future__ import annotations

import asyncio

import pytest

from aflow.model.time import Timestamp
from aflow.operators.pass_through import PassThroughOperator
from aflow.runtime.alarms import LoopAlarm
from aflow.runtime.mailbox import Mailbox


class Clock:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.at = 1_000

    def now(self) -> Timestamp:
        return self.at


class Rung(PassThroughOperator):
    def __init__(self) -> None:
        self.moments: list[Timestamp] = []

    def on_processing_time(self, now: Timestamp) -> None:
        self.moments.append(now)


@pytest.mark.asyncio
async def test_a_clock_that_is_set_back_while_the_alarm_is_on_its_way_does_not_silence_it() -> None:
    loop, clock, operator = asyncio.get_running_loop(), Clock(), Rung()
    mailbox = Mailbox(loop, lambda: None)
    alarm = LoopAlarm(loop, clock, mailbox)
    alarm.attach(operator)
    alarm.set(1_000)
    await asyncio.sleep(0.001)  # it has rung, and the mail is there

    clock.at = 999
    _deliver(mailbox)
    clock.at = 1_000
    await asyncio.sleep(0.003)
    _deliver(mailbox)

    assert operator.moments == [1_000]


def _deliver(mailbox: Mailbox) -> None:
    mailbox.order.create_batch()
    while (mail := mailbox.order.try_take_from_batch()) is not None:
        mail()
