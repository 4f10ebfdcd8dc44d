"""What the benchmark of calls measures with: programs by hand, a bound, a service, and runs that are checked."""

from __future__ import annotations

import asyncio
import statistics
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


class Counted:
    """Answers after a second, and knows how many wait for it."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def __call__(self, value: int) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1)
        self.now -= 1
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
async def test_a_program_by_hand_has_as_many_calls_under_way_as_it_may(program: Program) -> None:
    call = Counted()

    results = await program(range(12), call, 4)

    assert (sorted(results), call.most) == (list(range(1, 13)), 4)
    assert asyncio.get_running_loop().time() == 3


def test_the_shortest_time_begins_each_call_in_its_turn_at_the_first_free_place() -> None:
    assert shortest([1, 4, 1, 1, 1], in_flight=2) == 4
    assert shortest([1, 1, 1, 1, 4], in_flight=2) == 6


def test_the_keys_are_many_and_none_is_more_frequent_than_it_should_be() -> None:
    keys = [key_of(value) for value in range(100_000)]

    assert set(keys) == set(range(KEYS))
    assert max(keys.count(key) for key in range(0, KEYS, 500)) <= 20


def test_a_program_that_loses_a_record_measures_nothing() -> None:
    def loses(values: Sequence[int]) -> list[int]:
        return list(values[1:])

    with pytest.raises(SystemExit, match="loses gave other results"):
        run_in_turn({"loses": (loses, lambda results, values: results == values)}, [1, 2], 1)


@virtual_time
async def test_a_service_makes_calls_wait_for_a_server() -> None:
    service = Service(rejects=False)
    running = asyncio.create_task(service.run(0.3))
    await asyncio.sleep(0)

    answers = await asyncio.gather(*map(service.call, range(250)))

    assert answers == list(range(1, 251))
    assert 0.03 < asyncio.get_running_loop().time() <= 0.09
    assert 0 < await running < 250


@virtual_time
async def test_a_service_turns_away_what_finds_all_servers_busy() -> None:
    service = Service(rejects=True)
    running = asyncio.create_task(service.run(0.3))
    await asyncio.sleep(0)

    answers = await asyncio.gather(*map(service.call, range(250)), return_exceptions=True)

    assert sum(isinstance(answer, Overloaded) for answer in answers) == 150
    assert (service.answered, service.rejected) == (100, 150)
    await running


def test_answers_come_exactly_when_they_should_and_on_one_loop_after_the_other() -> None:
    late: list[float] = []

    async def ask(answers: Answers) -> None:
        began = time.monotonic()
        await answers.answer()
        late.append(time.monotonic() - began - 0.02)

    async def ask_some(answers: Answers) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(ask(answers))
                await asyncio.sleep(0.003)

    with Answers(0.02) as answers:
        for new_loop in (uvloop.new_event_loop, asyncio.SelectorEventLoop):
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(ask_some(answers))

    assert len(late) == 10
    assert min(late) >= 0
    assert statistics.median(late) < 0.01


def test_an_answer_that_nobody_waits_for_any_more_keeps_no_other_from_coming() -> None:
    async def ask(answers: Answers) -> bool:
        given_up = asyncio.ensure_future(answers.answer())
        given_up.cancel()
        await asyncio.wait_for(answers.answer(), timeout=10)
        return given_up.cancelled()

    with Answers(0.01) as answers:
        assert asyncio.run(ask(answers))


@virtual_time
async def test_coroutines_that_only_wait_have_as_many_answers_as_asked_for() -> None:
    assert await programs.waiting(partial(asyncio.sleep, 1), times=3, in_flight=4) == 12
    assert asyncio.get_running_loop().time() == 3
