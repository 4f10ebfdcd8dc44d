"""The task beside the slots: when results of calls wake it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from aflow.machines.batch_size import BatchSize
from aflow.machines.calls.settings import CallSettings
from aflow.model.batch import Batch
from aflow.operators.base import OperatorContext
from aflow.operators.calls.operator import AsyncOperator
from aflow.runtime.calls.slots import CallSlots
from aflow.runtime.clock import SystemClock
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop, SuspendReason
from aflow.runtime.pieces import ChainPieces, OperatorPieces
from aflow.testing.virtual_time import settle, virtual_time
from tests.operators.driver import ManualTime, RecordingOutput


@dataclass
class Behind:
    """A part downstream of the step."""

    full: bool = False


class Beside:
    """A step with one call under way at a time, its slots, and a task that notes when it looks whether it can go on."""

    def __init__(self) -> None:
        self.looked = 0
        self.output = RecordingOutput()
        self.behind = Behind()
        self._answers: dict[int, asyncio.Future[int]] = {}
        clock, time = SystemClock(), ManualTime()
        loop_budget = LoopBudget(asyncio.get_running_loop(), clock, 1.0)
        self.loop = MailboxLoop(
            loop=asyncio.get_running_loop(), loop_budget=loop_budget, clock=clock
        )
        self.step = AsyncOperator(CallSettings(call=self._call, capacity=1))
        self.step.open(OperatorContext(name="step", output=self.output, clock=time, alarm=time))
        chain = ChainPieces(loop_budget, clock, self.loop.resume)
        self.slots = CallSlots(
            self.step,
            self.loop,
            loop_budget,
            rooms=[self.behind],
            pieces=OperatorPieces(chain, 0, "step", BatchSize(1024, 1.0)),
            report=_nothing_to_report,
        )
        self.slots.start()
        self._running = asyncio.create_task(self.loop.run(self._look))

    async def push(self, *values: int) -> None:
        self.step.process(Batch(list(values)))
        await settle()

    async def answer(self, value: int) -> None:
        self._answers[value].set_result(value)
        await settle()

    def the_slot(self) -> asyncio.Task[Any]:
        """The only one there is."""
        (slot,) = (one for one in asyncio.all_tasks() if one.get_name() == "call of step")
        return slot

    async def end(self) -> None:
        self.slots.cancel()
        await self.slots.close()
        self.loop.complete()
        await self._running

    async def _call(self, value: int) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers[value] = answer
        return await answer

    def _look(self) -> None:
        self.looked += 1
        self.loop.suspend(SuspendReason.CALLING)


def _nothing_to_report(step: str, what: str, seconds: float) -> None:
    raise AssertionError(f"{step}: {what}")


def sent(output: RecordingOutput) -> list[Any]:
    return [value for batch in output.emitted if isinstance(batch, Batch) for value in batch.values]


@virtual_time
async def test_results_leave_while_the_step_is_full_and_the_task_rests_on() -> None:
    beside = Beside()
    await beside.push(1, 2, 3, 4)
    looked = beside.looked

    await beside.answer(1)
    await beside.answer(2)

    assert sent(beside.output) == [1, 2]
    assert (beside.step.full, beside.looked) == (True, looked)
    await beside.end()


@virtual_time
async def test_the_task_goes_on_as_soon_as_the_step_is_full_no_more() -> None:
    beside = Beside()
    await beside.push(1, 2, 3)
    await beside.answer(1)
    looked = beside.looked

    await beside.answer(2)

    assert (beside.step.full, beside.looked) == (False, looked + 1)
    await beside.end()


@virtual_time
async def test_the_task_looks_again_when_results_have_filled_the_room_behind_a_full_step() -> None:
    beside = Beside()
    await beside.push(1, 2, 3, 4)
    looked = beside.looked
    beside.behind.full = True

    await beside.answer(1)

    assert (beside.step.full, beside.looked) == (True, looked + 1)
    await beside.end()


@virtual_time
async def test_a_slot_that_somebody_cancels_while_it_rests_is_replaced() -> None:
    beside = Beside()
    await beside.push(1)
    await beside.answer(1)

    beside.the_slot().cancel()
    await settle()
    await beside.push(2)
    await beside.answer(2)

    assert sent(beside.output) == [1, 2]
    await beside.end()


@virtual_time
async def test_a_slot_that_somebody_cancels_as_it_is_woken_leaves_its_call_to_another() -> None:
    beside = Beside()
    await beside.push(1)
    await beside.answer(1)

    beside.step.process(Batch([2]))
    beside.the_slot().cancel()
    await settle()
    await beside.answer(2)

    assert sent(beside.output) == [1, 2]
    await beside.end()
