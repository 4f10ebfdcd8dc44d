"""A job yields sooner while other code runs on its event loop, and does not take its own tasks for such code."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import pytest

from aflow.runtime.loop_budget import DEFAULT_BUDGET, LoopBudget

#: Seconds that the loop needs for a switch here, and number of tasks: together they are longer than a pass may be.
SWITCH = 0.000008
TASKS = 100


@dataclass
class Clock:
    now: float = 0.0

    def steady(self) -> float:
        return self.now


async def one_pass(clock: Clock, budget: LoopBudget) -> None:
    """Let each of the tasks work once, and yield."""

    async def work() -> None:
        clock.now += SWITCH
        begun = clock.now
        clock.now += 0.00002
        budget.worked(begun)
        await budget.hand_over()

    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(work())


@pytest.mark.asyncio
@pytest.mark.parametrize(("other", "is_short"), [(0.0, False), (0.0009, True)])
async def test_the_tasks_of_a_job_are_no_host(other: float, is_short: bool) -> None:
    loop, clock = asyncio.get_running_loop(), Clock()
    budget = LoopBudget(loop, cast("Any", clock), DEFAULT_BUDGET)

    def other_code() -> None:
        clock.now += other

    passing = loop.create_task(one_pass(clock, budget))
    await asyncio.sleep(0)
    loop.call_soon(other_code)
    await passing

    assert (budget.turn.seconds < DEFAULT_BUDGET) is is_short
