"""A job that stops while a circuit breaker is open: records that wait for it run out of time instead of waiting on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aflow.machines.calls.breaker import CircuitBreaker
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder
from aflow.model.tags import Tag
from tests.operators.calls.simulated_steps import SimulatedStep, World, at_once

SECOND = timedelta(seconds=1)
BREAKER = CircuitBreaker(calls=4, pause=SECOND)
DEAD = Tag[FailedCall[int]]("dead")

STEPS: dict[str, dict[str, Any]] = {
    "ordered": {},
    "unordered": {"order": CallOrder.UNORDERED},
    "by key": {"order": CallOrder.BY_KEY},
    "cached": {"cache": Cache[int, int](100, key=lambda value: value % 50)},
    "grouped": {"groups": GroupSize(3, 0)},
    "retried": {"retry": Retry(attempts=4)},
}


def dead_service(value: object) -> tuple[float, object]:
    return 10, ConnectionError("down")


def behind_a_breaker(world: World, **settings: Any) -> SimulatedStep:
    given: dict[str, Any] = {
        "breaker": BREAKER,
        "timeout": 2_000,
        "capacity": 4,
        "on_error": Drop(),
        **settings,
    }
    step = world.step(answer=given.pop("answer", dead_service), **given)
    keyed = settings.get("order") is CallOrder.BY_KEY
    step.push(*range(100), keys=[value % 3 for value in range(100)] if keyed else None)
    world.until(100)
    return step


def stop(step: SimulatedStep) -> None:
    step.stop()


@pytest.mark.parametrize("settings", STEPS.values(), ids=STEPS)
def test_a_stop_lasts_no_longer_than_the_timeout_of_the_records_in_the_step(
    settings: dict[str, Any],
) -> None:
    world = World()
    step = behind_a_breaker(world, **settings)

    stop(step)
    world.until(2_099)
    before = step.step.busy
    world.until(2_300)

    assert (before, step.step.busy) == (True, False)
    assert step.step.calls.dropped == 100


def test_records_that_come_after_the_stop_have_their_whole_time() -> None:
    world = World()
    step = behind_a_breaker(world)
    stop(step)
    world.until(1_500)

    step.push(*range(100, 110))
    world.until(3_499)
    before = step.step.busy
    world.until(3_500)

    assert (before, step.step.busy) == (True, False)


def test_a_stop_waits_for_the_breaker_if_records_have_no_timeout() -> None:
    world = World()
    step = behind_a_breaker(world, timeout=None)

    stop(step)
    world.until(60_000)

    assert step.step.busy


def test_a_service_that_answers_again_in_time_gets_all_calls() -> None:
    world = World()

    def answers(value: object) -> tuple[float, object]:
        return 10, value if world.at > 500 else ConnectionError("down")

    step = behind_a_breaker(world, answer=answers)

    stop(step)
    world.until(10_000)

    assert len(step.emitted()) + step.step.calls.dropped == 100
    assert step.step.calls.timeouts == 0


def test_a_dead_letter_says_that_the_record_was_not_called_for() -> None:
    world = World()
    step = behind_a_breaker(world, on_error=DeadLetter(DEAD))

    stop(step)
    world.until(10_000)

    last = step.side_values("dead")[-1]
    assert (last.error, last.attempts) == ("TimeoutError", 0)
    assert last.message == "no result within 2s, in 0 attempts"


def test_without_a_stop_records_wait_for_the_breaker_however_long() -> None:
    world = World()
    step = behind_a_breaker(world)

    world.until(10_000)

    assert step.step.busy
    assert step.step.calls.timeouts == 0


def test_a_stop_leaves_records_their_time_that_wait_for_a_rate_limit() -> None:
    """The wait for a rate limit has a bound, so no call times out during it."""
    world = World()
    step = behind_a_breaker(world, answer=at_once, rate=RateLimit(10, SECOND), timeout=500)

    stop(step)
    world.until(20_000)

    assert step.emitted() == list(range(100))
