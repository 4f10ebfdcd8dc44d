"""The time of one attempt: it begins with a slot, and the retry policy decides what follows its end."""

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
from tests.operators.calls.handlers.processes import Adding
from tests.operators.calls.harness import CallHarness
from tests.operators.calls.simulated_steps import SimulatedStep, World

FAILED = Tag[FailedCall[Any]]("failed")
AGAIN = Retry(attempts=3, delay=timedelta(0))


def itself(value: Any) -> Any:
    return value


STEPS: dict[str, dict[str, Any]] = {
    "ordered": {},
    "unordered": {"order": CallOrder.UNORDERED},
    "by key": {"order": CallOrder.BY_KEY, "key": itself},
    "cached": {"cache": Cache(10)},
    "grouped": {"groups": GroupSize(1, 0)},
    "cached and grouped": {"cache": Cache(10), "groups": GroupSize(1, 0)},
    "behind limits": {
        "rate": RateLimit(1000, timedelta(seconds=1)),
        "breaker": CircuitBreaker(),
    },
}


def pass_time(step: CallHarness, millis: int) -> None:
    step.advance_processing_time(timedelta(milliseconds=millis))


@pytest.mark.parametrize("settings", STEPS.values(), ids=STEPS)
def test_an_attempt_whose_time_is_up_is_cancelled_and_made_again(settings: dict[str, Any]) -> None:
    step = CallHarness(attempt_timeout=10, retry=AGAIN, **settings)
    step.push("a")
    pass_time(step, 9)
    assert (len(step.made), step.cancelled) == (1, [])

    pass_time(step, 1)

    asked = step.made[0]
    assert (step.made, step.cancelled, step.asked) == ([asked, asked], [asked], [asked])
    step.returns(asked, asked)
    assert step.values == ["a"]
    assert step.size.processing_timers == 0
    assert step.step.calls.retries == 1


def test_the_last_attempt_whose_time_is_up_is_a_failure_for_good() -> None:
    step = CallHarness(attempt_timeout=10, retry=AGAIN, on_error=DeadLetter(FAILED))
    step.push("a")

    pass_time(step, 30)

    (dead,) = step.side(FAILED)
    assert dead.value == FailedCall(
        "a", "TimeoutError", "an attempt gave no result within 10ms", attempts=3
    )
    assert not step.step.busy


def test_a_policy_that_is_not_for_timeouts_makes_no_other_attempt() -> None:
    retry = Retry(attempts=3, on=ConnectionError)
    step = CallHarness(attempt_timeout=10, retry=retry, on_error=Drop())
    step.push("a")

    pass_time(step, 10)

    assert (step.made, step.step.calls.dropped) == (["a"], 1)


def test_without_a_retry_policy_an_attempt_whose_time_is_up_is_a_failure_for_good() -> None:
    step = CallHarness(attempt_timeout=10, on_error=Drop())
    step.push("a")

    pass_time(step, 10)

    assert (step.cancelled, step.step.calls.dropped) == (["a"], 1)


def test_the_wait_for_a_slot_does_not_count_against_an_attempt() -> None:
    step = CallHarness(attempt_timeout=10, capacity=1, retry=AGAIN, on_error=Drop())
    step.push("a", "b")
    pass_time(step, 9)
    step.returns("a", "a")

    pass_time(step, 9)

    assert (step.asked, step.cancelled) == (["b"], [])


def test_the_pause_and_the_wait_before_a_second_attempt_do_not_count_against_it() -> None:
    retry = Retry(attempts=2, delay=timedelta(milliseconds=50))
    step = CallHarness(attempt_timeout=10, capacity=1, retry=retry, on_error=Drop())
    step.push("a", "b", "c")
    step.raises("a", ConnectionError())
    for value in "bc":
        pass_time(step, 9)
        step.returns(value, value)
    pass_time(step, 32)
    assert step.asked == ["a"]

    pass_time(step, 9)
    step.returns("a", "a")

    assert step.values == ["a", "b", "c"]
    assert step.step.calls.dropped == 0


def test_the_timeout_of_the_record_ends_all_attempts() -> None:
    step = CallHarness(
        attempt_timeout=10,
        timeout=25,
        retry=Retry(attempts=9, delay=timedelta(0)),
        on_error=DeadLetter(FAILED),
    )
    step.push("a")

    pass_time(step, 25)

    (dead,) = step.side(FAILED)
    assert (dead.value.message, dead.value.attempts) == ("no result within 25ms, in 3 attempts", 3)


def test_an_answer_in_time_leaves_nothing_to_wait_for() -> None:
    step = CallHarness(attempt_timeout=10)
    step.push("a")
    step.returns("a", "a")

    pass_time(step, 100)

    assert (step.values, step.cancelled, step.size.processing_timers) == (["a"], [], 0)


def test_the_records_of_a_group_are_called_for_again_together() -> None:
    world = World()
    slow = {"left": 1}

    def answer(values: object) -> tuple[float, object]:
        slow["left"] -= 1
        return (1_000 if slow["left"] >= 0 else 1), values

    step: SimulatedStep = world.step(
        answer=answer, groups=GroupSize(3, 0), attempt_timeout=10, retry=AGAIN
    )

    step.push(1, 2, 3)
    world.until(50)

    assert world.values() == [[1, 2, 3], [1, 2, 3]]
    assert step.emitted() == [1, 2, 3]


def test_a_breaker_sees_attempts_whose_time_is_up_as_failures() -> None:
    world = World()
    breaker = CircuitBreaker(calls=4, pause=timedelta(seconds=1))
    step = world.step(
        answer=lambda value: (1_000, value),
        breaker=breaker,
        attempt_timeout=10,
        on_error=Drop(),
        capacity=4,
    )

    step.push(*range(10))
    world.until(500)

    assert world.times() == [0, 0, 0, 0]


def test_a_handler_whose_attempt_runs_out_of_time_has_done_nothing() -> None:
    with CallHarness(handlers=Adding(), retry=AGAIN, attempt_timeout=10) as step:
        step.push(1, keys=["a"]).resume("a")

        step.clock(10)

        assert len(step.cancelled) == 1
        assert step.finish().new_values() == ["a1"]
