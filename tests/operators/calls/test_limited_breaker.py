"""Steps with a circuit breaker: who waits, who fails at once, and who tries whether the service is there again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.machines.calls.breaker import CircuitBreaker, CircuitOpen
from aflow.machines.calls.cache import Cache
from aflow.machines.calls.groups import GroupSize
from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall, Fallback
from aflow.machines.calls.rate import RateLimit
from aflow.machines.calls.retry import Retry
from aflow.machines.calls.settings import CallOrder
from aflow.model.tags import Tag
from tests.operators.calls.simulated_steps import Answer, SimulatedStep, World

SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)
DEAD = Tag[FailedCall[int]]("dead")


def breaker(**settings: Any) -> CircuitBreaker:
    given: dict[str, Any] = {"calls": 4, "pause": SECOND, **settings}
    return CircuitBreaker(**given)


def down_until(world: World, well_at: float, *, takes: float = 10) -> Answer:
    """A service that fails before ``well_at`` (ms)."""

    def answer(value: object) -> tuple[float, object]:
        return takes, value if world.at >= well_at else ConnectionError("down")

    return answer


def test_records_wait_while_the_circuit_is_open_and_are_called_for_when_a_probe_has_succeeded() -> (
    None
):
    world = World()
    step = world.step(
        answer=down_until(world, 2500), breaker=breaker(), on_error=Drop(), capacity=4
    )

    step.push(*range(100))
    world.until(20_000)

    # With the fourth failure it opens, at 10; a probe at 1010 fails, so the next one is two seconds after that.
    assert world.times()[:9] == [0] * 4 + [10] * 3 + [1010, 3020]
    assert step.emitted() == list(range(8, 100))
    assert step.step.calls.dropped == 8


def test_there_are_as_many_probes_as_the_user_says() -> None:
    world = World()
    limits = breaker(probes=3)
    step = world.step(answer=down_until(world, 500), breaker=limits, on_error=Drop(), capacity=4)

    step.push(*range(20))
    world.until(20_000)

    assert world.times()[7:11] == [1010] * 3 + [1020]
    assert step.emitted() == list(range(7, 20))


def test_timeouts_are_failures() -> None:
    world = World()
    step = world.step(
        answer=lambda value: (10_000, value),
        breaker=breaker(),
        timeout=100,
        on_error=Drop(),
        capacity=4,
    )

    step.push(*range(10))
    world.until(1099)
    before = len(world.begun)
    world.until(1100)

    assert (before, len(world.begun)) == (4, 5)


def test_a_probe_that_times_out_makes_room_for_no_other_before_the_next_pause() -> None:
    world = World()
    step = world.step(
        answer=lambda value: (10_000, value),
        breaker=breaker(max_pause=SECOND),
        timeout=100,
        on_error=Drop(),
        capacity=4,
    )

    step.push(*range(10))
    world.until(5000)

    assert world.times() == [0] * 4 + [1100, 2200, 3300, 4400]


# ------------------------------------------------------------------------------------------------- fail fast


def failing_fast(world: World, well_at: float = 1e9, **settings: Any) -> SimulatedStep:
    given: dict[str, Any] = {"breaker": breaker(fail_fast=True), "capacity": 4, **settings}
    step = world.step(answer=down_until(world, well_at), **given)
    step.push(*range(4))
    world.until(10)
    assert len(world.begun) == 4
    return step


def test_a_record_that_is_refused_goes_to_the_dead_letters_and_says_why() -> None:
    world = World()
    step = failing_fast(world, on_error=DeadLetter(DEAD))

    step.push(4)

    assert [letter.value for letter in step.side_values("dead")] == [0, 1, 2, 3, 4]
    refused = step.side_values("dead")[-1]
    assert (refused.error, refused.attempts) == ("CircuitOpen", 1)
    assert "the service is tried again in 1 s" in refused.message
    assert step.step.calls.calls == 4


def test_by_default_a_record_that_is_refused_fails_the_job() -> None:
    world = World()
    limits = breaker(fail_fast=True, calls=1)
    retry = Retry(attempts=2, delay=timedelta(milliseconds=5), on=ConnectionError)
    step = world.step(answer=down_until(world, 1e9), breaker=limits, retry=retry)
    step.push("a")

    with pytest.raises(
        OperatorError, match=r"record 'a' after 2 attempts: CircuitOpen: .*is open"
    ) as caught:
        world.until(100)

    assert isinstance(caught.value.__cause__, CircuitOpen)


def test_refused_records_are_tried_again_as_retry_says() -> None:
    world = World()
    retry = Retry(attempts=3, delay=timedelta(milliseconds=600), on=CircuitOpen)
    step = failing_fast(world, 500, on_error=Drop(), retry=retry)

    step.push(4)  # is refused at 10 and at 610, and made at 1210
    world.until(2000)

    assert [(began.at, began.value) for began in world.begun[4:]] == [(1210, 4)]
    assert step.emitted() == [4]


@pytest.mark.slow
@pytest.mark.parametrize("order", list(CallOrder))
@pytest.mark.parametrize("policy", [Drop(), Fallback[Any](lambda value, error: value)])
def test_thousands_of_records_are_refused_in_one_go(order: CallOrder, policy: Any) -> None:
    world = World()
    step = world.step(
        answer=down_until(world, 1e9),
        breaker=breaker(fail_fast=True),
        capacity=4,
        order=order,
        on_error=policy,
    )
    step.push(*range(4), keys=list(range(4)))
    world.until(10)

    step.push(*range(4, 20_000), keys=[7] * 19_996)

    assert not step.step.busy
    assert len(world.begun) == 4


def test_thousands_of_groups_are_refused_in_one_go() -> None:
    world = World()
    limits = breaker(fail_fast=True)
    groups = GroupSize(2, 0)
    step = world.step(
        answer=down_until(world, 1e9), breaker=limits, groups=groups, on_error=Drop(), capacity=4
    )
    step.push(*range(8))
    world.until(10)

    step.push(*range(20_000))

    assert not step.step.busy
    assert step.step.calls.dropped == 20_008


def test_those_who_wait_for_the_same_result_are_refused_together_and_nothing_of_it_is_kept() -> (
    None
):
    world = World()
    cache = Cache[Any, Any](100, errors=Exception)
    step = failing_fast(world, 500, cache=cache, on_error=Drop())
    step.push(7, 7, 7)
    refused = step.step.calls.dropped

    world.until(1500)
    step.push(7)
    world.until(2000)

    assert refused == 7
    assert step.emitted() == [7]


def test_while_the_service_is_tried_others_are_refused() -> None:
    world = World()
    step = failing_fast(world, 500, on_error=DeadLetter(DEAD))
    world.until(1500)

    step.push(4, 5)
    world.until(2000)

    assert step.emitted() == [4]
    assert "half-open" in step.side_values("dead")[-1].message


def test_those_behind_a_group_that_has_timed_out_while_the_circuit_was_open_are_called_for() -> (
    None
):
    world = World()
    step = world.step(
        answer=down_until(world, 400),
        breaker=breaker(calls=1, pause=300 * MS),
        retry=Retry(attempts=2, delay=timedelta(0)),
        groups=GroupSize(2, 0),
        timeout=310,
        on_error=Drop(),
        order=CallOrder.BY_KEY,
    )

    step.push(1, 2, 3, 4, keys=[1, 2, 1, 2])
    world.until(1000)

    # Those that have failed are in line again until the circuit closes at 310, and there is no time left for them then.
    assert [(began.at, began.value) for began in world.begun] == [(0, [1, 2]), (310, [3, 4])]


# ------------------------------------------------------------------------------------- with a rate limit


def test_a_step_whose_circuit_is_open_does_not_keep_others_from_their_turn() -> None:
    world = World()
    limit = RateLimit[Any](50, per=SECOND, burst=1, shared="api")
    first = world.step(
        "a",
        down_until(world, 1e9),
        rate=limit,
        breaker=breaker(pause=100 * SECOND, max_pause=None),
        on_error=Drop(),
    )
    second = world.step("b", rate=limit)

    first.push(*range(200))
    second.push(*range(200))
    world.until(1000)

    assert len(world.values("a")) <= 6
    assert len(world.begun) == pytest.approx(51, abs=2)


def test_who_is_refused_takes_nothing_of_the_rate() -> None:
    world = World()
    step = failing_fast(world, 500, rate=RateLimit(1, per=SECOND, burst=5), on_error=Drop())
    step.push(*range(100))
    world.until(1500)

    step.push(1)
    world.until(1510)
    step.push(2)

    assert [began.at for began in world.begun[4:]] == [1500, 1510]


def test_a_function_that_cannot_say_what_is_a_failure_fails_the_job_with_the_record() -> None:
    world = World()

    def broken(error: BaseException) -> bool:
        raise KeyError("code")

    step = world.step(answer=down_until(world, 1e9), breaker=breaker(on=broken), on_error=Drop())
    step.push(41)

    with pytest.raises(OperatorError, match=r"record 41: KeyError: .*code"):
        world.until(100)
