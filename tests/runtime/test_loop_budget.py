"""Turns of a job beside its host: what is measured between two turns, while async calls run there, too."""

from __future__ import annotations

import asyncio

from aflow.runtime.loop_budget import LoopBudget
from aflow.testing.virtual_time import virtual_time
from tests.runtime.work_clock import WorkClock

LONG = 0.002
REQUEST = 0.0005
CALL = 0.00001


class SharedPass:
    """A pass of the event loop between two turns of a job."""

    def __init__(self) -> None:
        self.clock = WorkClock()
        self.budget = LoopBudget(asyncio.get_running_loop(), self.clock, LONG)

    def start_calls(self, number: int) -> None:
        for _ in range(number):
            self.budget.on_call_started()
            self.clock.work(CALL)

    def complete_calls(self, number: int) -> None:
        for index in range(number):
            if not index:
                self.budget.on_call_completed()
            self.clock.work(CALL)

    async def end(self) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@virtual_time
async def test_a_request_before_the_first_completed_call_shortens_the_turns() -> None:
    one = SharedPass()

    one.budget.watch()
    one.clock.work(REQUEST)
    one.complete_calls(5)
    await one.end()

    assert one.budget.turn.is_short
    assert one.budget.turn.seconds < LONG


@virtual_time
async def test_a_request_in_a_pass_without_calls_shortens_the_turns() -> None:
    one = SharedPass()

    one.budget.watch()
    one.clock.work(REQUEST)
    await one.end()

    assert one.budget.turn.is_short


@virtual_time
async def test_calls_that_complete_are_no_host() -> None:
    one = SharedPass()

    one.budget.watch()
    one.complete_calls(100)
    await one.end()

    assert not one.budget.turn.is_short
    assert one.budget.turn.seconds == LONG


@virtual_time
async def test_slots_that_are_woken_are_no_host() -> None:
    one = SharedPass()

    one.budget.watch()
    one.start_calls(100)
    one.complete_calls(5)
    await one.end()

    assert not one.budget.turn.is_short


@virtual_time
async def test_a_request_between_the_slots_that_are_woken_shortens_the_turns() -> None:
    one = SharedPass()

    one.budget.watch()
    one.start_calls(20)
    one.clock.work(REQUEST)
    one.start_calls(20)
    await one.end()

    assert one.budget.turn.is_short


@virtual_time
async def test_a_call_that_completed_in_an_earlier_pass_does_not_end_the_measurement() -> None:
    one = SharedPass()
    one.budget.on_call_completed()

    one.budget.watch()
    one.clock.work(REQUEST)
    await one.end()

    assert one.budget.turn.is_short
