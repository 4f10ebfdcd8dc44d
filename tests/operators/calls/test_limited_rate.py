"""Steps with a rate limit: no time sees more calls begin than may, and as many as may are made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import Drop
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import Retry
from tests.operators.calls.simulated_steps import Answer, World

SECOND = timedelta(seconds=1)


def most_within(times: list[float], span: float) -> int:
    """The most calls that began within any time so long (ms), both ends included."""
    ahead = most = 0
    for index, at in enumerate(times):
        while times[ahead] < at - span:
            ahead += 1
        most = max(most, index + 1 - ahead)
    return most


def busy(value: object) -> tuple[float, object]:
    return 0.0, ValueError("busy")


def takes(millis: float) -> Answer:
    return lambda value: (millis, value)


@pytest.mark.parametrize("capacity", [1, 7, 1000])
@pytest.mark.parametrize("count", [3, 70, 10_000])
def test_the_rate_is_reached_and_not_exceeded(count: int, capacity: int) -> None:
    world, number = World(), 2 * count
    limit = RateLimit[Any](count, per=SECOND)
    step = world.step(rate=limit, capacity=capacity)

    for first in range(0, number, 500):
        step.push(*range(first, min(first + 500, number)))
    world.until(2100)

    assert world.values() == step.emitted() == list(range(number))
    assert most_within(world.times(), 1000) <= count + limit.units_at_once
    assert most_within(world.times(), 100) <= count / 10 + limit.units_at_once


# --------------------------------------------------------------------------------------------- what counts


def test_each_attempt_counts() -> None:
    world = World()
    step = world.step(
        answer=busy,
        rate=RateLimit(10, per=SECOND),
        retry=Retry(attempts=3, delay=timedelta(0)),
        on_error=Drop(),
    )

    step.push(*range(10))
    world.until(2800)

    assert world.times() == [100 * number for number in range(29)]
    assert step.step.calls.retries == 19


def test_a_record_whose_deadline_has_passed_takes_nothing() -> None:
    def until(value: int) -> int:
        return 500 if value < 1000 else 10_000

    world = World(at=1000.0)
    step = world.step(
        rate=RateLimit(1, per=SECOND),
        deadline=until,
        on_error=Drop(),
    )

    step.push(*range(1001))

    assert world.values() == [1000]
    assert step.step.calls.dropped == 1000


def test_records_of_a_group_whose_deadline_has_passed_cost_nothing() -> None:
    def until(value: float) -> int:
        return 500 if value == 9 else 10_000

    world = World(at=1000.0)
    step = world.step(
        answer=lambda values: (0.0, values),
        rate=RateLimit(10, per=SECOND, cost=float),
        groups=GroupSize(3, 0),
        deadline=until,
        on_error=Drop(),
    )

    step.push(9, 0.5, 9, 9, 0.5, 9)

    assert world.values() == [[0.5], [0.5]]


def test_records_of_a_waiting_group_whose_time_is_up_cost_nothing() -> None:
    def partly(values: list[float]) -> tuple[float, object]:
        return 0.0, [ValueError("busy")] * len(values) if values[0] < 5 else values

    world = World()
    step = world.step(
        answer=partly,
        rate=RateLimit(10, per=SECOND, burst=10, cost=float),
        groups=GroupSize(1, 0),
        timeout=300,
        retry=Retry(attempts=2, delay=timedelta(milliseconds=100)),
        on_error=Drop(),
    )
    step.push(4)  # is called for again at 100, and given up at 300

    step.push(6)  # takes all that there is
    world.until(400)
    step.push(5)  # is there at 500, were it not for the one that was given up

    world.until(1000)

    assert [(began.at, began.value) for began in world.begun] == [(0, [4]), (0, [6]), (500, [5])]


@pytest.mark.parametrize("capacity", [1, 1000])
def test_calls_that_cost_more_than_the_burst_are_made_at_the_rate(capacity: int) -> None:
    world = World()
    step = world.step(rate=RateLimit(10, per=SECOND, cost=float), capacity=capacity)

    step.push(*[25] * 5)
    world.until(20_000)

    assert world.times() == pytest.approx([0, 2500, 5000, 7500, 10_000], abs=3)
    assert step.emitted() == [25] * 5


def test_calls_for_a_group_cost_what_its_records_cost() -> None:
    world = World()
    step = world.step(rate=RateLimit(10, per=SECOND, burst=10, cost=float), groups=GroupSize(2, 0))

    step.push(*[5] * 8)
    world.until(5000)

    assert world.times() == pytest.approx([0, 1000, 2000, 3000], abs=3)


def test_a_group_is_one_call_if_nothing_is_said_of_costs() -> None:
    world = World()
    step = world.step(rate=RateLimit(10, per=SECOND, burst=1), groups=GroupSize(100, 0))

    step.push(*range(400))
    world.until(5000)

    assert world.times() == pytest.approx([0, 100, 200, 300], abs=3)


def test_kept_results_cost_nothing() -> None:
    world = World()
    cache = Cache[Any, Any](1000)
    step = world.step(rate=RateLimit(1, per=SECOND), cache=cache)

    step.push(*[1, 2] * 100)
    world.until(1100)

    assert world.values() == [1, 2]
    assert step.emitted() == [1, 2] * 100


def test_restored_calls_count() -> None:
    world = World()
    before = world.step("before", takes(10_000), rate=RateLimit(10, per=SECOND))
    snapshot = before.push(*range(20)).step.snapshot()

    restored = world.step(restored=snapshot, rate=RateLimit(10, per=SECOND))
    world.until(1900)

    assert world.times("step") == [100 * number for number in range(20)]
    assert restored.emitted() == list(range(20))


# ------------------------------------------------------------------------------------- steps that share a limit


def test_steps_that_share_a_limit_keep_it_together_and_have_equal_shares() -> None:
    world = World()
    limit = RateLimit[Any](100, per=SECOND, shared="api")
    steps = [world.step(name, takes(50), rate=limit, capacity=40) for name in "abc"]

    for step in steps:
        step.push(*range(80))
    world.until(2000)

    assert most_within(world.times(), 999) <= 110
    assert len(world.begun) == pytest.approx(210, abs=3)
    later = [
        sum(at > 0 for at in world.times(name)) for name in "abc"
    ]  # the burst is for who is first
    assert later == pytest.approx([67] * 3, abs=2)


def rate_of_b(world: World, start: float) -> int:
    """Return the number of calls that step b started in the second from ``start`` on."""
    return sum(start <= began.at < start + 1000 for began in world.begun if began.step == "b")


def sharing(**settings: Any) -> tuple[World, Any, Any]:
    """Two steps; ``settings`` are of the first. Both have more to call for than may be."""
    world = World()
    limit = RateLimit[Any](50, per=SECOND, burst=1, shared="api")
    first = world.step("a", rate=limit, **settings)
    second = world.step("b", rate=limit)
    return world, first, second


def test_a_step_that_is_held_does_not_keep_others_from_their_turn() -> None:
    world, first, second = sharing()
    first.push(*range(200))
    second.push(*range(200))
    world.until(1000)

    first.block()
    world.until(1000 + 999)

    assert rate_of_b(world, 1000) == pytest.approx(50, abs=2)


def test_a_step_whose_calls_have_timed_out_does_not_keep_others_from_their_turn() -> None:
    world = World()
    limit = RateLimit[Any](1, per=SECOND, burst=1, shared="api")
    again = Retry(attempts=2, delay=timedelta(0))
    first = world.step(
        "a",
        busy,
        rate=limit,
        retry=again,
        timeout=900,
        on_error=Drop(),
    )
    first.push(1)  # is to be called again at 1000, and has no time until then
    second = world.step("b", rate=limit)
    world.until(950)

    second.push(1)
    world.until(1100)

    assert world.times("b") == pytest.approx([1000], abs=3)
