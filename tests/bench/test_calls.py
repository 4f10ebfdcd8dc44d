"""Tools of the benchmark of calls: programs by hand, a bound, a service, and verified runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest
import uvloop

from aflow.testing.virtual_time import virtual_time
from bench.calls import programs
from bench.calls.answers import Answers
from bench.calls.programs import CallOne
from bench.calls.rates import KEYS, key_of, shortest
from bench.calls.services import Overloaded, Service
from bench.calls.trials import run_in_turn

Program = Callable[[Sequence[int], CallOne, int], Awaitable[list[int]]]


class CountedCall:
    """A call of one second that counts the calls in flight."""

    def __init__(self) -> None:
        self.in_flight = self.maximum = 0

    async def __call__(self, value: int) -> int:
        self.in_flight += 1
        self.maximum = max(self.maximum, self.in_flight)
        await asyncio.sleep(1)
        self.in_flight -= 1
        return value + 1


@pytest.mark.parametrize(
    "program",
    [
        programs.workers,
        programs.workers_in_order,
        programs.task_for_each,
        programs.gathered,
    ],
)
@virtual_time
async def test_a_program_by_hand_uses_its_capacity(program: Program) -> None:
    call = CountedCall()

    results = await program(range(12), call, 4)

    assert (sorted(results), call.maximum) == (list(range(1, 13)), 4)
    assert asyncio.get_running_loop().time() == 3


def test_the_shortest_time_starts_calls_in_order_as_places_become_free() -> None:
    assert shortest([1, 4, 1, 1, 1], in_flight=2) == 4
    assert shortest([1, 1, 1, 1, 4], in_flight=2) == 6


def test_keys_are_many_and_evenly_distributed() -> None:
    keys = [key_of(value) for value in range(100_000)]

    assert set(keys) == set(range(KEYS))
    assert max(keys.count(key) for key in range(0, KEYS, 500)) <= 20


@pytest.mark.slow
def test_a_program_that_loses_a_record_is_an_error() -> None:
    def loses(values: Sequence[int]) -> list[int]:
        return list(values[1:])

    with pytest.raises(SystemExit, match="loses gave other results"):
        run_in_turn({"loses": (loses, lambda results, values: results == values)}, [1, 2], 1)


@virtual_time
async def test_calls_wait_for_a_server() -> None:
    service = Service(rejects=False)
    running = asyncio.create_task(service.run(0.3))
    await asyncio.sleep(0)

    answers = await asyncio.gather(*map(service.call, range(250)))

    assert answers == list(range(1, 251))
    assert 0.03 < asyncio.get_running_loop().time() <= 0.09
    assert 0 < await running < 250


@virtual_time
async def test_a_service_rejects_calls_if_all_servers_are_busy() -> None:
    service = Service(rejects=True)
    running = asyncio.create_task(service.run(0.3))
    await asyncio.sleep(0)

    answers = await asyncio.gather(*map(service.call, range(250)), return_exceptions=True)

    assert sum(isinstance(answer, Overloaded) for answer in answers) == 150
    assert (service.answered, service.rejected) == (100, 150)
    await running


def test_answers_are_on_time_on_successive_event_loops() -> None:
    async def ask(answers: Answers) -> float:
        started = time.monotonic()
        await answers.answer()
        return time.monotonic() - started - 0.02

    async def ask_some(answers: Answers) -> list[float]:
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[float]] = []
            for _ in range(5):
                tasks.append(group.create_task(ask(answers)))
                await asyncio.sleep(0.003)
        return [task.result() for task in tasks]

    with Answers(0.02) as answers:
        for new_loop in (uvloop.new_event_loop, asyncio.SelectorEventLoop):
            with asyncio.Runner(loop_factory=new_loop) as runner:
                late = runner.run(ask_some(answers))
                # A busy machine delays some answers, and may delay all of a few milliseconds.
                while min(late) >= 0.02 and len(late) < 500:
                    late += runner.run(ask_some(answers))

            assert min(late) >= 0
            assert min(late) < 0.02


def test_a_cancelled_answer_does_not_delay_others() -> None:
    async def ask(answers: Answers) -> bool:
        cancelled = asyncio.ensure_future(answers.answer())
        cancelled.cancel()
        await asyncio.wait_for(answers.answer(), timeout=10)
        return cancelled.cancelled()

    with Answers(0.01) as answers:
        assert asyncio.run(ask(answers))


@virtual_time
async def test_waiting_coroutines_count_their_answers() -> None:
    assert await programs.waiting(partial(asyncio.sleep, 1), times=3, in_flight=4) == 12
    assert asyncio.get_running_loop().time() == 3
