"""Starts of calls while the host of a job is active: few in each pass of the event loop."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aflow.machines.batch_size import BatchSize
from aflow.machines.calls.settings import CallSettings
from aflow.model.batch import Batch
from aflow.operators.base import OperatorContext
from aflow.operators.calls.operator import AsyncOperator
from aflow.runtime.calls.slots import CallSlots
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox_loop import MailboxLoop, SuspendReason
from aflow.runtime.pieces import ChainPieces, OperatorPieces
from aflow.testing.virtual_time import virtual_time
from tests.operators.driver import ManualTime, RecordingOutput
from tests.runtime.work_clock import WorkClock

#: Calls under way at once, and seconds of work that one takes to start.
CAPACITY = 500
START = 0.00001

#: Starts that the turns of a pass have time for, and one; and slots that are woken in a pass.
MOST, WOKEN = 51, 64


class CallsBesideHost:
    """A step, its slots and its task on a loop whose host may be active."""

    def __init__(self, timeout: timedelta | None) -> None:
        loop = asyncio.get_running_loop()
        self.clock, self.output, time = WorkClock(), RecordingOutput(), ManualTime()
        self.budget = LoopBudget(loop, self.clock, 0.002)
        self.loop = MailboxLoop(loop=loop, loop_budget=self.budget, clock=self.clock)
        self.answers: list[asyncio.Future[int]] = []
        settings = CallSettings(
            call=self._call,
            capacity=CAPACITY,
            timeout=None if timeout is None else round(timeout.total_seconds() * 1000),
        )
        self.step = AsyncOperator(settings)
        self.step.open(OperatorContext(name="step", output=self.output, clock=time, alarm=time))
        chain = ChainPieces(self.budget, self.clock, self.loop.resume)
        self.slots = CallSlots(
            self.step,
            self.loop,
            self.budget,
            rooms=[],
            pieces=OperatorPieces(chain, 0, "step", BatchSize(1024, 1.0)),
            report=lambda _step, _event, _seconds: None,
        )
        self.slots.start()
        self._running = asyncio.create_task(
            self.loop.run(lambda: self.loop.suspend(SuspendReason.IDLE))
        )

    async def serve_request(self) -> None:
        self.budget.watch()
        self.clock.work(0.001)
        await asyncio.sleep(0)

    async def starts_in_each_pass(self, until: int) -> list[int]:
        """Run passes of the loop until so many calls have started, and return the starts in each."""
        starts: list[int] = []
        while len(self.answers) < until:
            before = len(self.answers)
            await asyncio.sleep(0)
            starts.append(len(self.answers) - before)
            assert len(starts) < 1_000
        return starts

    async def close(self) -> None:
        self.loop.complete()
        await self._running
        self.slots.cancel()
        await self.slots.close()

    async def _call(self, value: int) -> int:
        self.clock.work(START)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer


def emitted(output: RecordingOutput) -> list[int]:
    return [one for batch in output.emitted if isinstance(batch, Batch) for one in batch.values]


@pytest.mark.parametrize("timeout", [None, timedelta(hours=1)])
@virtual_time
async def test_few_calls_start_in_a_pass_while_the_host_is_active(
    timeout: timedelta | None,
) -> None:
    beside = CallsBesideHost(timeout)
    await beside.serve_request()

    beside.step.process(Batch(list(range(2 * CAPACITY))))
    first = await beside.starts_in_each_pass(CAPACITY)
    await beside.serve_request()
    for answer in beside.answers[:CAPACITY]:
        answer.set_result(1)
    then = await beside.starts_in_each_pass(2 * CAPACITY)
    for answer in beside.answers[CAPACITY:]:
        answer.set_result(2)
    await asyncio.sleep(0.001)

    assert max(first) <= WOKEN
    assert max(then) <= WOKEN + MOST
    assert sorted(emitted(beside.output)) == [1] * CAPACITY + [2] * CAPACITY
    await beside.close()


@virtual_time
async def test_without_a_host_a_call_starts_when_another_one_completes() -> None:
    beside = CallsBesideHost(None)

    beside.step.process(Batch(list(range(2 * CAPACITY))))
    await beside.starts_in_each_pass(CAPACITY)
    for answer in beside.answers[:CAPACITY]:
        answer.set_result(1)
    then = await beside.starts_in_each_pass(2 * CAPACITY)

    assert max(then) == CAPACITY
    await beside.close()
